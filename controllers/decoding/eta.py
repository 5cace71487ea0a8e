"""Truncation by entropy: leaves out tokens that are unlikely even for a distribution as wide as this.

Truncation Sampling as Language Model Desmoothing (2022, arXiv 2210.15191), eta sampling. A token is kept if
its probability is above epsilon, or above the root of epsilon times exp(-entropy). The script sees the
model's distribution before a token is drawn, so it is the same method.

Prompt: Tell me a story about a lost key.
Argument: {"epsilon": 0.0009, "tokens": 60}
"""

import json
import math

from aici import TokenSet, arg, distribution, eos_tokens, sample, set_var, vocab_size

EPSILON = arg["epsilon"]
END = eos_tokens()


async def main():
    counts = []
    for _ in range(arg["tokens"]):
        seen = await distribution()
        least = min(EPSILON, math.sqrt(EPSILON) * math.exp(-seen.entropy))
        # fewer than 1 / least tokens can be above it
        ranked = seen.likely(min(vocab_size(), int(1 / least) + 1))
        kept = [token for token, logprob in ranked if logprob > math.log(least)] or [ranked[0][0]]
        counts.append(len(kept))
        if (await sample(TokenSet(kept), temperature=1.0)).token in END:
            break
    set_var("kept", json.dumps(counts))
