"""What the controllers of one request have printed: the newest part, bounded for all its forks together."""

from __future__ import annotations

import sys
from collections import Counter, deque

#: Bytes of memory for a request. A controller may print 64 KiB in each of thousands of steps; who needs more
#: than the last MiB reads it as it comes, from the events of a stream.
MAX_LOG_BYTES = 1 << 20
#: of a piece, besides its text; measured, and rounded up
_PIECE_BYTES = 80


class KeptLog:
    """A log that several sequences write to. The oldest pieces go first, whoever has printed them."""

    def __init__(self, max_bytes: int = MAX_LOG_BYTES) -> None:
        self._max_bytes = max_bytes
        self._pieces: deque[tuple[int, str]] = deque()
        self._bytes = 0
        #: characters that have gone, by sequence
        self._dropped: Counter[int] = Counter()

    def append(self, seq: int, text: str) -> None:
        """Adds what sequence `seq` has printed."""
        self._pieces.append((seq, text))
        self._bytes += _size(text)
        while self._bytes > self._max_bytes and self._pieces:
            oldest, gone = self._pieces.popleft()
            self._bytes -= _size(gone)
            self._dropped[oldest] += len(gone)

    def text(self, seq: int) -> str:
        """Returns what sequence `seq` has printed; a first line tells how much of it was dropped."""
        kept = "".join(text for number, text in self._pieces if number == seq)
        dropped = self._dropped[seq]
        return f"... {dropped} characters of earlier output were dropped\n{kept}" if dropped else kept


def _size(text: str) -> int:
    return sys.getsizeof(text) + _PIECE_BYTES
