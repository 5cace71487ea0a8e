"""Token healing: keeps the tokenizer's split of the prefix and lets its last token become longer.

For comparison only. Token healing is exact among the covers that consist of all these tokens but the last
and one covering token; it loses all other covers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyaici.cpc.cover import Certificate, Cover, dead

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from pyaici.cpc.tree import CoverTree


def sample(
    tree: CoverTree, rng: np.random.Generator, tokenize: Callable[[bytes], Sequence[int]]
) -> tuple[Cover, Certificate]:
    """Returns all tokens of the prefix but the last, then a token that begins with the last one's bytes.

    `tokenize` must return tokens whose bytes are the given ones. Raises ValueError if they differ, and
    DeadPrefixError if the model gives probability 0 to every token that can come last.
    """
    if not tree.prefix:
        return tree.cover(()), Certificate(0, log_z_lower=0.0, tv_bound=0.0, approximate=False)
    tokens = tuple(tokenize(tree.prefix))
    spelled = tree.cover(tokens).text
    if spelled != tree.prefix:
        raise ValueError(f"the prefix {tree.prefix!r} is tokenized as {spelled!r}")
    stem = tokens[:-1]
    before = tree.session.evaluations
    node = tree.evaluate(stem, len(tree.cover(stem).text))
    if node.log_covered == float("-inf"):
        raise dead(tree.prefix, node.position)
    if tree.temperature == 0:
        token = int(node.covering[node.log_covering.argmax()])
    else:
        token = node.draw_covering(rng)
    evaluations = tree.session.evaluations - before
    return tree.cover((*stem, token)), Certificate(evaluations, calls_prefix=evaluations)
