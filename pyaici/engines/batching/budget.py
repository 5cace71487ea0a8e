"""The budget of the key-value cache: the room that requests claim before they start."""

from __future__ import annotations

from dataclasses import dataclass

from aicirt.contract.errors import counted


@dataclass(eq=False, slots=True)
class Claim:
    """The most room that a request may need: sequences at the same time, and tokens of each."""

    sequences: int
    tokens: int


class Budget:
    """The tokens of the cache that requests have claimed."""

    def __init__(self, limit: int | None, *, uniform: bool, most_sequences: int | None = None) -> None:
        """`limit`: most tokens of the cache; None = any number.

        `uniform`: every slot of the cache is as long as the longest, so all claims together cost the number
        of their sequences times the tokens of the largest claim. Otherwise each claim costs what it asks for.
        `most_sequences`: most sequences in the cache; None = any number.
        """
        self.limit = limit
        self.most_sequences = most_sequences
        self._uniform = uniform
        self._claims: list[Claim] = []

    def check(self, sequences: int, tokens: int) -> None:
        """Raises ValueError if the cache can never have room for this many sequences and tokens."""
        if self.most_sequences is not None and sequences > self.most_sequences:
            raise ValueError(
                f"the request needs {sequences} sequences at the same time; the engine has at most "
                f"{self.most_sequences}: request fewer (a search needs two for each beam)"
            )
        if self.limit is not None and sequences * tokens > self.limit:
            raise ValueError(
                f"{counted(sequences, 'sequence')} of up to {tokens} tokens cannot fit into the key-value "
                f"cache, which is limited to {self.limit} tokens: request fewer sequences (a search needs "
                "two for each beam), or lower max_tokens"
            )

    def claim(self, sequences: int, tokens: int) -> Claim | None:
        """Claims room for sequences of up to `tokens` tokens each. Returns None if there is no room now."""
        if not self._fits(sequences, tokens):
            return None
        claim = Claim(sequences, tokens)
        self._claims.append(claim)
        return claim

    def widen(self, claim: Claim, sequences: int) -> bool:
        """Extends a claim to this many sequences. Returns whether there was room for them."""
        more = sequences - claim.sequences
        if more > 0:
            if not self._fits(more, claim.tokens):
                return False
            claim.sequences = sequences
        return True

    def release(self, claim: Claim) -> None:
        """Releases a claim whose sequences have ended."""
        self._claims.remove(claim)

    @property
    def claimed(self) -> int:
        """The tokens of the cache that all claims together may need; may be read from any thread."""
        claims = list(self._claims)
        if self._uniform:
            return sum(c.sequences for c in claims) * max((c.tokens for c in claims), default=0)
        return sum(c.sequences * c.tokens for c in claims)

    def _fits(self, sequences: int, tokens: int) -> bool:
        number = sequences + sum(claim.sequences for claim in self._claims)
        if self.most_sequences is not None and number > self.most_sequences:
            return False
        if self.limit is None:
            return True
        if self._uniform:
            return number * max([tokens, *(claim.tokens for claim in self._claims)]) <= self.limit
        return sequences * tokens + sum(c.sequences * c.tokens for c in self._claims) <= self.limit
