"""Messages between a client and one worker, through shared memory."""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple

from aicirt.contract.abi import Verb
from aicirt.contract.errors import (
    MALFORMED,
    AiciError,
    ProtocolError,
    RuntimeFailure,
    RuntimeTimeoutError,
    WorkerDiedError,
    worker_error_from_wire,
)
from aicirt.contract.messages import (
    CLONE,
    CLONED,
    FREE,
    MID,
    MID_RESULTS,
    MID_VARIABLES,
    NOTICE,
    NOTICE_ERROR,
    OPERATION,
    PRE,
    PRE_VERDICTS,
    STARTED,
    SUBJECT,
    WOKEN,
    WOKEN_SEQS,
    Clone,
    Free,
    Start,
    encode,
)
from aicirt.ipc.frames import FrameSocket
from aicirt.ipc.ring import ANSWER_SECONDS, SAMPLING_SECONDS, Doorbell, current_cpu, spin
from aicirt.ipc.segment import Layout, Segment
from aicirt.settings import PEER_CHECK_SECONDS
from aicirt.system.files import Descriptor
from aicirt.system.shortage import describe
from aicirt.system.silence import Silence
from pyaici.client.control import WorkerAddress
from pyaici.client.results import (
    SegmentRows,
    check_children,
    check_woken,
    malformed,
    read_message,
    read_variables,
)

#: bytes of a worker that wake a client once: each wake-up is one
_WAKES = 1 << 12
#: how long a client waits for init_prompt: its CPU limit is 1 s, but many may queue
START_TIMEOUT = 60.0
#: most bytes of messages for which the ring of a worker that does not read has no room
MAX_UNSENT = 64 << 20
#: pause between two attempts to write the rest of a message
_ROOM_SECONDS = 0.001
#: answers that are kept until they are asked for: more steps than this are never under way at once
MAX_UNCLAIMED = 64
#: of no message
_NO_SUBJECT = -1
#: messages that are read at a time while waiting for another one: a worker sends two in a step
MAX_UNASKED = 1 << 12


@dataclass(slots=True)
class Copy:
    """A copy of a sequence that a worker has been asked for."""

    parent: int
    link: Channel
    #: the worker's answer, once it has come
    answer: list[Any] | None = None


class Patience:
    """Limits the wait for one answer of a worker, which may take several calls.

    A worker that lacks processor time is late, so only its silence counts. No wait is endless: a worker that
    gets time answers, or uses up this time.
    """

    def __init__(self, channel: Channel, timeout: float) -> None:
        """Begins the wait; the worker may be silent for `timeout` seconds."""
        self._channel, self._timeout = channel, timeout
        self._silence = Silence(channel.pid)
        self._look_at = time.monotonic() + PEER_CHECK_SECONDS

    def check(self, *, silent: bool) -> None:
        """Raises RuntimeTimeoutError when the wait is over. `silent`: the worker has not rung lately."""
        now = time.monotonic()
        if not silent and now < self._look_at:
            return
        self._look_at = now + PEER_CHECK_SECONDS  # a worker that rings without an answer is silent, too
        if self._silence.longer_than(self._timeout):
            raise RuntimeTimeoutError(
                f"{self._channel.who} did not answer within {self._timeout:g} s in which it had a processor"
            )


class Peer:
    """A process that is watched through a pidfd."""

    __slots__ = ("_fd", "_poll", "pid")

    def __init__(self, pid: int) -> None:
        """Starts watching. Raises ProcessLookupError if there is no such process."""
        self.pid = pid
        self._fd = os.pidfd_open(pid)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    def alive(self) -> bool:
        """Returns False once the process has ended, even if it is still a zombie, or after `close`."""
        return self._fd >= 0 and not self._poll.poll(0)

    def fileno(self) -> int:
        """Returns the pidfd, which is readable once the process has ended; -1 after `close`."""
        return self._fd

    def close(self) -> None:
        """Stops watching."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Channel:
    """Segment, doorbells and rows shared with one worker process, and the messages that it has sent."""

    def __init__(
        self, number: int, address: WorkerAddress, layout: Layout, copies: dict[int, Copy] | None = None
    ) -> None:
        """Creates the segment. Raises WorkerDiedError if the process has ended, SpaceError.

        `copies`: those that the client has asked for, by number, which its links share.
        """
        #: unique among the live links of this client
        self.number = number
        self.pid = address.pid
        #: for messages
        self.who = f"worker {address.worker} (pid {self.pid})"
        try:
            self.peer = Peer(self.pid)
        except ProcessLookupError:
            raise WorkerDiedError(f"{self.who} has ended") from None
        except OSError as error:
            raise RuntimeFailure(
                f"{self.who} cannot be watched: {describe(error)}; a daemon in another container must "
                "share its processes: shareProcessNamespace in Kubernetes, --pid in Docker"
            ) from error
        with contextlib.ExitStack() as undo:
            undo.callback(self.peer.close)
            self.segment = Segment.create(layout)
            undo.callback(self.segment.close)
            undo.pop_all()
        self.bell = self.segment.bell
        #: of its own until `attached`
        self._worker_bell = self.bell
        self._waker: FrameSocket | None = None
        self._woken = 0.0
        #: frames for which the ring has had no room
        self._unsent: deque[tuple[bytes, bool]] = deque()
        #: sequences whose worker has not confirmed their start
        self.starting: set[int] = set()
        #: the errors of starts that came after `start` had returned, by sequence
        self.refused: dict[int, AiciError] = {}
        self._messages: list[list[Any]] = []
        self._copies: dict[int, Copy] = {} if copies is None else copies
        #: steps whose answers are to be discarded
        self._abandoned: set[int] = set()
        #: variables that came with discarded answers, by a sequence of the request
        self.discarded_variables: dict[int, dict[bytes, bytes]] = {}
        #: sequences that wait no longer, since `take_woken`
        self.awake: set[int] = set()
        #: how often the worker has woken this client since it last named a live sequence that waits no longer
        self.vain = 0
        self.rows = SegmentRows(self.segment)
        #: why no more messages of the worker are read; empty while they are
        self._refusal = ""
        self.dead = False

    @property
    def gone(self) -> bool:
        """Whether the worker has ended or has dropped this client."""
        return self.dead or not self.peer.alive()

    def open_waker(self) -> socket.socket:
        """Returns a socket for the worker, by which it wakes a client that sleeps until a sequence is woken.

        Before, aicirt sends the worker's doorbell on it. Raises RuntimeFailure.
        """
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise RuntimeFailure(f"cannot create a socket for {self.who}: {describe(error)}") from error
        theirs.setblocking(False)
        self._waker = FrameSocket(ours)
        return theirs

    def attached(self) -> None:
        """Prepares for messages, once the worker has the segment. Raises RuntimeFailure."""
        self.segment.file = None
        assert self._waker is not None
        self._waker.poll(once=True)
        files = [Descriptor(fd) for fd in self._waker.take_fds()]
        problem = "the doorbell has not arrived: this process may open no more files"
        try:
            (file,) = files
            self._worker_bell = Doorbell.of_file(file.fd)
        except (OSError, ValueError) as error:
            problem = describe(error) if files else f"{problem}; raise the limit (ulimit -n)"
            raise RuntimeFailure(f"{self.who} cannot be woken: {problem}") from error

    @property
    def waker(self) -> int:
        """The descriptor that is readable when the worker wakes this client; -1 if it never will."""
        return -1 if self._waker is None else self._waker.socket.fileno()

    def quieten(self) -> None:
        """Reads what has made `waker` readable."""
        assert self._waker is not None
        self.vain += 1
        with contextlib.suppress(BlockingIOError):
            try:
                left = self._waker.socket.recv(_WAKES, socket.MSG_DONTWAIT)
            except ConnectionError:
                left = b""
            if not left:  # the worker has closed it
                self._waker.close()
                self._waker = None

    def wake(self, message: NamedTuple | None = None) -> None:
        """Wakes the worker because a step will be sent soon, and keeps it off this thread's processor.

        Sends `message`, if there is one; then raises as `send`.
        """
        self._woken = time.monotonic()
        self.segment.to_worker.publish_cpu(current_cpu())
        if message is None:
            self._worker_bell.ring()
        else:
            self.send(message)

    @property
    def asleep(self) -> bool:
        """Whether the worker has given up waiting for a step since it was last woken."""
        return time.monotonic() - self._woken > SAMPLING_SECONDS

    def send(self, message: NamedTuple) -> None:
        """Sends a message without waiting. The rest of one for which there is no room is sent in later waits.

        Raises RuntimeTimeoutError if the worker has long stopped reading.
        """
        ring, data = self.segment.to_worker, encode(message)
        if self._unsent or len(data) > ring.max_frame or not ring.try_write(data):
            self._unsent.extend(ring.frames(data))
            self._send_rest()
        self._worker_bell.ring()

    def _send_rest(self) -> None:
        """Writes frames that have had no room, as far as there is room now."""
        ring, unsent = self.segment.to_worker, self._unsent
        while unsent and ring.try_write(*unsent[0]):
            unsent.popleft()
        if len(unsent) * ring.max_frame > MAX_UNSENT and sum(len(data) for data, _ in unsent) > MAX_UNSENT:
            self.dead = True
            unsent.clear()
            raise RuntimeTimeoutError(f"{self.who} does not read its messages")

    def expect(self, kind: int, number: int, timeout: float, *, look: float = 0.0) -> list[Any]:
        """Waits for the message of this kind whose second field is `number`; keeps other messages for later.

        `look`: seconds to poll for the message before going to sleep. Raises RuntimeTimeoutError after
        `timeout` seconds of silence, and WorkerDiedError within 100 ms of the worker's death.
        """
        message = self.take_message(kind, number)
        if message is None:
            message = self.expect_within(kind, number, Patience(self, timeout), math.inf, look=look)
            assert message is not None
        return message

    def expect_within(
        self, kind: int, number: int, patience: Patience, seconds: float, *, look: float = 0.0
    ) -> list[Any] | None:
        """Does the same for at most so many seconds; returns None then, unless `patience` is over."""
        ring, end = self.segment.to_client, time.monotonic() + seconds
        while (message := self.take_message(kind, number)) is None:
            # a worker on this processor can only run while this thread sleeps
            if look and ring.writer_cpu != current_cpu() and spin((ring,), look):
                continue
            look = 0.0
            left = end - time.monotonic()
            self._await(patience, max(0.0, min(left, PEER_CHECK_SECONDS)))
            if left <= 0:
                return self.take_message(kind, number)
        return message

    def _await(self, patience: Patience, seconds: float) -> None:
        """Waits until the worker rings. Raises WorkerDiedError, or RuntimeTimeoutError without patience."""
        self._check_alive()
        if self._unsent:
            self._send_rest()
            seconds = min(seconds, _ROOM_SECONDS)
            self._worker_bell.ring()
        if self.segment.to_client.in_pieces:
            self._worker_bell.ring()  # there is room now for the rest of a long message
        rung = self.bell.wait_for_ring(seconds)
        if not rung:
            self._check_alive()
        patience.check(silent=not rung)

    def take_message(self, kind: int, number: int) -> list[Any] | None:
        """Returns the same message if it has come already, else None.

        Raises the error for which the worker has dropped this client. Raises ProtocolError, now and at every
        later call, if the worker has sent an invalid message.
        """
        if kind == CLONED and (copy := self._copies.get(number)) is not None and copy.answer is not None:
            return copy.answer
        for at, message in enumerate(self._messages):
            if message[OPERATION] == kind and message[SUBJECT] == number:
                return self._messages.pop(at)
        if self._refusal:
            raise ProtocolError(self._refusal)
        try:
            return self._read_until(kind, number)
        except (ProtocolError, *MALFORMED) as error:
            raise self.distrust(error) from error

    def take_woken(self) -> set[int]:
        """Returns the sequences that wait no longer, of which the worker has told since the last call."""
        with contextlib.suppress(RuntimeFailure):  # the next step reports it
            self.take_message(WOKEN, _NO_SUBJECT)
        woken, self.awake = self.awake, set()
        return woken

    def _read_until(self, kind: int, number: int) -> list[Any] | None:
        unasked = 0
        while unasked < MAX_UNASKED:
            data = self.segment.to_client.read()
            if data is None:
                return None
            message = read_message(data)
            if message[OPERATION] == kind and message[SUBJECT] == number:
                return message
            if message[OPERATION] == NOTICE:
                self.dead = True
                problem = worker_error_from_wire(message[NOTICE_ERROR])
                raise problem if isinstance(problem, RuntimeFailure) else RuntimeFailure(problem.message)
            if message[OPERATION] == CLONED:
                copy = self._copies.get(message[SUBJECT])
                if copy is not None and copy.link is self:
                    copy.answer = message
                    continue
            unasked += 1
            if message[OPERATION] == WOKEN:
                self.awake.update(check_woken(message[WOKEN_SEQS]))
            elif message[OPERATION] == STARTED:
                self._note_start(message)
            else:
                self._keep(message)
        raise ProtocolError(f"it has sent {MAX_UNASKED} messages that were not requested")

    def distrust(self, error: Exception) -> ProtocolError:
        """Stops reading from the worker, which has sent an invalid message; returns the error to raise."""
        self.dead = True
        self._messages.clear()
        self._refusal = self._refusal or malformed(self.who, error)
        return ProtocolError(self._refusal)

    def abandon(self, step: int) -> None:
        """Discards the answers of a step, those that have come and those to come."""
        self._abandoned.add(step)
        messages, self._messages = self._messages, []
        try:
            for message in messages:
                self._keep(message)
        except (ProtocolError, *MALFORMED) as error:
            raise self.distrust(error) from error

    def _keep(self, message: list[Any]) -> None:
        """Keeps a message until it is asked for; beyond `MAX_UNCLAIMED` discards the oldest."""
        if message[OPERATION] in (PRE, MID) and message[SUBJECT] in self._abandoned:
            self._discard(message)
            return
        self._messages.append(message)
        if len(self._messages) > MAX_UNCLAIMED:
            self._discard(self._messages.pop(0))

    def _discard(self, message: list[Any]) -> None:
        """Discards an answer: releases its rows, frees unknown children and keeps its variables."""
        if message[OPERATION] == PRE:
            for _, verb, payload in message[PRE_VERDICTS]:
                if verb == Verb.FORK:
                    self.send(Free(FREE, check_children(payload, self.number, ())))
        elif message[OPERATION] == MID:
            self._abandoned.discard(message[SUBJECT])
            for entry in message[MID_RESULTS]:
                self.rows.decline(entry)
            more = message[MID_VARIABLES] if len(message) > MID_VARIABLES else ()
            for seq, variables in more:  # each value comes only once
                self.discarded_variables.setdefault(seq, {}).update(read_variables(variables))

    def send_start(self, message: Start, within: float) -> None:
        """Starts a sequence. Raises the error that its controller ends with.

        Without `message.wait`, waits at most `within` seconds for the worker's answer, and not at all while
        it owes the answer to another start. An error that comes later is the first result of the sequence.
        """
        self.send(message)
        answer, seconds = None, math.inf if message.wait else 0.0 if self.starting else within
        if seconds:
            patience = Patience(self, START_TIMEOUT)
            try:
                answer = self.expect_within(STARTED, message.seq, patience, seconds, look=ANSWER_SECONDS)
            except BaseException:  # the sequence may still start later
                if not self.gone:
                    self.send(Free(FREE, [message.seq]))
                raise
        if answer is None:
            self.starting.add(message.seq)
        elif (problem := _refusal(answer)) is not None:
            raise problem

    def _note_start(self, message: list[Any]) -> None:
        """Notes the answer to a start, if it is not freed. An answer comes before those to its steps."""
        if message[SUBJECT] in self.starting:
            self.starting.discard(message[SUBJECT])
            if (problem := _refusal(message)) is not None:
                self.refused[message[SUBJECT]] = problem

    def problem_of(self, seq: int, wire: Any) -> AiciError:
        """Returns the error with which a sequence has ended: that of its start, or the one in its result."""
        return self.refused.pop(seq, None) or worker_error_from_wire(wire)

    def send_clone(self, seq: int, child: int) -> None:
        """Asks the worker to copy a sequence; `expect_clone` must follow."""
        self.send(Clone(CLONE, seq, child))
        self._copies[child] = Copy(seq, self)

    def expect_clone(self, child: int, seconds: float | None) -> bool:
        """Waits for the copy, at most so long; returns whether it is there.

        `seconds`: None waits until the worker has had time to answer. Raises RuntimeTimeoutError then, and
        otherwise the reason if the copy could not be made.
        """
        wait = Patience(self, START_TIMEOUT)
        within, look = (math.inf, ANSWER_SECONDS) if seconds is None else (seconds, 0.0)
        if (message := self.expect_within(CLONED, child, wait, within, look=look)) is None:
            return False
        parent = self._copies.pop(child).parent
        _, _, error, *_ = message
        if error is not None:
            raise self.refused.get(parent) or worker_error_from_wire(error)
        return True

    def death(self) -> WorkerDiedError:
        """Returns the error for the sequences of a worker that is `gone`."""
        return WorkerDiedError(f"{self.who} has ended; its sequences are lost")

    def _check_alive(self) -> None:
        if self.gone:
            self.dead = True
            raise self.death()

    def close(self) -> None:
        """Closes everything."""
        self.rows.close()
        self.segment.close()
        self._worker_bell.close()
        if self._waker is not None:
            self._waker.close()
        self.peer.close()


def _refusal(answer: list[Any]) -> AiciError | None:
    """Returns the error in the answer to a start, with the controller's output; None if it has started."""
    _, _, error, log, *_ = answer
    if error is None:
        return None
    problem = worker_error_from_wire(error)
    problem.detail.setdefault("log", str(log))
    return problem
