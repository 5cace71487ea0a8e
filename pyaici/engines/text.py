"""The readable text of a sequence of tokens that grows and shrinks."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable

_decoder_class = codecs.getincrementaldecoder("utf-8")


class TextTrail:
    """Decodes token bytes as UTF-8 step by step, and can go back.

    A character whose bytes are not complete yet waits; bytes that can belong to no character become
    U+FFFD. Memory: two small entries per token.
    """

    __slots__ = ("_ends", "_pending", "_token_bytes", "_visible")

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        self._token_bytes = token_bytes
        self._visible = ""
        #: for each token the length of the visible text after it, and the bytes that wait
        self._ends: list[int] = []
        self._pending: list[bytes] = []

    def append(self, tokens: Iterable[int]) -> str:
        """The text that became readable."""
        before = len(self._visible)
        for token in tokens:
            waiting = self._pending[-1] if self._pending else b""
            text, waiting = _decode(waiting + self._token_bytes(token))
            self._visible += text
            self._ends.append(len(self._visible))
            self._pending.append(waiting)
        return self._visible[before:]

    def backtrack(self, count: int) -> str:
        """Takes back the last `count` tokens; the text that went with them."""
        if count == 0:
            return ""
        del self._ends[-count:], self._pending[-count:]
        end = self._ends[-1] if self._ends else 0
        removed, self._visible = self._visible[end:], self._visible[:end]
        return removed

    def text(self, first: int = 0) -> str:
        """The text of the tokens from number `first` on; what is incomplete at the end is U+FFFD."""
        start = self._ends[first - 1] if first else 0
        waiting = self._pending[-1] if len(self._pending) > first else b""
        return self._visible[start:] + waiting.decode("utf-8", "replace")

    def copy(self) -> TextTrail:
        """An independent one in the same state."""
        twin = TextTrail(self._token_bytes)
        twin._visible = self._visible
        twin._ends = self._ends.copy()
        twin._pending = self._pending.copy()
        return twin


def _decode(data: bytes) -> tuple[str, bytes]:
    """(text, bytes of an incomplete last character)"""
    decoder = _decoder_class("replace")
    text = decoder.decode(data)
    return text, decoder.getstate()[0]
