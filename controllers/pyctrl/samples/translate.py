"""A translation line by line: each line of the input gets exactly one line in French.

Prompt: Translate these lines to French.
Argument: ["Good morning.", "The cat is black.", "Thank you very much."]
"""

from aici import arg, force, gen, regex, set_var

# not empty and without a line break, so the model can neither skip a line nor add one
LINE = regex(" [^\n ][^\n]*")


async def main():
    lines = []
    for line in arg:
        # a small model needs the original line right before its translation
        await force(f"English: {line}\nFrench:")
        translation = await gen(LINE, max_tokens=12)
        lines.append(translation.strip())
        await force("\n")
    set_var("translation", "\n".join(lines))
