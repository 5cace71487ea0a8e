"""What is known of a stored module."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from aicirt.errors import ProtocolError
from aicirt.wasm.check import ModuleReport

#: what a step could do beside answering, or is told otherwise in a copy
_TRACES = {"aici.var_write", "wasi_snapshot_preview1.random_get"}


@dataclass(slots=True)
class ModuleInfo:
    """One accepted module, or a script. All fields are plain data: `to_wire` packs with msgpack or JSON."""

    #: SHA-256 of the file, 64 hexadecimal digits
    id: str
    #: bytes of the .wasm file or of the script's text, and of the compiled artifact
    size: int
    compiled_size: int = 0
    #: SHA-256 of the compiled artifact
    compiled_sha256: str = ""
    abi_version: int = 0
    has_init: bool = False
    has_init_prompt: bool = False
    has_pre: bool = False
    has_post: bool = False
    #: bytes of linear memory at the start
    initial_memory: int = 0
    exports: list[str] = field(default_factory=list)
    #: ``module.name``
    imports: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    #: who has uploaded it, as far as that is known
    owners: list[str] = field(default_factory=list)
    #: Unix seconds of the first upload; 0.0 = unknown
    created: float = 0.0
    #: of a script: its language, its name in messages, and the id of the module that runs it; else empty
    language: str = ""
    script: str = ""
    interpreter: str = ""

    @property
    def repeatable(self) -> bool:
        """Whether steps of a copy can be forgotten: answers and output are all that comes of them.

        It takes no part in forks and log-probabilities, writes no variables, and draws no random numbers,
        which are others in a copy.
        """
        return not (self.has_pre or self.has_post or _TRACES & set(self.imports))

    def to_wire(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> ModuleInfo:
        """Raises `ProtocolError` if a field is missing that has no default; ignores unknown ones."""
        known = {f.name for f in fields(cls)}
        try:
            return cls(**{k: v for k, v in wire.items() if k in known})
        except (TypeError, AttributeError) as error:
            raise ProtocolError(f"not a description of a module: {error}") from None

    @classmethod
    def from_report(cls, module_id: str, report: ModuleReport) -> ModuleInfo:
        return cls(
            id=module_id,
            size=report.size,
            abi_version=report.abi_version or 0,
            has_init=report.has_init,
            has_init_prompt=report.has_init_prompt,
            has_pre=report.has_pre,
            has_post=report.has_post,
            initial_memory=report.initial_memory,
            exports=[e.name for e in report.exports],
            imports=[f"{i.module}.{i.name}" for i in report.imports],
        )
