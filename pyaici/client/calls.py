"""The callbacks before the model runs that the next step of each sequence calls."""

from __future__ import annotations

from collections.abc import Iterable

from aicirt.contract.abi import MID_SKIP_POST


class Calls:
    """Sequences in one worker whose controllers have pre_process or post_process.

    Callbacks are given as the flags of a result that skip them.
    """

    __slots__ = ("_exported", "critical", "measured", "spared")

    def __init__(self) -> None:
        self._exported: dict[int, int] = {}
        #: the sequences whose next step calls pre_process or post_process
        self.critical: set[int] = set()
        #: the sequences whose post_process gets log-probabilities in their next step
        self.measured: set[int] = set()
        #: the sequences whose next step skips a callback that they export
        self.spared: set[int] = set()

    def begin(self, seq: int, exported: int) -> None:
        """Adds a sequence whose controller exports these callbacks."""
        if exported:
            self._exported[seq] = exported
            self._as_exported(seq)

    def inherit(self, parent: int, child: int) -> None:
        """Gives a child the parent's callbacks, and those of its next step."""
        if parent in self._exported:
            self._exported[child] = self._exported[parent]
            for some in self._sets():
                if parent in some:
                    some.add(child)

    def spare(self, seq: int, flags: int) -> None:
        """Makes the next step of a sequence skip these callbacks."""
        exported = self._exported.get(seq, 0)
        if not exported & flags:
            return
        self.spared.add(seq)
        if not exported & ~flags:
            self.critical.discard(seq)
        if flags & MID_SKIP_POST:
            self.measured.discard(seq)

    def restore(self, seqs: Iterable[int]) -> None:
        """Ends the effect of `spare` when a step of these sequences begins."""
        for seq in self.spared.intersection(seqs):
            self.spared.discard(seq)
            self._as_exported(seq)

    def forget(self, seq: int) -> None:
        """Drops a sequence that has ended."""
        if self._exported.pop(seq, None) is not None:
            for some in self._sets():
                some.discard(seq)

    def _as_exported(self, seq: int) -> None:
        self.critical.add(seq)
        if self._exported[seq] & MID_SKIP_POST:
            self.measured.add(seq)

    def _sets(self) -> tuple[set[int], set[int], set[int]]:
        return self.critical, self.measured, self.spared
