"""Random patterns with look-arounds, in a syntax that the standard library and we have in common."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

_COUNTS = ["*", "+", "?", "{2}", "{1,2}", "{0,3}"]


@dataclass
class Looks:
    """A source of patterns of some characters, classes and anchors."""

    rng: random.Random
    characters: Sequence[str]
    anchors: Sequence[str]

    def alternatives(self, depth: int) -> str:
        return "|".join(self._sequence(depth) for _ in range(self.rng.choice([1, 1, 2])))

    def _sequence(self, depth: int) -> str:
        return "".join(self._part(depth) for _ in range(self.rng.randint(0, 4)))

    def _part(self, depth: int) -> str:
        rng = self.rng
        kind = rng.random()
        if depth > 0 and kind < 0.3:
            return self._look(depth)
        if depth > 0 and kind < 0.5:
            return f"(?:{self.alternatives(depth - 1)}){rng.choice(['', *_COUNTS])}"
        if kind < 0.6:
            return rng.choice(self.anchors)
        return rng.choice(self.characters) + rng.choice(["", "", *_COUNTS])

    def _look(self, depth: int) -> str:
        rng = self.rng
        if rng.random() < 0.5:
            return f"(?{rng.choice('=!')}{self.alternatives(depth - 1)})"
        # the standard library wants a fixed number of characters
        return f"(?<{rng.choice('=!')}{self._fixed(rng.randrange(3), depth - 1)})"

    def _fixed(self, width: int, depth: int) -> str:
        """A pattern for `width` characters."""
        rng = self.rng
        if depth > 0 and rng.random() < 0.3:
            return f"(?:{self._fixed(width, 0)}|{self._fixed(width, depth - 1)})"
        parts = [rng.choice(self.characters) for _ in range(width)]
        if rng.random() < 0.4:
            parts.insert(rng.randint(0, width), rng.choice(self.anchors))
        if depth > 0:
            parts.insert(rng.randint(0, len(parts)), self._look(depth))
        return "".join(parts)
