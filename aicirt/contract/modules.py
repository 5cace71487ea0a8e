"""Descriptions of stored modules and scripts, and the names by which users find them."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from aicirt.contract.abi import EXPORTS
from aicirt.contract.errors import ArgumentError, ModuleError, ProtocolError, UnknownModuleError

#: bytes of a text: far beyond what people write, and with the quotes of JSON within what a server takes
MAX_SOURCE = 1 << 20
#: characters of a name, which stands in every line of a traceback
MAX_NAME = 256
#: names stand in messages of several lines, which they may not break
NAME_PATTERN = r"^[^\x00-\x1f\x7f]+$"

#: what an id looks like
MODULE_ID = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class StoredScript:
    """Sequences that start from it start from its interpreter, whose argument has the text."""

    #: id of the module that runs it
    interpreter: str
    #: as people call it, e.g. "python"
    language: str
    #: the name that messages about it say
    name: str
    source: str

    def check(self) -> None:
        """Raises ModuleError for what cannot be kept."""
        if not all(isinstance(value, str) for value in (self.interpreter, self.language, self.source)):
            raise ModuleError("a script has texts: interpreter, language, name, source")
        if not MODULE_ID.fullmatch(self.interpreter):
            raise ModuleError("the interpreter of a script is the id of a module")
        if not re.fullmatch("[a-z]{1,32}", self.language):
            raise ModuleError("the language of a script is a word of small letters")
        check_name(self.name)
        if not self.source:
            raise ModuleError("the script is empty")
        try:
            size = len(self.source.encode())
        except UnicodeEncodeError:
            raise ModuleError("the script has half of a surrogate pair, which is no character") from None
        if size > MAX_SOURCE:
            raise ModuleError(
                f"the script has {size} bytes, and may have {MAX_SOURCE}; data can come as its argument"
            )

    @property
    def id(self) -> str:
        """The id of the script: the SHA-256 of its file, as for modules."""
        return hashlib.sha256(self.pack()).hexdigest()

    def pack(self) -> bytes:
        """Returns the file of the script: the same bytes for the same script."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def unpack(cls, data: bytes) -> StoredScript:
        """Reads the file of a script. Raises ModuleError if it is invalid."""
        try:
            found = json.loads(data)
            script = cls(**{one.name: found[one.name] for one in fields(cls)})
        except (ValueError, LookupError, TypeError, RecursionError):
            raise ModuleError("it is no script") from None
        script.check()
        return script

    def argument(self, arg: bytes) -> bytes:
        """Returns the argument for the interpreter that passes `arg` to the script. Raises ArgumentError."""
        try:
            value = script_value(arg.decode() if arg else None)
            return interpreter_argument(self.source, self.name, value).encode()
        except UnicodeDecodeError as error:
            raise ArgumentError(f"the argument of a script is a text in UTF-8: {error}") from None
        except RecursionError:
            raise ArgumentError("the argument of a script has too many values within each other") from None


def check_name(name: Any) -> None:
    """Raises ModuleError for what messages cannot call a script."""
    try:
        fits = len(name) <= MAX_NAME and re.fullmatch(NAME_PATTERN, name) and name.encode()
    except (TypeError, UnicodeEncodeError):
        fits = False
    if not fits:
        raise ModuleError(
            f"the name of a script is a file's, of at most {MAX_NAME} characters without line ends"
        )


def interpreter_argument(source: str, name: str, value: Any) -> str:
    """Returns the argument of the controller that runs this script with this JSON value.

    Raises ValueError or TypeError if `value` is not a JSON value.
    """
    return json.dumps({"script": source, "name": name, "arg": value}, allow_nan=False)


def script_value(text: str | None) -> Any:
    """Returns the value that a script receives for a text argument: its JSON value if it is JSON, else the
    text itself, and None without an argument.

    Python's reader takes NaN, Infinity and 1e999 for numbers, which they are not in JSON, or not here: they
    are texts.
    """
    if text is None:
        return None
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return text


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits} is more than a number can be")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no value of JSON")


#: digits of the shortest beginning of an id that is taken for one, where a user sees the list of ids
SHORTEST_ID = 8
#: the same where the list is not shown: 48 bits, so that nobody finds the ids of others by trying
SHORTEST_UNSEEN_ID = 12
_BEGINNING = re.compile(f"[0-9a-f]{{{SHORTEST_ID},63}}")


def is_module_id(text: str) -> bool:
    """Returns whether this is a whole id."""
    return bool(MODULE_ID.fullmatch(text))


def looks_like_id(text: str) -> bool:
    """Returns whether this is an id or could be the beginning of one. No tag may look like that."""
    return is_module_id(text) or bool(_BEGINNING.fullmatch(text))


def resolve_name(
    name: str,
    ids: Callable[[], Iterable[str]],
    tags: Callable[[], Mapping[str, str]],
    shortest: int = SHORTEST_UNSEEN_ID,
) -> str:
    """Returns the module id that `name` means: itself, the one id that begins so, or the id of a tag.

    `ids` lists the stored modules, `tags` maps each tag to its module; each is called only where it is
    needed. Raises UnknownModuleError if nothing has this name, or if several ids begin with it.
    """
    if is_module_id(name):
        return name
    if looks_like_id(name) and len(name) >= shortest:
        found = [module_id for module_id in ids() if module_id.startswith(name)]
        if len(found) > 1:
            problem = f"{len(found)} modules begin with {name!r}: say more of the id"
            raise UnknownModuleError(problem, modules=len(found))
        if found:
            return found[0]
    module = tags().get(name)
    if module is None:
        raise UnknownModuleError(f"no module or tag {name!r}")
    return module


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


#: names of imports and of exports that the description of a module lists, and characters of each. A
#: controller has about ten, and every list has the descriptions of many
DESCRIBED_NAMES, DESCRIBED_CHARACTERS = 64, 128


@dataclass(slots=True)
class ModuleInfo:
    """Describes one accepted module or script. All fields are plain data, for msgpack or JSON."""

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
        """Whether steps of a copy have no effects besides results and output, so that they can be discarded.

        Such a controller has no part in forks and log-probabilities, writes no variables, and draws no random
        numbers, which would differ in a copy.
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


def described_names(names: list[str]) -> list[str]:
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
