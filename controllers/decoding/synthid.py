"""SynthID's watermark: tokens win a tournament that a key decides, without a change of the distribution.

Scalable watermarking for identifying large language model outputs (2024, doi 10.1038/s41586-024-08025-4). The
key, the four tokens before and a token give one bit for each of 30 layers. In each layer, pairs drawn from
the distribution compete, and the bit 1 wins, which multiplies a probability by 1 + bit - (the probability of
bit 1). On average over keys that is 1. The detector counts the bits: half of them are 1 without a mark.
There, all tokens take part; here, the 64 likeliest. There, the key has a hash function for each layer; here,
the layers are the bits of one hash. After the same tokens as before, the model draws freely.

Prompt: Write about the sea.
Argument: {"key": 42, "tokens": 200}
"""

import json
import math
import random

from aici import TokenSet, arg, force, likely, prompt_tokens, sample, set_var, tokens

KEY, WIDTH, LAYERS = arg["key"], 4, 30
MASK = (1 << 32) - 1
TEXT = TokenSet.text()


def mix(x):
    # the hash function lowbias32, a permutation of 32-bit numbers
    x = (x ^ x >> 16) * 0x7FEB352D & MASK
    x = (x ^ x >> 15) * 0x846CA68B & MASK
    return x ^ x >> 16


def context(before):
    found = mix(KEY)
    for token in before[-WIDTH:]:
        found = mix(found ^ token + 1)
    return found


def tournament(ranked, seed):
    # Returns the probabilities of the tokens after all layers.
    total = sum([math.exp(logprob) for _, logprob in ranked])
    pairs = [(math.exp(logprob) / total, mix(seed ^ mix(token + 1))) for token, logprob in ranked]
    for layer in range(LAYERS):
        won = sum([share for share, bits in pairs if bits >> layer & 1])
        pairs = [(share * ((bits >> layer & 1) + 1 - won), bits) for share, bits in pairs]
    return [share for share, _ in pairs]


def score(found):
    # the standard deviations by which the bits exceed half of their number
    pairs = {(context(found[:at][-WIDTH:]), found[at]) for at in range(WIDTH, len(found))}
    ones = sum([mix(seed ^ mix(token + 1)) >> layer & 1 for seed, token in pairs for layer in range(LAYERS)])
    count = max(1, LAYERS * len(pairs))
    return (ones - count / 2) / (math.sqrt(count) / 2)


async def main():
    if arg.get("detect"):
        set_var("z", f"{score(prompt_tokens()):.2f}")
        return
    before, known, drawn = prompt_tokens()[-WIDTH:], set(), []
    for _ in range(arg["tokens"]):
        seed = context(before)
        if seed in known:
            token = (await sample(TEXT, temperature=1.0)).token
        else:
            known.add(seed)
            ranked = [pair for pair in await likely(64) if pair[0] in TEXT]
            shares, place, left = tournament(ranked, seed), 0, random.random()
            while place < len(shares) - 1 and left >= shares[place]:
                left, place = left - shares[place], place + 1
            token = ranked[place][0]
            drawn.append(round(shares[place], 6))
            await force([token])
        before = (before + [token])[-WIDTH:]  # noqa: RUF005 (MicroPython)
    set_var("shares", json.dumps(drawn))
    set_var("z", f"{score(tokens()):.2f}")
