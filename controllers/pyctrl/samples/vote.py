"""Self-consistency: five forks reason independently, and the most frequent answer wins.

Prompt: Anna has 3 apples and buys 4 more. How many apples has she?
"""

from aici import backtrack, force, fork, gen, label, regex, stop, wait

FORKS = 5
NUMBER = regex(" [0-9]{1,3}")


async def main():
    start = label()
    mine = await fork(FORKS)  # from here on, five copies of this script run; mine is 0, 1, 2, 3 or 4
    await gen(stop="\n", max_tokens=20, temperature=0.7)
    await force("\nThe answer is")
    # variables belong to the whole request, so forks communicate through them
    await gen(NUMBER, store=f"vote{mine}")
    if mine != 0:
        stop()

    # the first fork waits, at no cost, until all have voted
    votes = await wait(*[f"vote{number}" for number in range(FORKS)])
    winner = max(votes, key=votes.count)
    await backtrack(start)
    await force(f"{winner.strip()} ({votes.count(winner)} of {FORKS} say so)")
