"""State that forks of a request share, or all requests of an owner: variables, limits, time."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any
from weakref import WeakValueDictionary

from aicirt.contract.errors import (
    AiciError,
    DeadlockError,
    LivelockError,
    OwnerLimitError,
    ProtocolError,
    VariableLimitError,
)
from aicirt.settings import TICK_MS, RequestLimits, WorkerSettings

#: variables of requests, those first that have waited longest to be told
Written = dict["Variables", None]


class Variables:
    """Named byte strings with versions. A missing variable has version 0; every write adds 1."""

    __slots__ = ("_bytes", "_limits", "_owner", "_untold", "_values", "_written", "writes")

    def __init__(
        self, limits: RequestLimits, owner: Owner | None = None, written: Written | None = None
    ) -> None:
        """`owner`: whose variables they are; all of theirs together have a limit too. `written`: where those
        add themselves of whose writes a client has yet to be told."""
        self._limits = limits
        self._owner = owner
        self._written: Written = {} if written is None else written
        #: names of what has been written since the client was told, in this order
        self._untold: dict[bytes, None] = {}
        self._values: dict[bytes, tuple[int, bytes]] = {}
        self._bytes = 0
        #: number of writes so far: tells whether anything changed in a step
        self.writes = 0

    def get(self, name: bytes) -> tuple[int, bytes]:
        """(version, value); (0, b"") if missing."""
        return self._values.get(name, (0, b""))

    def set(self, name: bytes, value: bytes, when_version: int | None = None) -> int:
        """Replaces the value; returns the new version, or 0 if `when_version` is not the present one.

        Raises VariableLimitError or OwnerLimitError.
        """
        version, old = self.get(name)
        if when_version is not None and when_version != version:
            return 0
        if version == 0:
            if len(name) > self._limits.max_variable_name:
                raise VariableLimitError(
                    f"a variable name of {len(name)} bytes; the limit is {self._limits.max_variable_name}"
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
        return version + 1

    def _note(self, name: bytes) -> None:
        self._untold[name] = None
        self._written[self] = None

    def tell(self) -> list[list[Any]]:
        """[name, version, value] of what has been written since the last call."""
        told = [[name, *self._values[name]] for name in self._untold]
        self._forget()
        return told

    def _forget(self) -> None:
        self._untold.clear()
        self._written.pop(self, None)

    def state(self) -> list[Any]:
        """All of them, for `restore` in another process."""
        values = [[name, *value] for name, value in self._values.items()]
        return [self.writes, values, list(self._untold)]

    def restore(self, state: list[Any]) -> None:
        """Takes over the variables of another process. Raises VariableLimitError or OwnerLimitError."""
        writes, values, untold = state
        for name, version, value in values:
            if not (isinstance(name, bytes) and isinstance(version, int) and isinstance(value, bytes)):
                raise ProtocolError("a variable that is none")
            self.set(name, value)
            self._values[name] = version, value
        self.writes = int(writes)
        self._forget()
        for name in untold:
            if name not in self._values:
                raise ProtocolError("a variable that is to be told of, and is not there")
            self._note(name)

    def clear(self) -> None:
        """The request has ended: nobody will read them."""
        if self._owner is not None:
            self._owner.keep_variables(-self._bytes)
        self._values.clear()
        self._bytes = 0
        self._forget()

    def append(self, name: bytes, value: bytes, when_version: int | None = None) -> int:
        """Like `set`, with the value added to the end of the present one."""
        return self.set(name, self.get(name)[1] + value, when_version)


class Owner:
    """An owner's use of this worker; it lives as long as one of the owner's requests."""

    __slots__ = (
        "__weakref__",
        "_settings",
        "counters",
        "debt_ns",
        "log_bytes",
        "name",
        "sequences",
        "variable_bytes",
    )

    def __init__(self, name: str, settings: WorkerSettings, counters: Counter[str]) -> None:
        """`counters`: where output that is dropped is counted."""
        self.name = name
        self.counters = counters
        #: live ones
        self.sequences = 0
        #: CPU time that its sequences have used beyond its share of earlier steps
        self.debt_ns = 0
        #: bytes of all variables, names and values
        self.variable_bytes = 0
        #: bytes of output that clients have not got yet
        self.log_bytes = 0
        self._settings = settings

    def check_sequences(self, more: int) -> None:
        """Raises OwnerLimitError if the owner may not have so many more."""
        limit = self._settings.owner_sequences
        if self.sequences + more > limit:
            raise OwnerLimitError(
                f"owner {self.name!r} has {self.sequences} sequences in this worker, of {limit} that one may "
                "have",
                limit=limit,
            )

    def keep_variables(self, more: int) -> None:
        """Counts bytes of variables, which are given back with a negative number. Raises OwnerLimitError."""
        limit = self._settings.owner_variable_bytes
        if more > 0 and self.variable_bytes + more > limit:
            raise OwnerLimitError(
                f"the variables of all requests of owner {self.name!r} in this worker would take "
                f"{self.variable_bytes + more} bytes; the limit is {limit} (owner_variable_bytes): shorter "
                "values, or fewer requests at a time, need less",
                limit=limit,
            )
        self.variable_bytes += more

    @property
    def log_room(self) -> int:
        """Bytes of output that may still be kept."""
        return max(0, self._settings.owner_log_bytes - self.log_bytes)

    @property
    def log_limit(self) -> int:
        """Bytes of output that may be kept."""
        return self._settings.owner_log_bytes


class Owners:
    """The owners of all requests in a worker, by name."""

    def __init__(self, settings: WorkerSettings, counters: Counter[str]) -> None:
        self._settings = settings
        self._counters = counters
        self._owners: WeakValueDictionary[str, Owner] = WeakValueDictionary()
        #: those that have used more than their share of the last step
        self.in_debt: list[Owner] = []

    def __len__(self) -> int:
        """How many owners have something here."""
        return len(self._owners)

    def get(self, name: str) -> Owner:
        """The owner, who is made if nothing here is theirs yet."""
        owner = self._owners.get(name)
        if owner is None:
            owner = self._owners[name] = Owner(name, self._settings, self._counters)
        return owner


class Request:
    """Variables and counts of a sequence and everything forked from it."""

    __slots__ = (
        "clones",
        "idle_rounds",
        "limits",
        "live",
        "owner",
        "suspended_rounds",
        "variables",
        "writes_seen",
    )

    def __init__(
        self, limits: RequestLimits, owner: Owner | None = None, written: Written | None = None
    ) -> None:
        """`written`: see `Variables`."""
        self.limits = limits
        #: for whom it runs
        self.owner = owner
        self.variables = Variables(limits, owner, written)
        #: live sequences; of these, `clones` were made by the engine and are not held against the guest
        self.live = 1
        self.clones = 0
        #: rounds in a row in which every sequence was suspended and no variable was written
        self.suspended_rounds = 0
        #: rounds in a row in which some sequences were suspended and no sequence got or lost a token
        self.idle_rounds = 0
        self.writes_seen = 0

    @property
    def owner_name(self) -> str:
        """The owner's name; "" if it runs for nobody in particular."""
        return "" if self.owner is None else self.owner.name

    def left(self, by_engine: bool) -> None:
        """Records that a sequence has ended; `by_engine`: it was a clone that the engine had made."""
        self.live -= 1
        self.clones -= by_engine
        if self.live == 0:
            self.variables.clear()

    def round_over(self, suspended: int, going: int, changed: bool) -> AiciError | None:
        """Counts a round in which some sequences were suspended; what they end with if that is too much.

        `suspended` and `going` are numbers of sequences, `changed` tells whether tokens came or went. A round
        counts only if all live sequences took part: others may be what the suspended ones wait for.
        """
        limits, writes = self.limits, self.variables.writes
        everybody = suspended + going == self.live
        stuck = everybody and not going and writes == self.writes_seen
        self.suspended_rounds = self.suspended_rounds + 1 if stuck else 0
        self.idle_rounds = self.idle_rounds + 1 if everybody and not changed else 0
        self.writes_seen = writes
        if self.suspended_rounds > limits.max_suspended_steps:
            return DeadlockError(
                f"all {suspended} sequences of the request stayed suspended for "
                f"{limits.max_suspended_steps} rounds and wrote no variable"
            )
        if self.idle_rounds > limits.max_idle_steps:
            return LivelockError(
                f"{suspended} of the {self.live} sequences of the request stayed suspended for "
                f"{limits.max_idle_steps} rounds in which no token came or went"
            )
        return None


#: a call that takes longer has been looked at, and is charged what it was found to use
_LOOKED_AT_NS = int(2 * TICK_MS * 1e6)


def used_time(since_ns: int, now_ns: int, charged_ns: int) -> int:
    """Returns the ns that a call, or two in a row, have used, by `time.monotonic_ns` before and after.

    A long call counts with `charged_ns`, measured on the thread's clock, and the time before the first check
    of that clock: the other clock also counts other threads.
    """
    used = now_ns - since_ns
    return used if used < _LOOKED_AT_NS else min(used, charged_ns + _LOOKED_AT_NS)


class StepShares:
    """The time that each owner has used of a part of a step for which other owners wait.

    An owner that has used its share gets no more, unless no other owner has sequences in this worker. After a
    wall-clock time far beyond any share no owner gets more, so that the worker answers other clients.
    """

    __slots__ = ("_limit_ns", "_spent", "over_at", "shared")

    def __init__(self, owners: Owners, limit_ms: float, most_ms: float) -> None:
        """`limit_ms` is the CPU time of one owner, `most_ms` the time on the clock of all together."""
        #: whether there is more than one owner: else `has_time` and `charge` need not be called
        self.shared = len(owners) > 1
        #: when (`time.monotonic_ns`) no call may begin any more
        self.over_at = time.monotonic_ns() + int(most_ms * 1e6)
        self._limit_ns = int(limit_ms * 1e6)
        self._spent: dict[Owner | None, int] = {}

    def has_time(self, owner: Owner | None) -> bool:
        """Returns whether `owner` has a part of its share left."""
        return self._spent.get(owner, 0) < self._limit_ns

    def charge(self, owner: Owner | None, used_ns: int) -> None:
        """Counts what a call has used."""
        self._spent[owner] = self._spent.get(owner, 0) + used_ns

    def take_debts(self, owners: Owners) -> None:
        """Charges what owners have used beyond their share in earlier steps."""
        for owner in owners.in_debt:
            self._spent[owner] = owner.debt_ns

    def leave_debts(self, owners: Owners) -> None:
        """Keeps what owners have used beyond their share, for the next steps."""
        owners.in_debt.clear()
        for owner, spent in self._spent.items():
            if owner is not None and spent > self._limit_ns:
                owner.debt_ns = spent - self._limit_ns
                owners.in_debt.append(owner)
