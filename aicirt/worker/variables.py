"""Variables that the forks of one request share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aicirt.errors import ProtocolError, VariableLimitError
from aicirt.settings import RequestLimits

if TYPE_CHECKING:
    from aicirt.worker.owner import Owner

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
        """What another process had, in place of nothing. Raises VariableLimitError or OwnerLimitError."""
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
