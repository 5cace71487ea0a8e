"""Retries until a checker accepts the text: a sum that is correct.

Prompt: Write a sum of two numbers between 10 and 30.
"""

from aici import Error, Variable, force, gen, regex, retry

# a pattern enforces the form, but cannot check that the sum is correct
SUM = regex(r"[1-2][0-9] \+ [1-2][0-9] = [0-9]{2}")


def right(line):
    left, total = line.split(" = ")
    return sum([int(number) for number in left.split(" + ")]) == int(total)


attempt = 0


async def write():
    global attempt
    attempt += 1
    # a higher temperature each time, so that the model does not write the same again
    line = await gen(SUM, temperature=0.1 + 0.15 * attempt)
    if right(line):
        return line
    print("wrong:", line)


async def main():
    try:
        await retry(write, attempts=8)
        Variable("attempts").set(attempt)
    except Error:
        # report the failure instead of returning a wrong sum
        await force("I found none.")
