"""The client's end of the shared memory with each worker."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterable, Iterator, ValuesView
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import posix_ipc

from aicirt.contract.abi import MID_SKIP_POST, Verb
from aicirt.contract.errors import (
    AiciError,
    ProtocolError,
    RuntimeFailure,
    RuntimeTimeoutError,
    WorkerDiedError,
    error_from_wire,
)
from aicirt.contract.messages import (
    CLONE,
    CLONED,
    FREE,
    LINK_NUMBERS,
    MID,
    MID_RESULTS,
    MID_VARIABLES,
    NOTICE,
    NOTICE_ERROR,
    OPERATION,
    PRE,
    PRE_VERDICTS,
    RESULT_SEQ,
    STARTED,
    SUBJECT,
    Clone,
    Free,
    Start,
    encode,
)
from aicirt.ipc.cpu import ANSWER_SECONDS, SAMPLING_SECONDS, current_cpu, spin
from aicirt.ipc.doorbell import Doorbell
from aicirt.ipc.frames import Peer
from aicirt.ipc.segment import Layout, Segment
from aicirt.settings import PEER_CHECK_SECONDS
from aicirt.system.shortage import describe
from pyaici.client.answers import NONSENSE, check_children, nonsense, read_message, read_variables
from pyaici.client.rows import SegmentRows

if TYPE_CHECKING:
    from pyaici.client.control import Control
    from pyaici.client.sequences import Sequences


#: how long init_prompt may take as the client sees it: its CPU limit is 1 s, many may queue
START_TIMEOUT = 60.0
#: answers that are kept for those who may still ask: more steps than this are never under way at once
MAX_UNCLAIMED = 64
#: messages that are read at a time while another one is waited for: a worker sends two in a step
MAX_UNASKED = 1 << 12


@dataclass(frozen=True, slots=True)
class WorkerAddress:
    """A worker as the supervisor describes it."""

    worker: int
    generation: int
    pid: int
    bell: str

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> WorkerAddress:
        """Reads the answer to `destination`, or a part of that to `instantiate`."""
        return cls(wire["worker"], wire["generation"], wire["pid"], wire["bell"])


@dataclass(frozen=True, slots=True)
class Placement:
    """The worker that a sequence will start in, which has the snapshot that it starts from."""

    address: WorkerAddress
    #: number of the snapshot in that worker
    template: int
    has_pre: bool
    has_post: bool
    repeatable: bool

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> Placement:
        """Reads the answer to `instantiate`."""
        kind = wire["has_pre"], wire["has_post"], wire.get("repeatable", False)
        return cls(WorkerAddress.from_wire(wire), wire["template"], *kind)

    def to_wire(self) -> list[int]:
        """Returns what tells the supervisor that the snapshot is gone."""
        return [self.address.worker, self.address.generation, self.template]


class WorkerLink:
    """Segment, doorbells and rows shared with one worker process."""

    def __init__(self, number: int, index: int, generation: int, pid: int, bell: str, layout: Layout) -> None:
        """Raises WorkerDiedError if the process is gone, SpaceError if memory is short."""
        #: no other live link of this client has it
        self.number = number
        self.index = index
        self.generation = generation
        self.pid = pid
        try:
            self._peer = Peer(pid)
        except ProcessLookupError:
            raise WorkerDiedError(f"worker {index} (pid {pid}) has ended") from None
        except OSError as error:
            raise RuntimeFailure(
                f"worker {index} (pid {pid}) cannot be watched: {describe(error)}"
            ) from error
        with contextlib.ExitStack() as undo:
            undo.callback(self._peer.close)
            self.segment = Segment.create(layout)
            undo.callback(self.segment.close)
            self.bell = Doorbell.create()
            undo.callback(self.bell.close)
            try:
                self._worker_bell = Doorbell.open(bell)
            except posix_ipc.ExistentialError:
                raise WorkerDiedError(f"worker {index} (pid {pid}) has ended") from None
            undo.pop_all()
        self._woken = 0.0
        self._messages: list[list[Any]] = []
        #: sequences here whose controllers have pre_process or post_process, as the flags that skip them
        self.exports: dict[int, int] = {}
        #: those of them that have a part on the critical path of their next step
        self.critical: set[int] = set()
        #: those that post_process will tell log-probabilities in their next step
        self.measured: set[int] = set()
        #: those that will not be called as they export it in their next step
        self.spared: set[int] = set()
        #: number of the last step that was posted here
        self.last_step = 0
        #: steps whose answers nobody wants
        self._abandoned: set[int] = set()
        #: variables that came with these, by a sequence of the request
        self.unheard: dict[int, dict[bytes, bytes]] = {}
        self.rows = SegmentRows(self.segment)
        #: why nothing is read any more of what the worker sends
        self._refusal = ""
        self.dead = False

    @property
    def gone(self) -> bool:
        """The worker has ended, or has dropped this client."""
        return self.dead or not self._peer.alive()

    def attached(self) -> None:
        """The worker has the segment and the bell: their names are not needed any more."""
        self.segment.unlink()
        self.bell.unlink()

    def wake(self, message: NamedTuple | None = None) -> None:
        """Wakes the worker because a step will be sent soon, and keeps it off this thread's processor.

        `message` goes along; raises as `send` with one.
        """
        self._woken = time.monotonic()
        self.segment.to_worker.tell_cpu(current_cpu())
        if message is None:
            self._worker_bell.ring()
        else:
            self.send(message)

    @property
    def asleep(self) -> bool:
        """The worker has waited in vain for a step since it was woken."""
        return time.monotonic() - self._woken > SAMPLING_SECONDS

    def send(self, message: NamedTuple, timeout: float = 5.0) -> None:
        """Raises WorkerDiedError, or RuntimeTimeoutError if the worker does not read."""
        ring, data = self.segment.to_worker, encode(message)
        if len(data) > ring.max_frame or not ring.try_write(data):
            self._send_in_frames(data, timeout)
        self._worker_bell.ring()

    def _send_in_frames(self, data: bytes, timeout: float) -> None:
        """Sends what is too long for one frame, or finds the ring full."""
        ring = self.segment.to_worker
        for payload, more in ring.frames(data):
            deadline = 0.0
            while not ring.try_write(payload, more):
                self._worker_bell.ring()
                deadline = deadline or time.monotonic() + timeout
                self._check_alive()
                if time.monotonic() > deadline:
                    self.dead = True  # half a message may be in the ring
                    raise RuntimeTimeoutError(
                        f"worker {self.index} (pid {self.pid}) does not read its messages"
                    )
                time.sleep(0.001)

    def expect(self, kind: int, number: int, timeout: float, *, look: float = 0.0) -> list[Any]:
        """The message of this kind whose second field is `number`; others are kept for later.

        `look`: for so many seconds it is worth looking for it rather than going to sleep.
        Raises WorkerDiedError within 100 ms of the worker's death, RuntimeTimeoutError.
        """
        ring, start = self.segment.to_client, 0.0
        while (message := self.take(kind, number)) is None:
            if start == 0.0:
                start = time.monotonic()
                # a worker on this processor works only while we sleep
                if look and ring.writer_cpu != current_cpu() and spin((ring,), look):
                    continue
                # of several workers that have died each would cost a wait
                self._check_alive()
            if ring.in_pieces:
                self._worker_bell.ring()  # there is room now for the rest of a long message
            if not self.bell.wait(PEER_CHECK_SECONDS):
                self._check_alive()
            if time.monotonic() - start > timeout:
                raise RuntimeTimeoutError(
                    f"worker {self.index} (pid {self.pid}) did not answer within {timeout:.0f} s"
                )
        return message

    def take(self, kind: int, number: int) -> list[Any] | None:
        """The same if it is there already.

        Raises what the worker dropped this client for, and ProtocolError, now and ever after, if it has sent
        nonsense.
        """
        for at, message in enumerate(self._messages):
            if message[OPERATION] == kind and message[SUBJECT] == number:
                return self._messages.pop(at)
        if self._refusal:
            raise ProtocolError(self._refusal)
        try:
            return self._read_until(kind, number)
        except (ProtocolError, *NONSENSE) as error:
            raise self.distrust(error) from error

    def _read_until(self, kind: int, number: int) -> list[Any] | None:
        for _ in range(MAX_UNASKED):
            data = self.segment.to_client.read()
            if data is None:
                return None
            message = read_message(data)
            if message[OPERATION] == kind and message[SUBJECT] == number:
                return message
            if message[OPERATION] == NOTICE:
                self.dead = True
                problem = error_from_wire(message[NOTICE_ERROR])
                raise problem if isinstance(problem, RuntimeFailure) else RuntimeFailure(problem.message)
            self._keep(message)
        raise ProtocolError(f"{MAX_UNASKED} messages that nobody waits for")

    def distrust(self, error: Exception) -> ProtocolError:
        """The worker has sent nonsense: nothing that it sends is read any more. What to raise."""
        self.dead = True
        self._messages.clear()
        self._refusal = self._refusal or nonsense(f"worker {self.index} (pid {self.pid})", error)
        return ProtocolError(self._refusal)

    def abandon(self, step: int) -> None:
        """Discards what has come of a step, and what is still to come."""
        self._abandoned.add(step)
        messages, self._messages = self._messages, []
        try:
            for message in messages:
                self._keep(message)
        except (ProtocolError, *NONSENSE) as error:
            raise self.distrust(error) from error

    def _keep(self, message: list[Any]) -> None:
        """Until it is asked for; answers to steps that nobody waited for are given up in the end."""
        if message[OPERATION] in (PRE, MID) and message[SUBJECT] in self._abandoned:
            self._discard(message)
            return
        self._messages.append(message)
        if len(self._messages) > MAX_UNCLAIMED:
            self._discard(self._messages.pop(0))

    def _discard(self, message: list[Any]) -> None:
        """An answer that nobody wants: rows go back, and children that nobody knows are freed."""
        if message[OPERATION] == PRE:
            for _, verb, payload in message[PRE_VERDICTS]:
                if verb == Verb.FORK:
                    self.send(Free(FREE, check_children(payload, self.number, ())))
        elif message[OPERATION] == MID:
            self._abandoned.discard(message[SUBJECT])
            for entry in message[MID_RESULTS]:
                self.rows.decline(entry)
            more = message[MID_VARIABLES] if len(message) > MID_VARIABLES else ()
            for seq, told in more:  # which comes only once
                self.unheard.setdefault(seq, {}).update(read_variables(told))

    # -- sequences ------------------------------------------------------------------------------

    def start(self, message: Start) -> None:
        """Starts a sequence. Raises what its controller ends with."""
        self.send(message)
        try:
            answer = self.expect(STARTED, message.seq, START_TIMEOUT, look=ANSWER_SECONDS)
        except BaseException:  # it may start all the same, when nobody waits any more
            if not self.gone:
                self.send(Free(FREE, [message.seq]))
            raise
        _, _, error, log, *_ = answer
        if error is not None:
            problem = error_from_wire(error)
            problem.detail.setdefault("log", str(log))
            raise problem

    def send_clone(self, seq: int, child: int) -> None:
        """Has a sequence copied."""
        self.send(Clone(CLONE, seq, child))

    def expect_clone(self, child: int) -> None:
        """Waits for the copy. Raises why it could not be made."""
        _, _, error, *_ = self.expect(CLONED, child, START_TIMEOUT, look=ANSWER_SECONDS)
        if error is not None:
            raise error_from_wire(error)

    def inherit(self, parent: int, child: int) -> None:
        """A child is of the parent's kind, is called in its next step as the parent would be, and may ask for
        its row again."""
        if parent in self.exports:
            self.exports[child] = self.exports[parent]
            for some in self._calls:
                if parent in some:
                    some.add(child)
        self.rows.inherit(parent, child)

    def as_exported(self, seq: int) -> None:
        """In its next step it is called as it exports it."""
        exported = self.exports[seq]
        self.spared.discard(seq)
        self.critical.add(seq)
        if exported & MID_SKIP_POST:
            self.measured.add(seq)

    def spare(self, seq: int, step: int, flags: int) -> None:
        """In its next step what the flags of a result of this step say is not called.

        Where another step has been posted since, that may have been the next one: it counts as exported then.
        """
        exported = self.exports.get(seq, 0)
        if not exported & flags or step != self.last_step:
            return
        self.spared.add(seq)
        if not exported & ~flags:
            self.critical.discard(seq)
        if flags & MID_SKIP_POST:
            self.measured.discard(seq)

    def restore(self, seqs: Iterable[int]) -> None:
        """A step of these has begun: what their last results said counts no more, and until they answer again
        they are called as they export it."""
        for seq in self.spared.intersection(seqs):
            self.as_exported(seq)

    def hand_over(self, seq: int, other: WorkerLink) -> None:
        """The sequence has moved to another worker."""
        if seq in self.exports:
            other.exports[seq] = self.exports.pop(seq)
            for ours, theirs in zip(self._calls, other._calls, strict=True):
                if seq in ours:
                    ours.discard(seq)
                    theirs.add(seq)
        if seq in self.unheard:
            other.unheard[seq] = self.unheard.pop(seq)
        self.rows.hand_over(seq, other.rows, declined=self._has_unclaimed(seq))

    def _has_unclaimed(self, seq: int) -> bool:
        """Returns whether a result of the sequence has come that nobody has fetched."""
        with contextlib.suppress(RuntimeFailure):
            self.take(MID, -1)  # reads all there is
        results = (one[MID_RESULTS] for one in self._messages if one[OPERATION] == MID)
        try:
            return any(entry[RESULT_SEQ] == seq for entries in results for entry in entries)
        except NONSENSE as error:
            self.distrust(error)
            return False

    def forget(self, seq: int) -> None:
        """The sequence has ended: its row goes back."""
        if self.exports.pop(seq, None) is not None:
            for some in self._calls:
                some.discard(seq)
        self.rows.forget(seq)

    @property
    def _calls(self) -> tuple[set[int], set[int], set[int]]:
        return self.critical, self.measured, self.spared

    def _check_alive(self) -> None:
        if self.dead or not self._peer.alive():
            self.dead = True
            raise WorkerDiedError(f"worker {self.index} (pid {self.pid}) has ended; its sequences are lost")

    def close(self) -> None:
        """Lets go of everything, and removes names that may still be linked."""
        self.rows.close()
        self.segment.close()
        self.bell.close()
        self._worker_bell.close()
        self._peer.close()


class Links:
    """Holds a `WorkerLink` for each worker with sequences of this client, by (worker, generation)."""

    def __init__(self, control: Control, live: Sequences, num_rows: int, num_dense: int) -> None:
        self._control = control
        self._live = live
        self._rows = num_rows, num_dense
        self._links: dict[tuple[int, int], WorkerLink] = {}
        self.numbers: Iterator[int] = itertools.cycle(range(LINK_NUMBERS))

    def __len__(self) -> int:
        return len(self._links)

    def values(self) -> ValuesView[WorkerLink]:
        """All of them."""
        return self._links.values()

    def attach(
        self, address: WorkerAddress, vocabulary: int, vocab_size: int, owner: str | None = None
    ) -> WorkerLink:
        """Returns the link to a worker, made at its first use.

        `owner`: for whom, if not the connection's. Raises WorkerDiedError, SpaceError if memory is short, and
        what the worker refuses it for.
        """
        self._let_go()
        key = address.worker, address.generation
        found = self._links.get(key)
        if found is not None:
            return found
        num_rows, num_dense = self._rows
        layout = Layout(vocab_size, num_rows=num_rows, num_dense=num_dense)
        link = WorkerLink(self._number(), *key, address.pid, address.bell, layout)
        try:
            self._control.call(
                "attach",
                worker=key[0],
                generation=key[1],
                link=link.number,
                segment=link.segment.name,
                bell=link.bell.name,
                layout=layout.to_wire(),
                vocabulary=vocabulary,
                owner=owner,
            )
            link.attached()
        except AiciError:
            link.close()
            raise
        self._links[key] = link
        return link

    def close(self) -> None:
        """Closes all."""
        for link in self._links.values():  # one may hold rows of another one, from which a sequence has moved
            link.rows.close()
        for link in self._links.values():
            link.close()
        self._links.clear()

    def _let_go(self) -> None:
        """Closes those to workers that have ended, when nothing lives there, and nothing that has moved away
        still has a row there."""
        for key, link in list(self._links.items()):
            if not link.gone or link in self._live.values():
                continue
            if not any(other.rows.has_of(link.rows) for other in self._links.values()):
                del self._links[key]
                link.close()

    def _number(self) -> int:
        """Returns a number that no live link has: it is a part of the numbers of children forked there."""
        used = {link.number for link in self._links.values()}
        # some of these may have moved, and the worker that has numbered them have ended
        used |= {seq >> 24 & LINK_NUMBERS - 1 for seq in self._live if seq >> 31}
        for number in itertools.islice(self.numbers, LINK_NUMBERS):
            if number not in used:
                return number
        raise RuntimeFailure(
            f"this client has sequences in {len(used)} workers, which is the most: free those whose worker "
            "has ended"
        )
