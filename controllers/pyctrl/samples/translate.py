"""A translation line by line: as many lines come out as went in, each beside its own.

Prompt: Translate these lines to French.
Argument: ["Good morning.", "The cat is black.", "Thank you very much."]
"""

from aici import argument, fixed, gen, regex, set_var

# no line break inside, and something there: the model can neither skip a line nor add one
LINE = regex(" [^\n ][^\n]*")


async def main():
    lines = []
    for line in argument:
        # an original right before its translation is what a small model needs
        await fixed(f"English: {line}\nFrench:")
        translation = await gen(LINE, max_tokens=12)
        lines.append(translation.strip())
        await fixed("\n")
    set_var("translation", "\n".join(lines))
