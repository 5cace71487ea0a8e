"""Thinks and acts in turns (ReAct): a calculator outside computes, until the model has its answer.

Prompt: What is 12 times 7, plus 5?
"""

from aici import call, choice, force, gen, set_var

ACTION = choice([" add", " multiply", " finish"])
NUMBER = "[1-9][0-9]{0,3}"


async def main():
    steps = 0
    for turn in range(3):
        await force("Thought:" if turn == 0 else "\nThought:")
        await gen(regex=r" [^\n]{1,80}", max_tokens=16)
        await force("\nAction:")
        action = (await gen(ACTION)).strip()
        if action == "finish":
            break
        await force(" ")
        a = int(await gen(regex=NUMBER, max_tokens=4))
        await force(", ")
        b = int(await gen(regex=NUMBER, max_tokens=4))
        # The caller runs the calculator. Meanwhile the model computes for others, and nothing is read again.
        result = await call("calculate", operation=action, a=a, b=b)
        await force(f"\nObservation: {result}")
        steps += 1
    await force("\nAnswer:")
    set_var("answer", (await gen(regex=" [0-9]{1,8}")).strip())
    set_var("steps", str(steps))
