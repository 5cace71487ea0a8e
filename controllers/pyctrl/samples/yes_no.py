"""A yes or a no, then one sentence that says why.

Prompt: Do cats have fur?
"""

from aici import fixed, gen, options, regex

# Made at the top level, which runs once, before any prompt: every request finds its patterns ready.
ANSWER = options(["Yes", "No"])
REASON = regex(r" [^.\n]{5,80}\.")


async def main():
    answer = await gen(ANSWER, store="answer")
    # a script is a program: what comes next may depend on what came
    await fixed(", because" if answer == "Yes" else ":")
    await gen(REASON, max_tokens=24)
