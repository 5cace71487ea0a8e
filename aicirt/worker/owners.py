"""State that the forks of a request, or all requests of an owner, share: variables and limits."""

from __future__ import annotations

from collections import Counter
from typing import Any
from weakref import WeakValueDictionary

from aicirt.contract.abi import CALL_RESULT
from aicirt.contract.errors import (
    AiciError,
    DeadlockError,
    LivelockError,
    OwnerLimitError,
    SpaceError,
    VariableLimitError,
)
from aicirt.settings import RequestLimits, WorkerSettings
from aicirt.worker.waits import CallDesk, RequestCalls, Waiter, Waits

#: requests' variables with unreported writes, in the order of their first unreported write
Written = dict["Variables", None]

#: what the names of variables begin with that a library needs for itself: clients do not see them
_OWN = b"aici."
#: the answers that take the place of others, as JSON
_NO_ROOM = (
    b'{"error": {"code": "too_long", "message": "there is no room for the answer: unread answers of this '
    b'request already take as much as they may (max_result_bytes)"}}'
)
_DROPPED = (
    b'{"error": {"code": "dropped", "message": "this answer was read before, and has made room for later '
    b'ones (max_result_bytes)"}}'
)


class Variables:
    """Named byte strings with versions. A missing variable has version 0; every write adds 1."""

    __slots__ = (
        "_bytes",
        "_limits",
        "_owner",
        "_read",
        "_result_bytes",
        "_results",
        "_unreported",
        "_values",
        "_waits",
        "_written",
        "watchers",
        "writes",
    )

    def __init__(
        self,
        limits: RequestLimits,
        owner: Owner | None = None,
        written: Written | None = None,
        waits: Waits | None = None,
    ) -> None:
        """`owner`: the owner of the variables; all variables of an owner share a second limit.

        `written`: collects the variables with writes that have not been reported to the client. `waits`: the
        sequences that wait for writes.
        """
        self._waits = Waits() if waits is None else waits
        #: sequences that wait for a write, by the name of the variable
        self.watchers: dict[bytes, dict[Waiter, None]] = {}
        #: answers to calls; they have a limit of their own
        self._results: dict[bytes, bytes] = {}
        self._result_bytes = 0
        #: the answers that have been read and still take room, in this order
        self._read: dict[bytes, None] = {}
        self._limits = limits
        self._owner = owner
        self._written: Written = {} if written is None else written
        #: names with unreported writes, oldest first
        self._unreported: dict[bytes, None] = {}
        self._values: dict[bytes, tuple[int, bytes]] = {}
        self._bytes = 0
        #: number of writes so far, by which a change in a step is detected
        self.writes = 0

    def get(self, name: bytes) -> tuple[int, bytes]:
        """Returns (version, value); (0, b"") if the variable is missing."""
        if name.startswith(CALL_RESULT):
            if (result := self._results.get(name)) is None:
                return 0, b""
            if result is not _DROPPED:
                self._read[name] = None
            return 1, result
        return self._values.get(name, (0, b""))

    def version(self, name: bytes) -> int:
        """Returns the version of a variable, 0 if it is missing."""
        return int(name in self._results) if name.startswith(CALL_RESULT) else self.get(name)[0]

    def deliver(self, name: bytes, result: bytes) -> None:
        """Records the answer to a call. Answers that have been read make room for it, the oldest first."""
        while self._read and not self._has_room(result):
            old = next(iter(self._read))
            del self._read[old]
            self._keep_result(old, _DROPPED)
        has_room = self._has_room(result)
        if not has_room and self._owner is not None:
            self._owner.counters["answers_dropped"] += 1
        self._keep_result(name, result if has_room else _NO_ROOM)
        self._wake(name)

    def _has_room(self, result: bytes) -> bool:
        owner = self._owner
        return self._result_bytes + len(result) <= self._limits.max_result_bytes and (
            owner is None or owner.has_variable_room(len(result))
        )

    def _keep_result(self, name: bytes, result: bytes) -> None:
        """Keeps an answer in place of another one. The two short answers that make room count nothing."""
        fixed = (_DROPPED, _NO_ROOM)
        old = self._results.get(name, _DROPPED)
        more = (0 if result in fixed else len(result)) - (0 if old in fixed else len(old))
        if self._owner is not None:
            self._owner.keep_variables(more)
        self._result_bytes += more
        self._results[name] = result

    def _wake(self, name: bytes) -> None:
        if self.watchers:
            for seq in list(self.watchers.get(name, ())):
                self._waits.wake(seq)

    def set(self, name: bytes, value: bytes, when_version: int | None = None) -> int:
        """Replaces the value; returns the new version, or 0 if `when_version` is not the current one.

        Raises VariableLimitError or OwnerLimitError.
        """
        version, old = self.get(name)
        if when_version is not None and when_version != version:
            return 0
        if version == 0:
            if len(name) > self._limits.max_variable_name:
                raise VariableLimitError(
                    f"a variable name has {len(name)} bytes; the limit is {self._limits.max_variable_name}"
                )
            if len(self._values) >= self._limits.max_variables:
                raise VariableLimitError(f"the request has {len(self._values)} variables, which is the limit")
        grown = self._bytes + len(value) - len(old) + (len(name) if version == 0 else 0)
        if grown > self._limits.max_variable_bytes:
            raise VariableLimitError(
                f"the variables of the request would take {grown} bytes; "
                f"the limit is {self._limits.max_variable_bytes}"
            )
        if self._owner is not None:
            self._owner.keep_variables(grown - self._bytes)
        self._bytes = grown
        self._values[name] = (version + 1, value)
        self.writes += 1
        self._note(name)
        self._wake(name)
        return version + 1

    def _note(self, name: bytes) -> None:
        if not name.startswith(_OWN):
            self._unreported[name] = None
            self._written[self] = None

    def take_unreported(self) -> list[list[Any]]:
        """Returns [name, version, value] of each variable that was written since the last call."""
        unreported = [[name, *self._values[name]] for name in self._unreported]
        self._forget()
        return unreported

    def _forget(self) -> None:
        self._unreported.clear()
        self._written.pop(self, None)

    def clear(self) -> None:
        """Discards all variables when the request has ended."""
        if self._owner is not None:
            self._owner.keep_variables(-self._bytes - self._result_bytes)
        self._values.clear()
        self._results.clear()
        self._read.clear()
        self._bytes = self._result_bytes = 0
        self._forget()

    def append(self, name: bytes, value: bytes, when_version: int | None = None) -> int:
        """Appends to the current value; otherwise like `set`."""
        return self.set(name, self.get(name)[1] + value, when_version)


class Owner:
    """An owner's use of this worker; exists at least as long as one of the owner's requests."""

    __slots__ = (
        "__weakref__",
        "_active",
        "_settings",
        "counters",
        "debt_ns",
        "log_bytes",
        "name",
        "sequences",
        "variable_bytes",
    )

    def __init__(
        self, name: str, settings: WorkerSettings, counters: Counter[str], active: set[Owner]
    ) -> None:
        """`counters`: counts dropped output. `active`: has this owner while it has sequences."""
        self.name = name
        self.counters = counters
        #: number of live sequences
        self.sequences = 0
        #: CPU time (ns) that the owner's sequences have used beyond its share of earlier steps
        self.debt_ns = 0
        #: bytes of all variables, names and values
        self.variable_bytes = 0
        #: bytes of output that have not been sent to clients yet
        self.log_bytes = 0
        self._settings = settings
        self._active = active

    def add_sequence(self) -> None:
        """Counts one more live sequence."""
        self.sequences += 1
        self._active.add(self)

    def remove_sequence(self) -> None:
        """Counts one live sequence less."""
        self.sequences -= 1
        if not self.sequences:
            self._active.remove(self)

    def check_sequences(self, more: int) -> None:
        """Raises OwnerLimitError if the owner may not have `more` sequences in addition."""
        limit = self._settings.owner_sequences
        if self.sequences + more > limit:
            raise OwnerLimitError(
                f"owner {self.name!r} has {self.sequences} sequences in this worker; the limit is {limit} "
                "(owner_sequences)",
                limit=limit,
            )

    def keep_variables(self, more: int) -> None:
        """Counts `more` bytes of variables; a negative number releases bytes. Raises OwnerLimitError."""
        limit = self._settings.owner_variable_bytes
        if more > 0 and self.variable_bytes + more > limit:
            raise OwnerLimitError(
                f"the variables of all requests of owner {self.name!r} in this worker would take "
                f"{self.variable_bytes + more} bytes; the limit is {limit} (owner_variable_bytes): write "
                "shorter values, or run fewer requests at a time",
                limit=limit,
            )
        self.variable_bytes += more

    def has_variable_room(self, more: int) -> bool:
        """Returns whether `more` bytes of variables may be added."""
        return self.variable_bytes + more <= self._settings.owner_variable_bytes

    @property
    def log_room(self) -> int:
        """Bytes of output that may still be added."""
        return max(0, self._settings.owner_log_bytes - self.log_bytes)

    @property
    def log_limit(self) -> int:
        """Most bytes of output that may be kept."""
        return self._settings.owner_log_bytes


class Owners:
    """The owners of all requests in a worker, by name."""

    def __init__(self, settings: WorkerSettings, counters: Counter[str]) -> None:
        self._settings = settings
        self._counters = counters
        self._owners: WeakValueDictionary[str, Owner] = WeakValueDictionary()
        #: kept, since the next request is often of the same owner
        self._last: Owner | None = None
        #: owners with sequences
        self.active: set[Owner] = set()
        #: owners that have used more than their share of the last step
        self.in_debt: list[Owner] = []

    def get(self, name: str) -> Owner:
        """Returns the owner with this name, and creates it if needed."""
        owner = self._owners.get(name)
        if owner is None:
            owner = self._owners[name] = Owner(name, self._settings, self._counters, self.active)
        self._last = owner
        return owner

    def check_room(self, owner: Owner | None, count: int, others: int = 0) -> None:
        """Raises SpaceError or OwnerLimitError if there is no room for `count` more sequences of the owner.

        `others`: number of other owners' sequences that are about to be made.
        """
        live, limit = sum(one.sequences for one in self.active), self._settings.max_sequences
        if live + count + others > limit:
            raise SpaceError(
                f"this worker has {live} sequences; the limit is {limit} (max_sequences)", limit=limit
            )
        if owner is not None:
            owner.check_sequences(count)


def _all(count: int) -> str:
    return "the only sequence" if count == 1 else f"all {count} sequences"


def _nobody(_: int) -> None:
    """Charges nobody: the request has no owner."""


class RequestState:
    """Variables and counts of a sequence and all its forks."""

    __slots__ = (
        "calls",
        "clones",
        "forked",
        "idle_rounds",
        "limits",
        "live",
        "owner",
        "parked",
        "suspended_rounds",
        "template",
        "variables",
        "waits",
        "woken",
        "writes_seen",
    )

    def __init__(
        self,
        limits: RequestLimits,
        owner: Owner | None = None,
        written: Written | None = None,
        waits: Waits | None = None,
        woken: list[int] | None = None,
    ) -> None:
        """`written`: see `Variables`. `woken`: numbers of sequences that wait no longer, for the client."""
        self.limits = limits
        #: the owner of the request
        self.owner = owner
        self.waits = Waits() if waits is None else waits
        self.woken: list[int] = [] if woken is None else woken
        #: sequences that wait for something (`aicirt.worker.waits`)
        self.parked: dict[Waiter, None] = {}
        #: None if nobody answers calls of this request
        self.calls: RequestCalls | None = None
        self.variables = Variables(limits, owner, written, self.waits)
        #: number of the template that the request started from
        self.template = 0
        #: live sequences; `clones` of them were made by the engine and do not count against the fork limit
        self.live = 1
        self.clones = 0
        #: forks in all, the engine's clones not counted
        self.forked = 0
        #: rounds in a row in which every sequence was suspended and no variable was written
        self.suspended_rounds = 0
        #: rounds in a row in which some sequences were suspended and no sequence got or lost a token
        self.idle_rounds = 0
        self.writes_seen = 0

    @property
    def owner_name(self) -> str:
        """The owner's name; "" if the request has no owner."""
        return "" if self.owner is None else self.owner.name

    def allow_calls(self, desk: CallDesk, token: str) -> None:
        """Lets the controller make calls, which those answer who have made this offer."""
        charge = _nobody if self.owner is None else self.owner.keep_variables
        self.calls = RequestCalls(desk, token, self.limits, self._deliver, charge)

    def _deliver(self, name: bytes, result: bytes) -> None:
        self.variables.deliver(name, result)
        self.waits.suspect(self)

    @property
    def stuck(self) -> bool:
        """Whether no answer is to come, and no waiting sequence waits for a time."""
        pending = self.calls is not None and self.calls.pending
        return not pending and all(seq.waiting is None or seq.waiting.until is None for seq in self.parked)

    def left(self, by_engine: bool) -> None:
        """Records that a sequence has ended; `by_engine`: the engine had made it as a clone."""
        self.live -= 1
        self.clones -= by_engine
        if self.live == 0:
            self.variables.clear()
            if self.calls is not None:
                self.calls.close()
        else:
            self.waits.suspect(self)

    def round_over(self, suspended: int, going: int, changed: bool) -> AiciError | None:
        """Counts a round with suspended sequences; returns the error that ends them if a limit is exceeded.

        `suspended` and `going` are numbers of sequences; `changed`: tokens were added or removed. A round
        counts only if all live sequences took part, because the suspended ones may wait for the others.
        """
        limits, writes = self.limits, self.variables.writes
        # those that wait in vain count as suspended; while an answer may come, the counts stand still
        all_took_part = suspended + going + (len(self.parked) if self.stuck else 0) == self.live
        stuck = all_took_part and not going and writes == self.writes_seen
        self.suspended_rounds = self.suspended_rounds + 1 if stuck else 0
        self.idle_rounds = self.idle_rounds + 1 if all_took_part and not changed else 0
        self.writes_seen = writes
        if self.suspended_rounds > limits.max_suspended_steps:
            return DeadlockError(
                f"{_all(suspended)} of the request stayed suspended for {limits.max_suspended_steps} rounds "
                "and wrote no variable: does it wait for a variable that no fork writes?"
            )
        if self.idle_rounds > limits.max_idle_steps:
            return LivelockError(
                f"{suspended} of the {self.live} sequences of the request stayed suspended for "
                f"{limits.max_idle_steps} rounds in which no token was added or removed"
            )
        return None
