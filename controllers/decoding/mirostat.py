"""Control of perplexity: keeps so many of the likeliest tokens that the surprise stays at a target.

Mirostat: A Neural Text Decoding Algorithm that Directly Controls Perplexity (2020, arXiv 2007.14966). The
script estimates the exponent of Zipf's law from the 100 likeliest tokens, and from it the number of tokens
whose surprise stays below `mu` on average; `mu` falls if a token was more surprising than the target, in
bits. The script sees the model's distribution before the token is drawn, so it is the same method.

Prompt: Tell me a story about a lost key.
Argument: {"target": 3.0, "rate": 0.1, "tokens": 60}
"""

import json
import math

from aici import TokenSet, arg, distribution, eos_tokens, sample, set_var, vocab_size

TARGET, RATE = arg["target"], arg["rate"]
SIZE, END = vocab_size(), eos_tokens()
STEPS = [math.log((rank + 2) / (rank + 1)) for rank in range(99)]


def exponent(ranked):
    # least squares on the logarithms of neighbouring ranks
    falls = [ranked[at][1] - ranked[at + 1][1] for at in range(min(99, len(ranked) - 1))]
    squares = [step * step for step in STEPS[: len(falls)]]
    return sum([STEPS[at] * fall for at, fall in enumerate(falls)]) / sum(squares)


def count(mu, s):
    near = s - 1 if abs(s - 1) > 1e-6 else 1e-6
    return max(1, min(SIZE, round((near * 2**mu / (1 - SIZE**-near)) ** (1 / s))))


async def main():
    mu, counts = 2 * TARGET, []
    for _ in range(arg["tokens"]):
        seen = await distribution()
        counts.append(count(mu, exponent(seen.likely(100))))
        kept = TokenSet([token for token, _ in seen.likely(counts[-1])])
        token = (await sample(kept, temperature=1.0)).token
        mu -= RATE * (-seen.logprob(token) / math.log(2) - TARGET)
        if token in END:
            break
    set_var("kept", json.dumps(counts))
    set_var("mu", f"{mu:.4f}")
