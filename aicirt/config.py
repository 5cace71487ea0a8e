"""All limits of a daemon, as they go from its command line to its workers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from aicirt.settings import DaemonSettings, RequestLimits, WorkerSettings
from aicirt.user import User
from aicirt.wasm.limits import Limits


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """What every worker is told when it starts."""

    limits: Limits = field(default_factory=Limits)
    request: RequestLimits = field(default_factory=RequestLimits)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    daemon: DaemonSettings = field(default_factory=DaemonSettings)
    #: where compiled modules are; the folder in which workers are started
    code: str = ""
    #: how they write their log, one of `aicirt.logs.FORMATS`
    log_format: str = "text"
    #: as whom they run, if not as the daemon's user
    user: User | None = None

    @classmethod
    def with_overrides(cls, overrides: Mapping[str, float]) -> WorkerConfig:
        """The defaults with some limits replaced by name.

        Raises ValueError for an unknown name, and for what is no amount of that limit.
        """
        default = cls()
        groups = ("limits", "request", "worker", "daemon")
        parts: dict[str, Any] = {name: getattr(default, name) for name in groups}
        for name, value in overrides.items():
            for group, part in parts.items():
                kinds = {limit.name: type(getattr(part, limit.name)) for limit in fields(part)}
                if name in kinds:
                    parts[group] = replace(part, **{name: _amount(name, value, kinds[name])})
                    break
            else:
                known = sorted(limit.name for part in parts.values() for limit in fields(part))
                raise ValueError(f"there is no limit {name!r}; known: {', '.join(known)}")
        return cls(**parts)

    def to_json(self) -> str:
        """For the command line of the worker."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> WorkerConfig:
        """The other way round."""
        data = json.loads(text)
        user = data.pop("user")
        return cls(
            Limits(**data.pop("limits")),
            RequestLimits(**data.pop("request")),
            WorkerSettings(**data.pop("worker")),
            DaemonSettings(**data.pop("daemon")),
            user=User(**user) if user else None,
            **data,
        )


def _amount(name: str, value: float, kind: type[int] | type[float]) -> int | float:
    if not 0 <= value < float("inf"):
        raise ValueError(f"{name} is {value:g}; it must be 0 or a positive number")
    if kind is int and value != int(value):
        raise ValueError(f"{name} is {value:g}; it must be a whole number")
    return kind(value)
