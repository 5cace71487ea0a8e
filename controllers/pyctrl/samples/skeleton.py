"""Skeleton of thought: the points of an answer first, then all points at the same time, in forks.

Prompt: How do I make good coffee?
"""

from aici import force, gather, gen, set_var

POINTS = 3


def writer(number, point):
    async def write():
        await force(f"\n\nPoint {number}, in one sentence: {point}:")
        return (await gen(regex=r" [^\n.]{10,120}\.", max_tokens=30)).strip()

    return write


async def main():
    points = []
    for number in range(1, POINTS + 1):
        await force(f"{number}. ")
        points.append((await gen(regex="[A-Z][a-z]+( [a-z]+){0,3}", max_tokens=8)).strip())
        await force("\n")
    # each fork sees the whole skeleton; the caller waits for the longest sentence, not for their sum
    sentences = await gather(*[writer(number, point) for number, point in enumerate(points, 1)])
    for number, sentence in enumerate(sentences, 1):
        await force(f"\n{number}. {sentence}")
    set_var("points", "; ".join(points))
