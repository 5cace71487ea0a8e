"""What all requests of one owner in this worker have together: those of templates that are the owner's."""

from __future__ import annotations

from collections import Counter
from weakref import WeakValueDictionary

from aicirt.errors import OwnerLimitError
from aicirt.settings import WorkerSettings


class Owner:
    """What an owner's live requests have here; lives as long as one of them."""

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
