"""Yes or no, then one sentence with the reason.

Prompt: Do cats have fur?
"""

from aici import choice, force, gen, regex

# Made at the top level, which runs once before any prompt, so every request finds its patterns compiled.
ANSWER = choice(["Yes", "No"])
REASON = regex(r" [^.\n]{5,80}\.")


async def main():
    answer = await gen(ANSWER, store="answer")
    # a script is a program: the next text may depend on the text so far
    await force(", because" if answer == "Yes" else ":")
    await gen(REASON, max_tokens=24)
