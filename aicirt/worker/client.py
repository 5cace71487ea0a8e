"""A client of the worker: shared memory, outgoing messages, rows and sequences."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, NamedTuple

from aicirt.contract.errors import AiciError, ProtocolError
from aicirt.contract.messages import LINK_NUMBERS, NOTICE, WOKEN, Notice, Woken, decode, encode
from aicirt.ipc.ring import Ring, current_cpu
from aicirt.ipc.segment import Layout, Segment
from aicirt.worker.results import RowPool, RowWriter

if TYPE_CHECKING:
    from aicirt.system.files import Descriptor
    from aicirt.worker.hostapi import LoadedVocabulary
    from aicirt.worker.owners import Written
    from aicirt.worker.sequence import Sequence, Step
    from aicirt.worker.templates import Profiles


_CHILD_BIT = 1 << 31


class Client:
    """Segment, rows and sequences of one client."""

    def __init__(
        self,
        number: int,
        link: int,
        segment: int,
        layout: Layout,
        vocabulary: LoadedVocabulary,
        max_outbox: int,
        owner: str = "",
        waker: Descriptor | None = None,
    ) -> None:
        """`segment`: descriptor of its file, which the caller keeps. `owner`: of the connection, for the log.
        `waker`: a socket, by which it wakes a client that sleeps while all its sequences wait.

        Raises ProtocolError if the segment does not match the layout.
        """
        if not 0 <= link < LINK_NUMBERS:
            raise ProtocolError(f"link {link} is not between 0 and {LINK_NUMBERS - 1}")
        if layout.vocab_size != vocabulary.vocab_size:
            raise ProtocolError(
                f"the segment is for {layout.vocab_size} tokens, but the vocabulary has "
                f"{vocabulary.vocab_size}"
            )
        self.number = number
        self.owner = owner
        self._waker = waker
        self.vocabulary = vocabulary
        self._segment = Segment.of_file(segment, layout)
        self._bell = self._segment.bell
        self.rows = RowPool(self._segment.memory, layout, dense=False)
        self.dense = RowPool(self._segment.memory, layout, dense=True)
        self.writer = RowWriter(layout, self.rows, self.dense)
        self.sequences: dict[int, Sequence] = {}
        #: requests' variables with writes that have not been reported to the client yet
        self.written: Written = {}
        #: sequences that continued in the last step, and will probably be in the next one
        self.stepped: list[Sequence] = []
        #: sequences that wait no longer, of which the client has not been told
        self.woken: list[int] = []
        #: sequences that were deferred in the last step; they come first, in this order, in the next one
        self.deferred: list[int] = []
        #: steps without a second answer yet
        self.steps: list[Step] = []
        #: error after which the client is unusable; the worker then drops it
        self.broken: AiciError | None = None
        #: counts of late steps, of forks, and of sequences that ended with an error, by its code
        self.counters: Counter[str] = Counter()
        self._outbox: deque[tuple[bytes, bool]] = deque()
        self._max_outbox = max_outbox
        self._children = itertools.count(1)
        self._child_prefix = _CHILD_BIT | link << 24

    @property
    def from_client(self) -> Ring:
        """The ring that the client writes to."""
        return self._segment.to_worker

    def publish_cpu(self) -> None:
        """Publishes this process's CPU, by which the client decides whether to spin or to sleep."""
        self._segment.to_client.publish_cpu(current_cpu())

    def receive(self) -> list[Any] | None:
        """Returns the next message, or None if there is none. Raises ProtocolError if it is invalid."""
        data = self._segment.to_worker.read()
        return None if data is None else decode(data)

    def send(self, message: NamedTuple) -> None:
        """Sends a message, or queues it if the ring is full. Never raises; sets `broken` instead."""
        if self.broken is not None:
            return
        ring = self._segment.to_client
        frames = ring.frames(encode(message))
        try:
            if not self._outbox:
                while frames and ring.try_write(*frames[0]):
                    del frames[0]
        except ProtocolError as error:
            self.broken = error
            return
        if frames:
            self._outbox.extend(frames)
            if len(self._outbox) > self._max_outbox:
                self.broken = ProtocolError(
                    f"the client does not read its messages: {len(self._outbox)} are waiting"
                )
        self._bell.ring()

    def send_error(self) -> None:
        """Sends the error to a client that is about to be dropped, if its ring has room."""
        assert self.broken is not None
        with contextlib.suppress(ProtocolError):
            self._segment.to_client.try_write(encode(Notice(NOTICE, 0, self.broken.to_wire())))
            self._bell.ring()

    def flush(self) -> bool:
        """Sends queued messages while there is room; returns whether the queue is empty."""
        ring, sent = self._segment.to_client, False
        while self._outbox and ring.try_write(*self._outbox[0]):
            self._outbox.popleft()
            sent = True
        if sent:
            self._bell.ring()
        return not self._outbox

    def report_woken(self) -> None:
        """Tells the client which sequences wait no longer, and wakes it if it sleeps until then."""
        self.send(Woken(WOKEN, len(self.woken), self.woken))
        self.woken.clear()
        if self._waker is not None:
            with contextlib.suppress(OSError):  # it is full of earlier ones, or the client has gone
                os.write(self._waker.fd, b"\0")

    def new_child(self) -> int:
        """Returns a sequence number for a fork; the client never assigns these numbers."""
        while (number := self._child_prefix | next(self._children) & 0xFFFFFF) in self.sequences:
            pass
        return number

    def drop(self, seq: Sequence, profiles: Profiles | None = None) -> None:
        """Removes and frees a sequence. Idempotent. `profiles` may take over the guest if it ended well."""
        if self.sequences.pop(seq.id, None) is not None:
            kept = profiles is not None and profiles.offer(seq)
            seq.leave()
            if not kept:
                seq.instance.close()

    def close(self) -> None:
        """Ends all sequences of this client and frees its shared memory."""
        for seq in list(self.sequences.values()):
            self.drop(seq)
        self.rows.release()
        self.dense.release()
        self._segment.close()
