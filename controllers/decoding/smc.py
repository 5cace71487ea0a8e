"""Steering by sequential Monte Carlo: forks write under a pattern, and likely ones replace unlikely ones.

Sequential Monte Carlo Steering of Large Language Models using Probabilistic Programs (2023, arXiv
2306.03081). A mask alone draws each token as if the model were as likely to go on within the pattern after
any of them. `allowed_mass`, the probability of all allowed tokens, is the exact importance weight of a
token that was drawn under a mask. With it, the texts are samples of the model given that it follows the
pattern, and `probability` is an unbiased estimate of how likely that is. There, particles are resampled
without replacement; here the resampling is systematic, and happens when the weights have become too
unequal.

Prompt: When was the Eiffel Tower built?
Argument: {"pattern": "It was built in (18|19)[0-9]{2}[.]", "particles": 6, "tokens": 20}
"""

import math
import random

from aici import arg, eos_tokens, force, fork, regex, sample, set_var, stop, text, wait

PATTERN = regex(arg["pattern"])
COUNT, TOKENS = arg["particles"], arg["tokens"]
END = eos_tokens()


def offspring(weights, uniform):
    # Systematic resampling: how many copies each particle gets, so that there are COUNT again.
    scale, total, given, found = COUNT / sum(weights), 0.0, 0, []
    for weight in weights:
        total += weight * scale
        copies = max(0, math.ceil(total - uniform - 1e-9) - given)
        given += copies
        found.append(copies)
    return found


async def advance(follows):
    # Draws a token under the pattern; returns it with its weight.
    allowed = follows.allowed()
    if follows.may_end:
        allowed.allow(END)
    # temperature 1, since the weight is that of the distribution at the temperature of the draw
    one = await sample(allowed, temperature=1.0, top_logprobs=1)
    follows.append([one.token])
    return one.token, one.allowed_mass


async def particle(me):
    follows, weight, log_z, over = PATTERN.follow(), 1.0, 0.0, False
    for at in range(TOKENS):
        if not over:
            token, mass = await advance(follows)
            weight, over = weight * mass, token in END
        # All see the same weights and the same number, and so decide the same.
        set_var(f"{at}.{me}", f"{weight!r} {int(over)} {random.random()!r}")
        states = [state.split() for state in await wait(*[f"{at}.{one}" for one in range(COUNT)])]
        weights = [float(state[0]) for state in states]
        last = at == TOKENS - 1 or all(state[1] == "1" for state in states)
        if not last and sum(weights) ** 2 > COUNT / 2 * sum([each * each for each in weights]):
            continue  # the effective number of particles is above half of them
        log_z += math.log(sum(weights) / COUNT)
        copies = offspring(weights, float(states[0][2]))
        if copies[me] == 0:
            stop()
        me, weight = sum(copies[:me]) + (await fork(copies[me]) if copies[me] > 1 else 0), 1.0
        if last:
            break
    set_var("probability", f"{math.exp(log_z):.6g}")
    set_var(f"text{me}", text())


async def main():
    mine = await fork(COUNT + 1)
    if mine > 0:
        return await particle(mine - 1)
    # the first sequence takes no part, so that it can return a text
    await force((await wait(*[f"text{one}" for one in range(COUNT)]))[0])
