"""A client's live sequences, and its links to the workers that run them.

`Sequences` maps each live sequence to the `WorkerLink` of its worker, which `Links` makes at the first use. A
link is a channel to the worker, with the steps that it has yet to answer and, in `Calls`, what the next step
of each sequence calls before the model runs.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

from aicirt.contract.abi import MID_SKIP_POST, MID_SKIP_PRE, Verb
from aicirt.contract.errors import (
    MALFORMED,
    ClosedError,
    ProtocolError,
    RuntimeFailure,
    UnknownSequenceError,
    VocabularyError,
    WorkerDiedError,
    counted,
)
from aicirt.contract.messages import FREE, LINK_NUMBERS, MID, MID_RESULTS, PRE, RESULT_SEQ, Free, StepInput
from aicirt.ipc.segment import Layout, dense_rows_for
from aicirt.settings import PEER_CHECK_SECONDS
from aicirt.system.files import Descriptor
from aicirt.system.shortage import describe
from pyaici.client.channel import Channel, Copy, Patience
from pyaici.client.results import check_children

if TYPE_CHECKING:
    from pyaici.client.control import Control, WorkerAddress

#: the sequence of a StepInput
SEQ = itemgetter(0)
#: how often a worker may wake a client in vain
_MAX_VAIN = 1000


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

    def forget_sequence(self, seq: int) -> None:
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


class Outstanding(NamedTuple):
    """A step that a worker has not answered in time."""

    #: the sequences whose results it brings
    seqs: Collection[int]
    #: the wait for the answer
    patience: Patience
    #: whether the verdicts of pre_process are missing too
    pre: bool


class Unread(NamedTuple):
    """Results of a late step for a sequence and its new children."""

    #: of `Pre`
    verdicts: list[list[Any]]
    #: of `Mid`: results, logs, variables and flags
    answer: tuple[list[Any], list[Any], list[Any], list[Any]]


class WorkerLink(Channel):
    """The sequences in one worker, their steps and callbacks."""

    def __init__(
        self, number: int, address: WorkerAddress, layout: Layout, copies: dict[int, Copy] | None = None
    ) -> None:
        """Raises as `Channel` does."""
        super().__init__(number, address, layout, copies)
        self.calls = Calls()
        #: number of the last step that was posted here
        self.last_step = 0
        #: the steps that the worker has yet to answer; it gets no other one before
        self.outstanding: dict[int, Outstanding] = {}
        #: answers to late steps, by sequence, until a step lists the sequence
        self.unread: dict[int, Unread] = {}
        #: inputs of sequences that are not in these steps, which are sent after them
        self.held: dict[int, StepInput] = {}

    def set_aside(self, inputs: Sequence[StepInput]) -> tuple[Sequence[StepInput], Sequence[StepInput]]:
        """Splits the inputs of a step: those that are not sent now, and those that are.

        While the worker owes an answer, none is sent. Those of sequences that the answer does not concern are
        held, and sent with the next input.
        """
        if not self.outstanding:
            late = [item for item in inputs if item.seq in self.unread]
            return late, [self.held.pop(item.seq, item) for item in inputs if item.seq not in self.unread]
        for item in inputs:
            if not self.is_late(item.seq) and not item.final:
                self.held.setdefault(item.seq, item)
        return inputs, ()

    def is_late(self, seq: int) -> bool:
        """Returns whether a late step brings results of the sequence, or has brought some."""
        if not self.outstanding:
            return seq in self.unread
        return seq in self.unread or any(seq in late.seqs for late in self.outstanding.values())

    def receive(self, live: Sequences, seconds: float = 0.0) -> None:
        """Waits at most so long for the answer to each outstanding step, and sorts it by sequence.

        Raises as `expect_within` does, and ProtocolError if an answer is invalid.
        """
        for step, late in list(self.outstanding.items()):
            answer = self.expect_within(MID, step, late.patience, seconds)
            if answer is None:
                continue
            del self.outstanding[step]
            try:
                _, _, verdicts = (late.pre and self.take_message(PRE, step)) or (PRE, step, ())
                self._sort(late, verdicts, answer[MID_RESULTS : MID_RESULTS + 4], live)
            except (ProtocolError, *MALFORMED) as error:
                raise self.distrust(error) from error

    def _sort(self, late: Outstanding, verdicts: Iterable[Any], answer: list[Any], live: Sequences) -> None:
        owners = {seq: seq for seq in late.seqs if live.get(seq) is self}
        self.unread |= {seq: Unread([], ([], [], [], [])) for seq in owners}
        for seq, verb, payload in verdicts:
            children = check_children(payload, self.number, live) if verb == Verb.FORK else []
            if seq in owners:
                self.unread[seq].verdicts.append([seq, verb, payload])
                owners |= dict.fromkeys(children, seq)
            elif children:  # the sequence was freed meanwhile: they are unknown here
                self.send(Free(FREE, children))
        for kind, entries in enumerate(answer):
            for entry in entries:
                if (owner := owners.get(entry[RESULT_SEQ])) is not None:
                    self.unread[owner].answer[kind].append(entry)
                elif kind == 0:
                    self.rows.decline(entry)

    def take_verdicts(self, seqs: Iterable[int]) -> list[list[Any]]:
        """Takes the unread verdicts of these sequences."""
        taken: list[list[Any]] = []
        for seq in seqs:
            if (found := self.unread.get(seq)) is not None:
                taken += found.verdicts
                found.verdicts.clear()
        return taken

    def take_answer(self, seqs: Iterable[int]) -> list[Any]:
        """Takes the other results of these sequences, as a `Mid` message, if the verdicts have been taken."""
        taken: list[list[Any]] = [[], [], [], []]
        for seq in seqs:
            if (found := self.unread.get(seq)) is not None and not found.verdicts:
                for some, more in zip(taken, self.unread.pop(seq).answer, strict=True):
                    some += more
        return [MID, 0, *taken]

    def discard(self, seq: int) -> list[int]:
        """Discards what is unread of a sequence; returns its new children, which nobody knows."""
        if (found := self.unread.pop(seq, None)) is None:
            return []
        for entry in found.answer[0]:
            self.rows.decline(entry)
        return [child for _, verb, payload in found.verdicts if verb == Verb.FORK for child in payload]

    def take_woken(self) -> set[int]:
        """See `Channel.take_woken`. Keeps those that are late: the client has yet to learn that they wait."""
        woken = super().take_woken()
        self.awake |= {seq for seq in woken if self.is_late(seq)}
        return woken - self.awake

    def give_up(self) -> None:
        """Forgets what the worker owes: it has ended, or is not trusted."""
        self.outstanding.clear()
        self.unread.clear()
        self.held.clear()

    def begin(self, seq: int, exported: int) -> None:
        """Adds a sequence whose controller exports these callbacks, given as the flags that skip them."""
        self.rows.begin(seq)
        self.calls.begin(seq, exported)

    def inherit(self, parent: int, child: int) -> None:
        """Gives a child the callbacks and the row of its parent."""
        self.calls.inherit(parent, child)
        self.rows.inherit(parent, child)

    def forget_sequence(self, seq: int) -> None:
        """Drops the state of a sequence that has ended, and releases its row."""
        self.held.pop(seq, None)
        self.starting.discard(seq)
        self.refused.pop(seq, None)
        self.calls.forget_sequence(seq)
        self.rows.forget_sequence(seq)


class Sequences(dict[int, WorkerLink]):
    """Maps the number of each live sequence to the link to its worker."""

    __slots__ = ("_closed", "_numbers", "copying", "repeatable")

    def __init__(self) -> None:
        super().__init__()
        #: sequences whose clones can take steps that are discarded
        self.repeatable: set[int] = set()
        #: copies that have been asked for, by number
        self.copying: dict[int, Copy] = {}
        self._numbers = itertools.count(1)
        self._closed = False

    def link(self, seq: int) -> WorkerLink:
        """Returns the link of a sequence.

        Raises UnknownSequenceError if it is not live, ClosedError after `close`.
        """
        try:
            return self[seq]
        except KeyError:
            self.check_open()
            raise UnknownSequenceError(f"no live sequence has the number {seq}") from None

    def take_woken(self, links: Iterable[WorkerLink]) -> list[int]:
        """Returns those that wait no longer, of which these links have told since the last call."""
        told = {link: [seq for seq in link.take_woken() if self.get(seq) is link] for link in links}
        for link in filter(told.get, told):
            link.vain = 0
        return list(itertools.chain.from_iterable(told.values()))

    def fresh_number(self) -> int:
        """Returns a number for a new sequence; children that a worker numbers have the top bit set."""
        while (seq := next(self._numbers) & 0x7FFFFFFF) in self or seq in self.copying or seq == 0:
            pass
        return seq

    def add_sequence(
        self, seq: int, link: WorkerLink, *, has_pre: bool, has_post: bool, repeatable: bool = False
    ) -> None:
        """Adds a sequence whose controller has these callbacks."""
        self[seq] = link
        if repeatable:
            self.repeatable.add(seq)
        link.begin(seq, MID_SKIP_PRE * has_pre | MID_SKIP_POST * has_post)

    def inherit(self, parent: int, children: Iterable[int]) -> None:
        """Adds the children of a fork, in their parent's worker."""
        link = self.link(parent)
        for child in children:
            if parent in self.repeatable:
                self.repeatable.add(child)
            link.inherit(parent, child)
            self[child] = link

    def ended(self, seq: int) -> None:
        """Removes a sequence that its worker has ended."""
        link = self.pop(seq, None)
        if link is not None:
            self.repeatable.discard(seq)
            link.forget_sequence(seq)

    def free(self, seqs: Iterable[int]) -> None:
        """Ends sequences and the copies asked for of them; ignores numbers of sequences that are not live."""
        by_link: dict[Channel, list[int]] = {}
        if self.copying:
            seqs = set(seqs)
            for child, copy in list(self.copying.items()):
                if child in seqs or copy.parent in seqs:
                    del self.copying[child]
                    by_link.setdefault(copy.link, []).append(child)
        for seq in seqs:
            link = self.pop(seq, None)
            if link is not None:
                self.repeatable.discard(seq)
                link.forget_sequence(seq)
                by_link.setdefault(link, []).append(seq)
                if link.unread:
                    by_link[link] += link.discard(seq)
        for channel, numbers in by_link.items():
            if not channel.dead:
                try:
                    channel.send(Free(FREE, numbers))
                except RuntimeFailure:  # the worker does not read: later calls report it
                    continue

    def close(self) -> None:
        """Forgets all sequences, because the runtime is closed."""
        self._closed = True
        self.clear()
        self.copying.clear()

    def check_open(self) -> None:
        """Raises ClosedError after `close`."""
        if self._closed:
            raise ClosedError from None

    def by_link(self, inputs: Sequence[StepInput]) -> Iterable[tuple[WorkerLink, Sequence[StepInput]]]:
        """Groups inputs by worker. Raises UnknownSequenceError or ClosedError."""
        self.check_open()
        found: dict[WorkerLink, list[StepInput]] = {}
        for item in inputs:
            found.setdefault(self.link(item.seq), []).append(item)
        return found.items()


class Alarm:
    """An eventfd on which a client sleeps while all its sequences wait. Other threads ring it.

    No worker has it, since who has an eventfd can have others wait for it (F_SETFL takes O_NONBLOCK away).
    """

    def __init__(self) -> None:
        """Raises RuntimeFailure if no descriptor is left."""
        try:
            self._file: Descriptor | None = Descriptor(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))
        except OSError as error:
            raise RuntimeFailure(f"cannot create an eventfd: {describe(error)}") from error

    def ring(self) -> None:
        """Ends the present `sleep`, or the next one. May be called from any thread, also after `close`."""
        if (file := self._file) is not None:
            with contextlib.suppress(BlockingIOError):  # it has been rung very often
                os.eventfd_write(file.fd, 1)

    def close(self) -> None:
        """Gives the descriptor back, as soon as no thread rings."""
        self._file = None

    def sleep(self, seconds: float, links: list[WorkerLink]) -> None:
        """Sleeps until somebody rings, until one of the workers wakes it or has ended, or for so long.

        Does not listen to workers that wake it in vain, but ends early. Raises ClosedError after `close`.
        """
        if (file := self._file) is None:
            raise ClosedError
        poll, heard = select.poll(), [link for link in links if link.vain < _MAX_VAIN]
        seconds = seconds if heard == links else min(seconds, PEER_CHECK_SECONDS)
        for fd in (file.fd, *(link.peer.fileno() for link in links), *(link.waker for link in heard)):
            if fd >= 0:
                poll.register(fd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(1000 * seconds)}
        if file.fd in ready:
            os.eventfd_read(file.fd)
        for link in heard:
            if link.waker in ready:
                link.quieten()


class Links:
    """Holds a `WorkerLink` for each worker with sequences of this client, by (worker, generation).

    Any thread may attach. Only the thread of the runtime uses and closes links.
    """

    def __init__(self, control: Control, live: Sequences, num_rows: int, num_dense: int | None) -> None:
        self._control = control
        self._live = live
        self._rows = num_rows, dense_rows_for(num_rows) if num_dense is None else num_dense
        self._links: dict[tuple[int, int], WorkerLink] = {}
        #: all links; another list after each change, as other threads attach
        self.all: list[WorkerLink] = []
        #: links whose workers have not answered yet
        self._attaching: set[WorkerLink] = set()
        #: one for each worker that some thread attaches to: a worker that hangs delays no others
        self._locks: WeakValueDictionary[tuple[int, int], threading.Lock] = WeakValueDictionary()
        self._changing = threading.Lock()
        self.numbers: Iterator[int] = itertools.cycle(range(LINK_NUMBERS))

    def attach(
        self, address: WorkerAddress, vocabulary: int, vocab_size: int, owner: str | None = None
    ) -> WorkerLink:
        """Returns the link to a worker, which is made at the first use and then waits for the worker.

        `owner`: the sequence's owner, if it is not the connection's. Raises WorkerDiedError, SpaceError if
        memory is short, and the worker's error if it refuses the link.
        """
        key = address.worker, address.generation
        if (found := self._links.get(key)) is not None:
            return found
        with self._changing:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            return self._links.get(key) or self._attach(key, address, vocabulary, vocab_size, owner)

    def find(self, address: WorkerAddress) -> WorkerLink:
        """Returns the link that `attach` has made to a worker. Raises WorkerDiedError if it was let go."""
        link = self._links.get((address.worker, address.generation))
        if link is None:
            raise WorkerDiedError(f"worker {address.worker} (pid {address.pid}) has ended")
        return link

    def _attach(
        self,
        key: tuple[int, int],
        address: WorkerAddress,
        vocabulary: int,
        vocab_size: int,
        owner: str | None,
    ) -> WorkerLink:
        num_rows, num_dense = self._rows
        layout = Layout(vocab_size, num_rows=2 * num_rows, num_dense=2 * num_dense)  # half for other owners
        with self._changing:
            link = WorkerLink(self._number(), address, layout, self._live.copying)
            self._attaching.add(link)
        try:
            assert link.segment.file is not None
            with link.open_waker() as theirs:
                self._control.call(
                    "attach",
                    [link.segment.file.fd, theirs.fileno()],
                    worker=key[0],
                    generation=key[1],
                    link=link.number,
                    layout=layout.to_wire(),
                    vocabulary=vocabulary,
                    owner=owner,
                )
            link.attached()
            with self._changing:
                self._live.check_open()
                if link not in self._attaching:
                    raise VocabularyError("another vocabulary has been registered meanwhile")
                self._links[key] = link
                self.all = list(self._links.values())
        except BaseException:  # Ctrl-C as well
            link.close()
            raise
        finally:
            self._attaching.discard(link)
        return link

    def close(self) -> None:
        """Closes all links."""
        with self._changing:
            for link in self.all:
                link.close()
            self._links.clear()
            self.all = []
            self._attaching.clear()

    def let_go(self) -> None:
        """Closes links to workers that have ended, if no live sequence is there."""
        for key, link in list(self._links.items()):
            if link.gone and link not in self._live.values():
                with self._changing:
                    del self._links[key]
                    self.all = list(self._links.values())
                link.close()

    def _number(self) -> int:
        """Returns a number that no live link has; it is part of the numbers of children forked there."""
        used = {link.number for link in (*self.all, *self._attaching)}
        for number in itertools.islice(self.numbers, LINK_NUMBERS):
            if number not in used:
                return number
        raise RuntimeFailure(
            f"this client has sequences in {counted(len(used), 'worker')}, which is the limit; free the "
            "sequences of workers that have ended"
        )
