"""Diverse beam search: groups of beams, each of which avoids the tokens that earlier groups have just chosen.

Diverse Beam Search: Decoding Diverse Solutions from Neural Sequence Models (2016, arXiv 1610.02424), with the
Hamming diversity. In each step, the groups choose their beams one after the other; a candidate loses
`penalty` for each beam of an earlier group that has chosen the same token in this step. All beams are forks,
which share their candidates and decide the same. There, the penalties add up along a beam; here, they only
decide within a step, so that scores are log-probabilities. All beams have the same number of tokens.

Prompt: Write a slogan for a bakery.
Argument: {"groups": 3, "width": 2, "penalty": 1.5, "tokens": 8}
"""

import json

from aici import TokenSet, arg, force, fork, likely, set_var, stop, text, wait

GROUPS, WIDTH, PENALTY = arg["groups"], arg["width"], arg["penalty"]
BEAMS, TEXT = arg["groups"] * arg["width"], TokenSet.text()


def choose(states):
    # Returns the new beams, in order of groups: (score, number of the old beam, token).
    chosen: list[tuple[float, int, int]] = []
    for group in range(GROUPS):
        taken = [token for _, _, token in chosen]
        found = []
        for beam in range(group * WIDTH, (group + 1) * WIDTH):
            score, candidates = states[beam]
            for token, logprob in candidates:
                loss = PENALTY * taken.count(token)
                found.append((score + logprob - loss, score + logprob, beam, token))
        found.sort(key=lambda each: (-each[0], each[2], each[3]))
        chosen += [each[1:] for each in found[:WIDTH]]
    return chosen


async def beam(me):
    score = 0.0
    for at in range(arg["tokens"]):
        ranked = [pair for pair in await likely(2 * BEAMS + 8) if pair[0] in TEXT][: 2 * BEAMS]
        # at first, the beams of a group are equal: only one of them counts
        known = [] if at == 0 and me % WIDTH else ranked
        set_var(f"{at}.{me}", json.dumps([score, known]))
        states = await wait(*[f"{at}.{one}" for one in range(BEAMS)])
        chosen = choose([json.loads(state) for state in states])
        if at == 0:  # any beam of the group can take any of its tokens
            mine = [me]
        else:
            mine = [place for place in range(BEAMS) if chosen[place][1] == me]
        if not mine:
            stop()
        me = mine[await fork(len(mine)) if len(mine) > 1 else 0]
        score = chosen[me][0]
        await force([chosen[me][2]])
    set_var(f"beam{me}", json.dumps([score, text()]))


async def main():
    mine = await fork(BEAMS + 1)
    if mine > 0:
        return await beam(mine - 1)
    # the first sequence takes no part, so that it can return a text: the best one
    found = [json.loads(each) for each in await wait(*[f"beam{one}" for one in range(BEAMS)])]
    await force(max(found)[1])
