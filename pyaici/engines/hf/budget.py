"""Which requests have room in the cache: each for all that it may come to need, so that none runs short."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class Claim:
    """What one request may come to need: so many sequences at the same time, of so many tokens each."""

    sequences: int
    tokens: int


class Budget:
    """Tokens of the cache that are spoken for.

    The cache has room for each sequence as for the longest (see `SlotCache`), so that claims together cost
    the number of their sequences times the tokens of the largest.
    """

    def __init__(self, limit: int | None) -> None:
        """`limit`: most tokens of the cache; None = any number."""
        self.limit = limit
        self._claims: list[Claim] = []

    def check(self, sequences: int, tokens: int) -> None:
        """Raises ValueError for what there can never be room for."""
        if self.limit is not None and sequences * tokens > self.limit:
            raise ValueError(
                f"the key-value cache may have {self.limit} tokens: {sequences} sequences of up to {tokens} "
                "do not fit; ask for fewer (a search needs two for each beam), or lower max_tokens"
            )

    def claim(self, sequences: int, tokens: int) -> Claim | None:
        """Room for sequences of so many tokens; None if there is not so much now."""
        if not self._fits(sequences, tokens):
            return None
        claim = Claim(sequences, tokens)
        self._claims.append(claim)
        return claim

    def widen(self, claim: Claim, sequences: int) -> bool:
        """Whether so many sequences of a claim have room; it then stands for them."""
        more = sequences - claim.sequences
        if more > 0:
            if not self._fits(more, claim.tokens):
                return False
            claim.sequences = sequences
        return True

    def release(self, claim: Claim) -> None:
        """Its sequences have ended."""
        self._claims.remove(claim)

    def _fits(self, sequences: int, tokens: int) -> bool:
        if self.limit is None:
            return True
        number = sequences + sum(claim.sequences for claim in self._claims)
        longest = max([tokens, *(claim.tokens for claim in self._claims)])
        return number * longest <= self.limit
