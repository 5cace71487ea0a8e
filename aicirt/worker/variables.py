"""Variables that the forks of one request share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aicirt.errors import ProtocolError, VariableLimitError
from aicirt.settings import RequestLimits

if TYPE_CHECKING:
    from aicirt.worker.owner import Owner


class Variables:
    """Named byte strings with versions. A missing variable has version 0; every write adds 1."""

    __slots__ = ("_bytes", "_limits", "_owner", "_values", "writes")

    def __init__(self, limits: RequestLimits, owner: Owner | None = None) -> None:
        """`owner`: whose variables they are; all of theirs together have a limit too."""
        self._limits = limits
        self._owner = owner
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
        return version + 1

    def state(self) -> list[Any]:
        """All of them, for `restore` in another process."""
        return [self.writes, [[name, *value] for name, value in self._values.items()]]

    def restore(self, state: list[Any]) -> None:
        """What another process had, in place of nothing. Raises VariableLimitError or OwnerLimitError."""
        writes, values = state
        for name, version, value in values:
            if not (isinstance(name, bytes) and isinstance(version, int) and isinstance(value, bytes)):
                raise ProtocolError("a variable that is none")
            self.set(name, value)
            self._values[name] = version, value
        self.writes = int(writes)

    def clear(self) -> None:
        """The request has ended: nobody will read them."""
        if self._owner is not None:
            self._owner.keep_variables(-self._bytes)
        self._values.clear()
        self._bytes = 0

    def append(self, name: bytes, value: bytes, when_version: int | None = None) -> int:
        """Like `set`, with the value added to the end of the present one."""
        return self.set(name, self.get(name)[1] + value, when_version)
