"""Self-consistency that stops early: forks vote in pairs, until the rest cannot change the result.

The result is always that of all votes. Published methods save more and are sometimes wrong:
Adaptive-Consistency (arXiv 2305.11860) stops when a majority is likely enough, and ESC (arXiv 2401.10480)
when a few answers in a row agree.

Prompt: Anna has 3 apples and buys 4 more. How many apples has she?
"""

from aici import force, gather, gen, regex, set_var

VOTES = 5
NUMBER = regex(" [0-9]{1,3}")


def decided(votes, left):
    # whether the first answer stays ahead even if all votes that are left are for the second one
    counts = sorted([votes.count(vote) for vote in set(votes)] + [0, 0])
    return counts[-1] > counts[-2] + left


async def vote():
    await gen(stop="\n", max_tokens=10, temperature=0.7)
    await force("\nThe answer is")
    return (await gen(NUMBER)).strip()


async def main():
    votes: list[str] = []
    while len(votes) < VOTES and not decided(votes, VOTES - len(votes)):
        # larger groups wait less often, smaller ones vote less in vain
        votes += await gather(*[vote] * min(2, VOTES - len(votes)))
    winner = max(votes, key=votes.count)
    await force(f"{winner} ({votes.count(winner)} of {len(votes)} say so)")
    set_var("votes", " ".join(votes))
