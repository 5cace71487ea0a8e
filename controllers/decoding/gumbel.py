"""A watermark that does not change the distribution: hashes of a key take the place of random numbers.

A Statistical Framework of Watermarks for Large Language Models (2024, arXiv 2404.01245) describes it, with a
talk of 2022 as its source. Each token has a number between 0 and 1, a hash of the key, the tokens before and
the token. The token with the largest number to the power of 1 / probability is taken: without the key, the
text looks like a sample of the model. The detector adds up -log(1 - number). There, all tokens take part;
here, the 64 likeliest. After the same tokens as before, the model draws freely, so that texts do not repeat.

Prompt: Write about the sea.
Argument: {"key": 42, "tokens": 200}
"""

import math

from aici import TokenSet, arg, force, likely, prompt_tokens, sample, set_var, tokens

KEY, WIDTH = arg["key"], 4
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


def number(seed, token):
    return (mix(seed ^ mix(token + 1)) + 0.5) / (MASK + 1)


def score(found):
    # Sums of exponential variables, if there is no mark: mean and variance are their number.
    pairs = {(context(found[:at][-WIDTH:]), found[at]) for at in range(WIDTH, len(found))}
    total = sum([-math.log(1 - number(seed, token)) for seed, token in pairs])
    return (total - len(pairs)) / math.sqrt(max(1, len(pairs)))


async def main():
    if arg.get("detect"):
        set_var("z", f"{score(prompt_tokens()):.2f}")
        return
    before, known = prompt_tokens()[-WIDTH:], set()
    for _ in range(arg["tokens"]):
        seed = context(before)
        if seed in known:
            token = (await sample(TEXT, temperature=1.0)).token
        else:
            known.add(seed)
            ranked = [pair for pair in await likely(64) if pair[0] in TEXT]
            token = max(ranked, key=lambda pair: math.log(number(seed, pair[0])) / math.exp(pair[1]))[0]
            await force([token])
        before = (before + [token])[-WIDTH:]  # noqa: RUF005 (MicroPython)
    set_var("z", f"{score(tokens()):.2f}")
