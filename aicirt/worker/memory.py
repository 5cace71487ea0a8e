"""Memory of all guests in a worker: counts it by owner, and ends guests beyond a limit.

Counting the pages of a guest takes 2-300 us. A guest's memory cannot grow without page faults of the thread
that runs it, and reading their number takes 0.5 us. So pages are counted only after enough faults to reach a
limit, and only in guests that have run since the last count.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from aicirt.contract.abi import ARG, PROMPT
from aicirt.contract.errors import AiciError, OwnerLimitError, SpaceError
from aicirt.settings import WASM_STACK, WorkerSettings
from aicirt.wasm.instance import Instance
from aicirt.wasm.memory import PAGE, page_faults
from aicirt.wasm.snapshot import fork, fork_bytes, start_from
from aicirt.worker.hostapi import GuestContext

if TYPE_CHECKING:
    from aicirt.wasm.memory import Reaper
    from aicirt.wasm.program import Program, Snapshot
    from aicirt.worker.sequence import Sequence

#: memory that a sequence takes besides its pages and its instance: page tables, Python objects
SEQUENCE_BYTES = 64 << 10
#: between two readings of the number of page faults. In this time the kernel supplies about 4 MiB at most
LOOK_SECONDS = 0.001
#: growth below which nothing is counted, however near a limit is: MIN_GROWTH, or the owner's limit divided
#: by GROWTH_PART if that is more. Counting all pages takes at most 3 % of the time in which they were made.
#: So a count after each 16th of them is affordable
MIN_GROWTH, GROWTH_PART = 16 << 20, 16
#: for `count_memory`: growth that needs no new count, and the fraction of the time that counting may take
_UNREPORTED_GROWTH, _COUNTING_PART = 1 << 20, 1 / 100
#: pause between two counts for starts or forks that do not fit, in multiples of the last count's duration
_ASKING_PAUSE = 5
_CURE = "run fewer requests at a time, fork less, or use controllers that change less memory"


class Holder(NamedTuple):
    """A guest with its memory and its owner."""

    instance: Instance
    context: GuestContext
    owner: str
    #: the request, which all its forks share, or the guest itself
    family: object
    #: ends the guest, with an error for its user
    end: Callable[[AiciError], None]


class GuestMemory:
    """Counts the memory of guests by owner, and ends the largest guests beyond a limit."""

    def __init__(
        self,
        settings: WorkerSettings,
        sequences: Callable[[], Iterator[Sequence]],
        reaper: Reaper | None = None,
    ) -> None:
        """`sequences` yields those of all clients.

        `reaper`: memory that it has not freed yet counts for the worker, but for no owner.
        """
        # the daemon replaces 0 by a share of the free memory; a worker without a daemon has no limit
        self._owner_limit = settings.owner_memory_bytes or sys.maxsize
        self._worker_limit = settings.worker_memory_bytes or sys.maxsize
        self._sequences = sequences
        self._reaper = reaper
        #: guests that belong to no sequence
        self._others: list[Holder] = []
        #: by owner, at the last count
        self._bytes: Counter[str] = Counter()
        self._total = 0
        self._faults = page_faults()
        #: bytes that were added since without page faults: snapshots and prompts
        self._added = 0
        #: `id` of each counted object that several guests may share
        self._seen: set[int] = set()
        self._headroom = self._least_growth()
        self._look_at = 0.0
        self._counted_at, self._counting_s, self._counted_guests = 0.0, 0.0, 0
        #: number of guests that were ended
        self.ended = 0

    def watch(self, instance: Instance, owner: str, end: Callable[[AiciError], None]) -> None:
        """Counts a guest that belongs to no sequence, until it is closed.

        `instance.owner` must be the guest's context; `owner` is the name of its owner.
        """
        self._others.append(Holder(instance, instance.owner, owner, instance, end))

    def look(self) -> None:
        """Ends guests beyond a limit. Call it between guests' calls, at least once in `LOOK_SECONDS`."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            if self._growth() >= self._headroom:
                self.enforce()

    def enforce(self) -> None:
        """Counts all memory, and ends guests until every limit holds."""
        self._count()
        if self._reaper is not None and self._total > self._worker_limit and self._reaper.pending_bytes:
            self._reaper.drain()
            self._count()
        for owner, nbytes in list(self._bytes.items()):
            if nbytes > self._owner_limit:
                self._end_guests(owner, nbytes - self._owner_limit, self._owner_error(owner, nbytes))
        while self._bytes and self._total > self._worker_limit:
            owner, nbytes = self._bytes.most_common(1)[0]
            excess, error = self._total - self._worker_limit, self._worker_error(owner, self._total)
            if not self._end_guests(owner, excess, error):
                break
        self._set_headroom()

    def check(self, owner: str, more: int) -> None:
        """Raises OwnerLimitError or SpaceError if `more` bytes in addition would exceed a limit."""
        if self._fits(owner, more):
            return
        # an owner at the limit may ask again and again
        if time.monotonic() - self._counted_at > _ASKING_PAUSE * self._counting_s:
            self.enforce()
            if self._fits(owner, more):
                return
        nbytes = self._bytes[owner] + self._growth() + more
        if nbytes > self._owner_limit:
            raise self._owner_error(owner, nbytes)
        raise self._worker_error(owner, self._total + self._growth() + more)

    def start_guest(self, owner: str, snapshot: Snapshot, prompt: bytes) -> Instance:
        """Makes the guest of a new sequence. Raises as `check` does."""
        image, more = snapshot.image, _besides(snapshot.program) + len(prompt)
        new = 0 if image is None or id(image) in self._seen else image.stored
        self.check(owner, more + new)
        instance = start_from(snapshot)
        self._added += new + len(prompt)
        return instance

    def fork(self, seq: Sequence, count: int) -> list[Instance]:
        """Forks the guest of a sequence. Raises as `check` does, or the error that has ended the sequence."""
        owner, instance = seq.request.owner_name, seq.instance
        besides = _besides(instance.program)
        if instance.store:
            instance.refresh()
            if not self._fits(owner, count * (instance.size + besides)):
                self.check(owner, fork_bytes(instance, count) + count * besides)
        if seq.outcome is not None and seq.outcome[1] is not None:
            raise seq.outcome[1]
        before = instance.base_image
        children = fork(instance, count)
        after = instance.base_image
        if after is not None and after is not before:
            self._added += after.stored
        return children

    def count_memory(self) -> dict[str, int]:
        """Returns recent bytes of all guests and of the owner with the most, and the limits, for `health`."""
        changed = self._growth() > _UNREPORTED_GROWTH or self._num_guests() != self._counted_guests
        if changed and time.monotonic() - self._counted_at > self._counting_s / _COUNTING_PART:
            self.enforce()
        largest = self._bytes.most_common(1)
        return {
            "bytes": self._total,
            "limit": self._worker_limit,
            "owner_bytes": largest[0][1] if largest else 0,
            "owner_limit": self._owner_limit,
            "ended": self.ended,
        }

    # -- counting -------------------------------------------------------------------------------

    def _growth(self) -> int:
        """Returns the bytes by which all guests can have grown since the last count."""
        return (page_faults() - self._faults) * PAGE + self._added

    def _num_guests(self) -> int:
        return len(self._others) + sum(1 for _ in self._sequences())

    def _fits(self, owner: str, more: int) -> bool:
        growth = self._growth() + more
        own = self._bytes.get(owner, 0)
        return own + growth <= self._owner_limit and self._total + growth <= self._worker_limit

    def _least_growth(self) -> int:
        return max(MIN_GROWTH, self._owner_limit // GROWTH_PART)

    def _set_headroom(self) -> None:
        largest = max(self._bytes.values(), default=0)
        left = min(self._owner_limit - largest, self._worker_limit - self._total)
        self._headroom = max(left, self._least_growth())

    def _holders(self) -> Iterator[Holder]:
        """Yields all guests that have not been closed."""
        for seq in self._sequences():
            if seq.instance.store:
                yield Holder(seq.instance, seq.context, seq.request.owner_name, seq.request, seq.end)
        self._others = [holder for holder in self._others if holder.instance.store]
        yield from self._others

    def _count(self) -> None:
        begin = time.monotonic()
        self._faults, self._added = page_faults(), 0
        found: Counter[str] = Counter()
        seen: set[int] = set()
        for holder in self._holders():
            nbytes = _own_bytes(holder)
            for number, size in _shared(holder):
                if number not in seen:
                    seen.add(number)
                    nbytes += size
            found[holder.owner] += nbytes
        pending = 0 if self._reaper is None else self._reaper.pending_bytes
        self._bytes, self._total, self._seen = found, found.total() + pending, seen
        self._counted_guests = self._num_guests()
        self._counted_at = time.monotonic()
        self._counting_s = self._counted_at - begin

    def _end_guests(self, owner: str, excess: int, error: AiciError) -> bool:
        """Ends guests of an owner until `excess` bytes are free; returns whether there was one.

        Begins with the largest guest of the largest request.
        """
        mine = [holder for holder in self._holders() if holder.owner == owner]
        families: Counter[object] = Counter()
        users: Counter[int] = Counter()
        seen: set[tuple[int, int]] = set()
        for holder in mine:
            families[holder.family] += _own_bytes(holder)
            for number, size in _shared(holder):
                users[number] += 1
                if (id(holder.family), number) not in seen:
                    seen.add((id(holder.family), number))
                    families[holder.family] += size
        mine.sort(key=lambda holder: (families[holder.family], _own_bytes(holder)), reverse=True)
        ended = 0
        for holder in mine:
            if excess <= 0:
                break
            freed = _own_bytes(holder)
            for number, size in _shared(holder):
                users[number] -= 1
                if not users[number]:
                    freed += size
            holder.end(type(error)(error.message, **error.detail))
            excess -= freed
            self._bytes[owner] -= freed
            self._total -= freed
            ended += 1
        self.ended += ended
        return ended > 0

    # -- errors ---------------------------------------------------------------------------------

    def _owner_error(self, owner: str, nbytes: int) -> OwnerLimitError:
        return OwnerLimitError(
            f"the controllers of owner {owner!r} in this worker use, or would use, {nbytes} bytes of memory; "
            f"the limit is {self._owner_limit} (owner_memory_bytes), beyond which sequences of the largest "
            f"request end first: {_CURE}",
            limit=self._owner_limit,
            bytes=nbytes,
        )

    def _worker_error(self, owner: str, total: int) -> SpaceError:
        return SpaceError(
            f"all controllers in this worker use, or would use, {total} bytes of memory; the limit is "
            f"{self._worker_limit} (worker_memory_bytes), and owner {owner!r} has the most: {_CURE}",
            limit=self._worker_limit,
            bytes=total,
        )


def _own_bytes(holder: Holder) -> int:
    """Returns the bytes that a guest does not share, with its stack if it is in the middle of a call."""
    instance = holder.instance
    stack = WASM_STACK if instance.fiber is not None else 0
    return instance.changed_bytes() + _besides(instance.program) + stack


def _besides(program: Program) -> int:
    """Returns the bytes that a guest takes besides its memory."""
    return SEQUENCE_BYTES + program.instance_bytes


def _shared(holder: Holder) -> list[tuple[int, int]]:
    """Returns (`id`, bytes) of each object that a guest may share with others."""
    image, sources = holder.instance.base_image, holder.context.sources
    found = [(id(source), len(source)) for source in (sources[ARG], sources[PROMPT])]
    if image is not None:
        found.append((id(image), image.stored))
    return found
