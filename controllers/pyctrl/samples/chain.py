"""Several calls, each using the previous answer; only the last answer stays in the text.

Prompt: Write about an animal.
"""

from aici import backtrack, choice, force, gen, label, set_var


async def main():
    start = label()

    # first call: some ideas
    ideas = []
    for number in range(3):
        await force(f"Animal {number + 1}: the ")
        ideas.append(await gen(regex="[a-z]{3,12}", max_tokens=6))
        await force("\n")

    # second call: the model chooses among its own ideas, so this pattern cannot be made earlier
    await force("The most interesting one is the ")
    best = await gen(choice(ideas))
    set_var("choice", best)

    # remove everything so far: the user does not see it, and the model forgets it
    await backtrack(start)

    # third call: the answer
    await force(f"The {best} is")
    await gen(regex=r"[a-z ,]{10,60}\.", max_tokens=24)
