"""The client's end of the shared memory with one worker."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from aicirt.errors import ProtocolError, RuntimeTimeoutError, WorkerDiedError
from aicirt.ipc.doorbell import Doorbell
from aicirt.ipc.layout import Layout
from aicirt.ipc.messages import CLONED, MID, PRE, STARTED, Sample, decode, encode
from aicirt.ipc.peer import Peer
from aicirt.ipc.segment import Segment
from aicirt.settings import PEER_CHECK_SECONDS
from pyaici.step import MidResult, Row, RowKind, Verb

#: kind SAME of aici.h: resolved here
_SAME = 5
#: how long a wait on the critical path looks at the ring before it sleeps: waking up across
#: cores costs 30-40 us, about what the worker needs for a small batch
SPIN_SECONDS = 100e-6


@dataclass(slots=True)
class Held:
    """A row of the segment that sequences hold; `number` is -1 if it needs no space there."""

    number: int
    generation: int
    dense: bool
    row: Row
    #: a fork and its parent may both ask for it again
    holders: int = 1


class WorkerLink:
    """Segment, doorbells and rows shared with one worker process."""

    def __init__(self, index: int, generation: int, pid: int, bell: str, layout: Layout) -> None:
        """Raises WorkerDiedError if the process is gone, SpaceError if memory is short."""
        self.index = index
        self.generation = generation
        self.pid = pid
        try:
            self._peer = Peer(pid)
        except ProcessLookupError:
            raise WorkerDiedError(f"worker {index} (pid {pid}) has ended") from None
        self.segment = Segment.create(layout)
        self.bell = Doorbell.create()
        self._worker_bell = Doorbell.open(bell)
        self._messages: list[list[Any]] = []
        self._held: dict[int, Held] = {}
        self._released: tuple[list[int], list[int]] = ([], [])
        memory, words = self.segment.memory, layout.mask_words
        rows = np.frombuffer(memory, np.uint32, layout.num_rows * layout.row_bytes // 4, layout.rows)
        self._rows = rows.reshape(layout.num_rows, layout.row_bytes // 4)
        self._masks = self._rows[:, :words]
        dense = np.frombuffer(memory, np.float32, layout.num_dense * layout.dense_bytes // 4, layout.dense)
        self._dense = dense.reshape(layout.num_dense, layout.dense_bytes // 4)[:, : layout.vocab_size]
        self.dead = False

    def attached(self) -> None:
        """The worker has the segment and the bell: their names are not needed any more."""
        self.segment.unlink()
        self.bell.unlink()

    def send(self, message: NamedTuple, timeout: float = 5.0) -> None:
        """Raises WorkerDiedError, or RuntimeTimeoutError if the worker does not read."""
        ring = self.segment.to_worker
        for payload, more in ring.frames(encode(message)):
            deadline = 0.0
            while not ring.try_write(payload, more):
                self._worker_bell.ring()
                deadline = deadline or time.monotonic() + timeout
                self._check_alive()
                if time.monotonic() > deadline:
                    raise RuntimeTimeoutError(
                        f"worker {self.index} (pid {self.pid}) does not read its messages"
                    )
                time.sleep(0.001)
        self._worker_bell.ring()

    def expect(self, kind: int, number: int, timeout: float, spin: bool = False) -> list[Any]:
        """The message of this kind whose second field is `number`; others are kept for later.

        Raises WorkerDiedError within 100 ms of the worker's death, RuntimeTimeoutError.
        """
        for at, message in enumerate(self._messages):
            if message[0] == kind and message[1] == number:
                return self._messages.pop(at)
        ring, bell = self.segment.to_client, self.bell
        start = time.monotonic()
        spin_until = start + SPIN_SECONDS if spin else 0.0
        while True:
            data = ring.read()
            if data is None:
                now = time.monotonic()
                if now < spin_until:
                    continue
                if not bell.wait(PEER_CHECK_SECONDS):
                    self._check_alive()
                    if now - start > timeout:
                        raise RuntimeTimeoutError(
                            f"worker {self.index} (pid {self.pid}) did not answer within {timeout:.0f} s"
                        )
                continue
            message = decode(data)
            if message[0] == kind and message[1] == number:
                return message
            if message[0] in (STARTED, PRE, MID, CLONED):
                self._messages.append(message)
            else:
                raise ProtocolError(f"worker {self.index} sent a message of unknown kind {message[0]!r}")

    def discard(self, kind: int, number: int) -> None:
        """Forgets an answer that nobody will ask for."""
        self._messages = [m for m in self._messages if not (m[0] == kind and m[1] == number)]

    # -- rows ---------------------------------------------------------------------------------

    def take_released(self) -> tuple[list[int], list[int]]:
        """(mask rows, dense rows) to give back with the next message, each [row, generation, ...]."""
        released, self._released = self._released, ([], [])
        return released

    def sample(self, fields: list[Any]) -> MidResult:
        """Turns a Sample message into a result with views of the row."""
        sample = Sample(*fields)
        held = self._held.get(sample.seq)
        if sample.kind == _SAME:
            if held is None:
                raise ProtocolError(f"sequence {sample.seq} holds no row that could stay the same")
            row = held.row
            if (row.temperature, row.top_k) != (sample.temperature, sample.top_k):
                row = replace(row, temperature=sample.temperature, top_k=sample.top_k)
            return MidResult(Verb.SAMPLE, row)
        if held is not None:
            self._release(held)
        row, number = self._row(sample)
        self._held[sample.seq] = Held(number, sample.generation, sample.kind == RowKind.DENSE, row)
        return MidResult(Verb.SAMPLE, row)

    def inherit(self, parent: int, child: int) -> None:
        """A child may ask for the row of its parent again: both hold it."""
        held = self._held.get(parent)
        if held is not None:
            held.holders += 1
            self._held[child] = held

    def forget(self, seq: int) -> None:
        """The sequence has ended: its row goes back."""
        held = self._held.pop(seq, None)
        if held is not None:
            self._release(held)

    def _release(self, held: Held) -> None:
        held.holders -= 1
        if held.holders == 0 and held.number >= 0:
            self._released[held.dense].extend((held.number, held.generation))

    def _row(self, sample: Sample) -> tuple[Row, int]:
        kind, number = sample.kind, sample.row
        if not RowKind.ALL <= kind <= RowKind.DENSE:
            raise ProtocolError(f"worker {self.index} sent a row of unknown kind {kind}")
        row = Row(RowKind(kind), temperature=sample.temperature, top_k=sample.top_k)
        if kind == RowKind.BITMASK:
            row.bits = self._masks[number]
        elif kind == RowKind.SPARSE:
            pairs = self._rows[number, : 2 * sample.entries].reshape(sample.entries, 2)
            row.default = sample.default
            row.tokens = pairs[:, 0]
            row.bias = pairs[:, 1].view(np.float32)
        elif kind == RowKind.DENSE:
            row.bias = self._dense[number]
        else:
            row.token = number if kind == RowKind.TOKEN else -1
            number = -1
        return row, number

    def _check_alive(self) -> None:
        if self.dead or not self._peer.alive():
            self.dead = True
            raise WorkerDiedError(f"worker {self.index} (pid {self.pid}) has ended; its sequences are lost")

    def close(self) -> None:
        """Lets go of everything, and removes names that may still be linked."""
        self._held.clear()
        del self._rows, self._masks, self._dense
        self.segment.close()
        self.bell.close()
        self._worker_bell.close()
        self._peer.close()
