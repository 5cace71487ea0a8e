"""Several calls, each using the last one's answer; only the last one stays in the text.

Prompt: Write about an animal.
"""

from aici import fixed, gen, label, options, rewind, set_var


async def main():
    start = label()

    # first call: ideas, as many as we like
    ideas = []
    for number in range(3):
        await fixed(f"Animal {number + 1}: the ")
        ideas.append(await gen(regex="[a-z]{3,12}", max_tokens=6))
        await fixed("\n")

    # second call: the model chooses among its own ideas, so this pattern cannot be made before them
    await fixed("The most interesting one is the ")
    choice = await gen(options(ideas))
    set_var("choice", choice)

    # everything so far was scratch paper: taken back, nobody sees it, and the model forgets it
    await rewind(start)

    # third call: the answer
    await fixed(f"The {choice} is")
    await gen(regex=r"[a-z ,]{10,60}\.", max_tokens=24)
