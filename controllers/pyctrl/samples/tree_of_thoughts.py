"""Tree of thoughts: forks continue the best partial answers, and the model values each of them.

This is the breadth-first search of arXiv 2305.10601 with values. There, the model values a state several
times, a task has prompts of its own, and a depth-first search gives up states without hope. Here a value is
a probability.

Prompt: Write a very short story about a lost key.
"""

import math

from aici import TokenSet, force, gather, gen, regex, sample, set_var, tokenize

DEPTH, BREADTH, THOUGHTS = 2, 2, 3
SENTENCE = regex(r" [A-Z][^\n.]{10,60}\.")
YES, NO = tokenize(" yes")[0], tokenize(" no")[0]
VERDICT = TokenSet([YES, NO])


def think(state):
    async def write():
        await force("Story:" + state)
        thought = await gen(SENTENCE, temperature=1.0)
        await force("\nIs the story good so far? Answer yes or no:")
        # one token is enough for a value: the share of yes in the probability of both
        verdict = await sample(VERDICT, top_logprobs=1)
        assert verdict.logprob is not None and verdict.allowed_mass is not None
        share = math.exp(verdict.logprob) / verdict.allowed_mass
        return [share if verdict.token == YES else 1 - share, state + thought]

    return write


async def main():
    states = [(0.0, "")]
    for _ in range(DEPTH):
        # all thoughts at once; the forks share what they have in common
        thoughts = await gather(*[think(state) for _, state in states for _ in range(THOUGHTS)])
        for value, state in thoughts:
            print(f"{value:.4f}{state}")
        states = sorted(thoughts, reverse=True)[:BREADTH]
    value, story = states[0]
    await force(story.strip())
    set_var("value", f"{value:.4f}")
