"""A watermark: after each token, a secret key makes half of all tokens likelier; a detector counts them.

This is the soft watermark of arXiv 2301.10226, in which the token before decides which tokens are green.
The paper also measures how much of the mark survives changes, and hides the key better: here all green lists
are halves of one ring of tokens.

Prompt: Write about the sea.
Argument: {"key": 42, "bias": 4, "tokens": 40}
"""

import math
import random

from aici import TokenSet, argument, prompt_tokens, sample, set_var, tokens, vocab_size

# All tokens in a random order, which the key decides. Made at the top level, once for all requests with this
# argument. Sorting needs less time than random.shuffle.
random.seed(argument["key"])
SIZE = vocab_size()
RING = list(range(SIZE))
RING.sort(key=lambda token: random.random())
PLACE = [0] * SIZE
for place, token in enumerate(RING):
    PLACE[token] = place
RING += RING
TEXT = TokenSet.text()


def start(last):
    return last * 2654435761 % SIZE


def green(last):
    return TokenSet(RING[start(last) : start(last) + SIZE // 2])


def score(found):
    # How many standard deviations the number of green tokens is above chance. Each pair counts once, since a
    # repeated pair proves nothing.
    pairs = {(found[at - 1], found[at]) for at in range(1, len(found))}
    hits = sum([(PLACE[token] - start(last)) % SIZE < SIZE // 2 for last, token in pairs])
    return (hits - len(pairs) / 2) / math.sqrt(max(1, len(pairs)) / 4)


async def main():
    if "detect" in argument:
        # the detector needs the key, but no model: the prompt is the text to examine
        set_var("z", f"{score(prompt_tokens()):.2f}")
        return
    last = prompt_tokens()[-1]
    for _ in range(argument["tokens"]):
        last = (await sample(TEXT, favoured=green(last), bias=argument["bias"])).token
    set_var("z", f"{score(tokens()):.2f}")
