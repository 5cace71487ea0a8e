"""The place of a sequence: a worker, and the snapshot there that it starts from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class WorkerAddress:
    """The address of a worker, as sent by the supervisor."""

    worker: int
    generation: int
    pid: int
    bell: str

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> WorkerAddress:
        """Reads the answer to `destination`, or the same fields of the answer to `instantiate`."""
        return cls(wire["worker"], wire["generation"], wire["pid"], wire["bell"])


@dataclass(frozen=True, slots=True)
class Placement:
    """The worker that a sequence will start in, and the snapshot there that it starts from."""

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
        """Returns the fields that report to the supervisor that the snapshot is gone."""
        return [self.address.worker, self.address.generation, self.template]
