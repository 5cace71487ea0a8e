"""Stochastic beam search: draws different texts, each as likely as the model says, without replacement.

Stochastic Beams and Where to Find Them: The Gumbel-Top-k Trick for Sampling Sequences Without Replacement
(2019, arXiv 1903.06059). A beam has a log-probability, and this plus Gumbel noise, its perturbed one. The
noise of its children is such that the largest perturbed log-probability among them is its own. The beams with
the largest ones go on. All beams are forks, which share their candidates and decide the same. With the
threshold, the largest perturbed log-probability that is left out, the texts estimate means over all texts of
the model. There, all tokens take part; here, the `candidates` likeliest ones.

Prompt: Write a slogan for a bakery.
Argument: {"beams": 4, "tokens": 8, "candidates": 64}
"""

import json
import math
import random

from aici import arg, distribution, eos_tokens, force, fork, set_var, stop, text, wait

BEAMS, CANDIDATES, END = arg["beams"], arg["candidates"], eos_tokens()


def gumbel():
    return -math.log(-math.log(random.random() or 1e-300))


def perturbed(logprobs, parent):
    # Gumbel noise, given that the largest sum is that of the parent.
    drawn = [logprob + gumbel() for logprob in logprobs]
    largest = max(drawn)
    found = []
    for each in drawn:
        rest = 1 - math.exp(each - largest)
        v = parent - each + math.log(rest) if rest > 0 else -math.inf
        found.append(parent - max(0.0, v) - math.log(1 + math.exp(-abs(v))))
    return found


async def beam(me):
    logprob, noisy, threshold, over = 0.0, gumbel(), -math.inf, False
    for at in range(arg["tokens"]):
        if over:
            children = [[noisy, logprob, me, -1]]
        else:
            ranked = (await distribution()).likely(CANDIDATES)
            sums = [logprob + each for _, each in ranked]
            drawn = perturbed(sums, noisy)
            children = [[drawn[n], sums[n], me, token] for n, (token, _) in enumerate(ranked)]
            children = sorted(children, reverse=True)[: BEAMS + 1]
        # at first, all beams are equal: only one of them counts
        set_var(f"{at}.{me}", json.dumps([] if at == 0 and me > 0 else children))
        states = await wait(*[f"{at}.{one}" for one in range(BEAMS)])
        found = sorted([child for state in states for child in json.loads(state)], reverse=True)
        mine = [me] if at == 0 else [n for n, child in enumerate(found[:BEAMS]) if child[2] == me]
        if not mine:
            stop()
        me = mine[await fork(len(mine)) if len(mine) > 1 else 0]
        noisy, logprob, _, token = found[me]
        threshold = max([threshold] + [child[0] for child in found[BEAMS:]])
        if token >= 0:
            over = token in END
            if not over:
                await force([token])
    set_var("threshold", f"{threshold!r}")
    set_var(f"beam{me}", json.dumps([noisy, logprob, text()]))


async def main():
    mine = await fork(BEAMS + 1)
    if mine > 0:
        return await beam(mine - 1)
    # the first sequence takes no part, so that it can return a text
    found = [json.loads(each) for each in await wait(*[f"beam{one}" for one in range(BEAMS)])]
    await force(max(found)[2])
