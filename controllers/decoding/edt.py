"""A temperature that follows the model's uncertainty: low where it is sure, else higher.

EDT: Improving Large Language Models' Generation by Entropy-based Dynamic Temperature Sampling (2024, arXiv
2403.14541). The temperature of each token is `highest` times 0.8 to the power of theta by the entropy of
the model's distribution, which the script sees before the token is drawn. The entropy is in nats.

Prompt: Tell me a story about a lost key.
Argument: {"highest": 1.0, "theta": 0.6, "tokens": 60}
"""

import json

from aici import arg, distribution, eos_tokens, sample, set_var

HIGHEST, THETA = arg["highest"], arg["theta"]
END = eos_tokens()


def temperature(entropy):
    return HIGHEST * 0.8 ** (THETA / max(entropy, 1e-6))


async def main():
    used = []
    for _ in range(arg["tokens"]):
        used.append(temperature((await distribution()).entropy))
        if (await sample(temperature=used[-1])).token in END:
            break
    set_var("temperatures", json.dumps([round(each, 4) for each in used]))
