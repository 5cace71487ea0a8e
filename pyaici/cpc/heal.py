"""Token healing: the prefix as the tokenizer splits it, its last token free to become longer.

For comparison: it is exact for covers that begin with these very tokens and end with one more; all
others are lost.
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
    """One cover: all tokens of the prefix but the last, then one that begins with the last one's bytes.

    `tokenize` gives tokens whose bytes are the given ones. Raises ValueError if they are not,
    DeadPrefixError if the model gives all such tokens the probability 0.
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
