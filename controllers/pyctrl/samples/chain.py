"""Several calls, each using the previous answer; only the last answer stays in the text.

Prompt: Write about an animal.
"""

from aici import fixed, gen, label, options, rewind, set_var


async def main():
    start = label()

    # first call: some ideas
    ideas = []
    for number in range(3):
        await fixed(f"Animal {number + 1}: the ")
        ideas.append(await gen(regex="[a-z]{3,12}", max_tokens=6))
        await fixed("\n")

    # second call: the model chooses among its own ideas, so this pattern cannot be made earlier
    await fixed("The most interesting one is the ")
    choice = await gen(options(ideas))
    set_var("choice", choice)

    # remove everything so far: the user does not see it, and the model forgets it
    await rewind(start)

    # third call: the answer
    await fixed(f"The {choice} is")
    await gen(regex=r"[a-z ,]{10,60}\.", max_tokens=24)
