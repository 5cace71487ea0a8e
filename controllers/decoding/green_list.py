"""A watermark: after each token, a key makes a share of all tokens likelier; a detector counts these.

A Watermark for Large Language Models (2023, arXiv 2301.10226), the soft one. green_list.js and .cpp choose
the same tokens. There, each token's green list is a random set of its own; here, all of them are arcs of one
ring of tokens, which costs nothing to cut out. The detector counts each pair of tokens once.

Prompt: Write about the sea.
Argument: {"key": 42, "share": 0.5, "bias": 2, "tokens": 200}
"""

import math

from aici import TokenSet, arg, prompt_tokens, sample, set_var, tokens, vocab_size

SIZE = vocab_size()
KEY, SHARE = arg["key"], arg.get("share", 0.5)
GREEN = int(SIZE * SHARE)
MASK = (1 << 32) - 1


def mix(x):
    # the hash function lowbias32, a permutation of 32-bit numbers
    x = (x ^ x >> 16) * 0x7FEB352D & MASK
    x = (x ^ x >> 15) * 0x846CA68B & MASK
    return x ^ x >> 16


# All tokens by their hashes, made once for all requests with this argument. A float holds a hash with its
# token, and sorts faster than a pair of numbers.
RING = [mix(token ^ mix(KEY)) * 1048576.0 + token for token in range(SIZE)]
RING.sort()
RING = [int(hashed % 1048576) for hashed in RING]
PLACE = [0] * SIZE
for place, token in enumerate(RING):
    PLACE[token] = place
RING += RING
TEXT = TokenSet.text()


def start(last):
    return mix(last + mix(KEY + 1) & MASK) % SIZE


def score(found):
    # How many standard deviations the number of green tokens is above chance.
    pairs = {(found[at - 1], found[at]) for at in range(1, len(found))}
    hits = sum([(PLACE[token] - start(last)) % SIZE < GREEN for last, token in pairs])
    return (hits - SHARE * len(pairs)) / math.sqrt(max(1, len(pairs)) * SHARE * (1 - SHARE))


async def main():
    if arg.get("detect"):
        # the detector needs the key, but no model: the prompt is the text to examine
        set_var("z", f"{score(prompt_tokens()):.2f}")
        return
    last = prompt_tokens()[-1]
    for _ in range(arg["tokens"]):
        begin = start(last)
        green = TokenSet(RING[begin : begin + GREEN])
        last = (await sample(TEXT, favoured=green, bias=arg["bias"])).token
    set_var("z", f"{score(tokens()):.2f}")
