"""Sampling aligned with a pattern: each text teaches which beginnings the model would not have completed.

Grammar-Aligned Decoding (2024, arXiv 2405.21047), the algorithm ASAp. A mask alone distorts the model's
distribution. For each beginning, the script keeps an upper bound of the probability that the model
completes it within the pattern: 1 where it has not been, else the sum over known tokens of probability
times bound, and `allowed_mass`, the exact probability of all other allowed tokens. Drawing in proportion to
probability times bound approaches the model's distribution given the pattern. There, the bounds scale the
logits; here, a random number decides whether the model draws another token, or the script a known one.

Prompt: When was the Eiffel Tower built?
Argument: {"pattern": "It was built in (18|19)[0-9]{2}[.]", "samples": 3, "tokens": 20}
"""

import math
import random

from aici import TokenSet, arg, backtrack, eos_tokens, force, label, regex, sample, set_var, text

PATTERN = regex(arg["pattern"])
END = eos_tokens()


class Node:
    # A beginning of a text: its last token's probability, the bound, and the tokens that are known after it.
    def __init__(self, probability):
        self.probability, self.bound, self.children = probability, 1.0, {}
        self.unknown = 1.0  # the probability of all allowed tokens that are not known

    def weights(self):
        return [child.probability * child.bound for child in self.children.values()]


async def draw(node, allowed):
    # Draws a token in proportion to probability times bound; returns it with its node.
    weights = node.weights()
    if not node.children or random.random() * (node.unknown + sum(weights)) < node.unknown:
        fresh = allowed - TokenSet(node.children)
        one = await sample(fresh, temperature=1.0, top_logprobs=1)
        assert one.logprob is not None and one.allowed_mass is not None
        child = node.children[one.token] = Node(math.exp(one.logprob))
        node.unknown = max(0.0, one.allowed_mass - child.probability) if len(fresh) > 1 else 0.0
        return one.token, child
    place = random.random() * sum(weights)
    while len(weights) > 1 and place >= weights[-1]:
        place -= weights.pop()
    token, child = list(node.children.items())[len(weights) - 1]
    await force([token])
    return token, child


async def attempt(root):
    # Writes a text; returns whether it is complete. Updates the bounds of all its beginnings.
    follows, path, complete = PATTERN.follow(), [root], False
    while len(path) <= arg["tokens"] and not complete:
        allowed = follows.allowed()
        if follows.may_end:
            allowed.allow(END)
        if len(allowed) == 0 or path[-1].bound == 0:
            break
        token, child = await draw(path[-1], allowed)
        path.append(child)
        follows.append([token])
        complete = token in END
    follows.close()
    if not complete:
        path[-1].bound = 0.0  # the limit of tokens belongs to the pattern
    for node in path[-2::-1]:
        node.bound = node.unknown + sum(node.weights())
    return complete


async def main():
    begin, root = label(), Node(1.0)
    texts: list[str] = []
    while len(texts) < arg["samples"] and root.bound > 0:
        await backtrack(begin)
        if await attempt(root):
            texts.append(text())
    set_var("texts", "\n".join(texts))
    set_var("bound", f"{root.bound:.6g}")
