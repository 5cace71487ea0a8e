"""Contrastive decoding: writes tokens that a large model finds likelier than a small one does.

Contrastive Decoding: Open-ended Text Generation as Optimization (2022, arXiv 2210.15097). A token is
plausible if the large model gives it at least alpha times the probability of its likeliest one. Of these, the
script takes the one with the largest difference of log-probabilities between the large model and the small
one, the amateur, whose logits are divided by tau. There, a beam search maximizes the
sum of these differences; here, each token is the best one after those before it. The engine needs the amateur
as a second model: --second amateur=MODEL.

Prompt: Tell me a story about a lost key.
Argument: {"amateur": "amateur", "alpha": 0.1, "tau": 1.0, "tokens": 60}
"""

import json
import math

from aici import TokenSet, arg, distribution, eos_tokens, mix, sample, set_var, vocab_size

END = eos_tokens()


async def main():
    await mix(None, weight=1.0, model=arg["amateur"])  # all of the sum: a look shows the amateur alone
    counts = []
    for _ in range(arg["tokens"]):
        expert = await distribution(own=True)
        amateur = (await distribution()).logits
        least = expert.likely(1)[0][1] + math.log(arg["alpha"])
        # fewer than 1 / exp(least) tokens can be above it
        ranked = expert.likely(min(vocab_size(), int(math.exp(-least)) + 1))
        plausible = [(token, logprob) for token, logprob in ranked if logprob >= least]
        counts.append(len(plausible))
        best = max(plausible, key=lambda pair: pair[1] - amateur[pair[0]] / arg["tau"])[0]
        if (await sample(TokenSet(best), temperature=0)).token in END:
            break
    set_var("plausible", json.dumps(counts))
