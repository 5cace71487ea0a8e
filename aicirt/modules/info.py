"""What is known of a stored module."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from aicirt.errors import ProtocolError
from aicirt.settings import DESCRIBED_CHARACTERS, DESCRIBED_NAMES
from aicirt.wasm.abi import EXPORTS
from aicirt.wasm.check import ModuleReport

#: what a step could do beside answering, or is told otherwise in a copy
_TRACES = {"aici.var_write", "wasi_snapshot_preview1.random_get"}
#: names that the runtime looks for: they are described whatever else a module has
_INTERFACE = {"memory", *(name for name, _ in EXPORTS.values()), *_TRACES}

#: what a compiler tells of a module, with its type
_FROM_COMPILER = {
    **dict.fromkeys(("compiled_size", "abi_version", "initial_memory", "more_exports"), int),
    **dict.fromkeys(("has_init", "has_init_prompt", "has_pre", "has_post"), bool),
    **dict.fromkeys(("exports", "imports"), list),
    "compiled_sha256": str,
}


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
    #: the first of them, those of the controller interface before others; long names are shortened
    exports: list[str] = field(default_factory=list)
    #: ``module.name``, each once
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
    #: how many exports there are besides
    more_exports: int = 0

    @property
    def repeatable(self) -> bool:
        """Whether steps of a copy can be forgotten: answers and output are all that comes of them.

        It takes no part in forks and log-probabilities, writes no variables, and draws no random numbers,
        which are others in a copy.
        """
        return not (self.has_pre or self.has_post or _TRACES & set(self.imports))

    @property
    def nbytes(self) -> int:
        """About as many as it takes on the wire."""
        names = (self.exports, self.imports, self.tags, self.owners)
        return 1024 + sum(len(name.encode()) + 3 for some in names for name in some)

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
    def from_compiler(cls, wire: object, module_id: str, size: int) -> ModuleInfo:
        """Builds the description from what a compiler has answered, which may have been broken out of.

        Takes nothing from it but what only the compiler knows. Raises `ProtocolError`.
        """
        if not isinstance(wire, dict):
            raise ProtocolError("not a description of a module")
        for name, kind in _FROM_COMPILER.items():
            value = wire.get(name)
            if type(value) is not kind or (
                isinstance(value, list) and not all(isinstance(entry, str) for entry in value)
            ):
                raise ProtocolError(f"not a description of a module: {name}")
        told = {name: wire[name] for name in _FROM_COMPILER}
        lists = {name: _bounded(value) for name, value in told.items() if isinstance(value, list)}
        return cls(module_id, size, **{**told, **lists})

    @classmethod
    def from_report(cls, module_id: str, report: ModuleReport) -> ModuleInfo:
        exports = [export.name for export in report.exports]
        return cls(
            id=module_id,
            size=report.size,
            abi_version=report.abi_version or 0,
            has_init=report.has_init,
            has_init_prompt=report.has_init_prompt,
            has_pre=report.has_pre,
            has_post=report.has_post,
            initial_memory=report.initial_memory,
            exports=_described(exports),
            imports=_described([f"{i.module}.{i.name}" for i in report.imports]),
            more_exports=max(0, len(dict.fromkeys(exports)) - DESCRIBED_NAMES),
        )


def _described(names: list[str]) -> list[str]:
    """So many of the names as a description may have, each once, in their order."""
    found = list(dict.fromkeys(names))
    if len(found) > DESCRIBED_NAMES:
        found.sort(key=lambda name: name not in _INTERFACE)
    return _bounded(found)


def _bounded(names: list[str]) -> list[str]:
    return [_shortened(name) for name in names[:DESCRIBED_NAMES]]


def _shortened(name: str) -> str:
    if len(name) <= DESCRIBED_CHARACTERS:
        return name
    end = f"... ({len(name)} characters)"
    return name[: DESCRIBED_CHARACTERS - len(end)] + end
