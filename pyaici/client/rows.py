"""The rows of one segment on the client's side: which sequence holds which row."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aicirt.contract.abi import ROW_SAME, RowKind, Verb
from aicirt.contract.errors import ProtocolError
from aicirt.contract.messages import RESULT_VERB, SAMPLE_KIND
from aicirt.ipc.segment import Segment
from pyaici.client.answers import check_sampling
from pyaici.client.step import MidResult, Row

# looking up an Enum member costs as much as everything else that a usual row needs
_BITMASK, _SAMPLE = RowKind.BITMASK, Verb.SAMPLE


@dataclass(slots=True)
class Held:
    """A row that sequences hold; `number` is -1 if the row takes no space in the segment."""

    number: int
    generation: int
    dense: bool
    row: Row
    #: number of sequences that may ask for it again: a fork and its parent share it
    holders: int = 1


class SegmentRows:
    """Mask rows and dense rows that one worker gives out."""

    def __init__(self, segment: Segment) -> None:
        #: sequences whose last row was declined: "the same row" of theirs is unknown here
        self._declined: set[int] = set()
        self._held: dict[int, Held] = {}
        self._released: tuple[list[int], list[int]] = ([], [])
        memory, layout = segment.memory, segment.layout
        rows = np.frombuffer(memory, np.uint32, layout.num_rows * layout.row_bytes // 4, layout.rows)
        self._rows = rows.reshape(layout.num_rows, layout.row_bytes // 4)
        #: a view of each mask: making one takes longer than everything else that a usual row needs
        self._masks = list(self._rows[:, : layout.mask_words])
        dense = np.frombuffer(memory, np.float32, layout.num_dense * layout.dense_bytes // 4, layout.dense)
        self._dense = list(dense.reshape(layout.num_dense, layout.dense_bytes // 4)[:, : layout.vocab_size])
        self._vocab_size = layout.vocab_size
        self._row_words = layout.row_bytes // 4

    def put_back(self, released: tuple[list[int], list[int]]) -> None:
        """Puts back the result of `take_released` if it could not be sent."""
        self._released[0].extend(released[0])
        self._released[1].extend(released[1])

    def take_released(self) -> tuple[list[int], list[int]]:
        """Returns (mask rows, dense rows) to release with the next message, each [row, generation, ...]."""
        released, self._released = self._released, ([], [])
        return released

    def sample(self, fields: list[Any]) -> MidResult:
        """Turns a Sample message into a result with views of the row.

        Raises ProtocolError, or one of `NONSENSE`, if the message is invalid.
        """
        seq, _, kind, number, generation, entries, default, temperature, top_k = fields
        if temperature is not None or top_k != 0:
            check_sampling(temperature, top_k)
        if type(generation) is not int:
            raise ProtocolError("a row with an impossible generation")
        held = self._held.get(seq)
        if kind == ROW_SAME:
            if held is None or seq in self._declined:
                problem = f"sequence {seq} asks for the row of a step whose answer was never fetched"
                return MidResult(Verb.ERROR, error=ProtocolError(problem))
            row = held.row
            if row.temperature != temperature or row.top_k != top_k:
                row = replace(row, temperature=temperature, top_k=top_k)
            return MidResult(_SAMPLE, row)
        if kind == _BITMASK:
            if number < 0:
                raise ProtocolError(f"mask row {number}")
            row = Row(_BITMASK, self._masks[number], temperature=temperature, top_k=top_k)
        else:
            row = self._other_row(kind, number, entries, default)
            row.temperature, row.top_k = temperature, top_k
            if kind not in (RowKind.SPARSE, RowKind.DENSE):
                number = -1
        if held is not None:
            self._release(held)
        if self._declined:
            self._declined.discard(seq)
        self._held[seq] = Held(number, generation, kind == RowKind.DENSE, row)
        return MidResult(_SAMPLE, row)

    def decline(self, entry: list[Any]) -> None:
        """Releases the row of a discarded result unread. Raises ProtocolError if the row is invalid."""
        if entry[RESULT_VERB] != _SAMPLE or entry[SAMPLE_KIND] == ROW_SAME:
            return
        seq, _, kind, number, generation = entry[:5]
        if type(number) is not int or type(generation) is not int:
            raise ProtocolError("a row with an impossible number")
        if kind in (RowKind.BITMASK, RowKind.SPARSE, RowKind.DENSE):
            self._released[kind == RowKind.DENSE].extend((number, generation))
        if seq in self._held:  # without a held row a sequence cannot ask for the same again
            self._declined.add(seq)

    def inherit(self, parent: int, child: int) -> None:
        """Has a child hold its parent's row too: both may ask for it again."""
        held = self._held.get(parent)
        if held is not None:
            held.holders += 1
            self._held[child] = held

    def forget(self, seq: int) -> None:
        """Releases the row of a sequence that has ended."""
        self._declined.discard(seq)
        held = self._held.pop(seq, None)
        if held is not None:
            self._release(held)

    def close(self) -> None:
        """Drops references to the segment; rows that the engine still holds keep it mapped. Idempotent."""
        self._held.clear()
        self._rows = np.empty((0, 0), np.uint32)
        self._masks.clear()
        self._dense.clear()

    def _release(self, held: Held) -> None:
        held.holders -= 1
        if held.holders == 0 and held.number >= 0:
            self._released[held.dense].extend((held.number, held.generation))

    def _other_row(self, kind: int, number: int, entries: int, default: float) -> Row:
        if kind == RowKind.ALL:
            return Row(RowKind.ALL)
        if type(number) is not int or number < 0:
            raise ProtocolError("a row with an impossible number")
        if kind == RowKind.TOKEN:
            if number >= self._vocab_size:
                raise ProtocolError(f"a row with token {number}, which is not below {self._vocab_size}")
            return Row(RowKind.TOKEN, token=number)
        if kind == RowKind.SPARSE:
            return self._sparse_row(number, entries, default)
        if kind == RowKind.DENSE:
            return Row(RowKind.DENSE, bias=self._dense[number])
        raise ProtocolError("a row of unknown kind")

    def _sparse_row(self, number: int, entries: int, default: float) -> Row:
        """Returns a checked copy: the worker could change the segment after the check."""
        if type(entries) is not int or not 0 <= 2 * entries <= self._row_words:
            raise ProtocolError("a sparse row with an impossible number of entries")
        if type(default) is not float or default not in (0.0, -math.inf):
            raise ProtocolError("a sparse row with an impossible default")
        pairs = self._rows[number, : 2 * entries].copy().reshape(entries, 2)
        tokens, bias = pairs[:, 0], pairs[:, 1].view(np.float32)
        if entries and not (int(tokens.max()) < self._vocab_size and (bias < math.inf).all()):
            raise ProtocolError("a sparse row with an impossible token or bias")
        return Row(RowKind.SPARSE, default=default, tokens=tokens, bias=bias)
