"""Descriptions of stored modules and scripts, and the lookup of their names."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from aicirt.contract.abi import EXPORTS
from aicirt.contract.errors import ArgumentError, ModuleError, ProtocolError, UnknownControllerError

#: maximum bytes of a script: far more than people write, and still within a server's limit as quoted JSON
MAX_SOURCE = 1 << 20
#: maximum characters of a name, which appears in every line of a traceback
MAX_NAME = 256
#: no control characters: names appear in messages of several lines, whose layout they must not break
NAME_PATTERN = r"^[^\x00-\x1f\x7f]+$"

#: pattern of an id
MODULE_ID = re.compile("[0-9a-f]{64}")
#: tags, which are no paths; `looks_like_id` excludes ids
TAG_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class StoredScript:
    """A stored script. Its sequences run the interpreter, whose argument contains the script's text."""

    #: id of the module that runs the script
    interpreter: str
    #: the language's common name, e.g. "python"
    language: str
    #: the script's name in messages
    name: str
    source: str

    def check(self) -> None:
        """Raises ModuleError if the script is invalid."""
        if not all(isinstance(value, str) for value in (self.interpreter, self.language, self.source)):
            raise ModuleError("the interpreter, language and source of a script must be texts")
        if not MODULE_ID.fullmatch(self.interpreter):
            raise ModuleError("the interpreter of a script must be the id of a module")
        if not re.fullmatch("[a-z]{1,32}", self.language):
            raise ModuleError("the language of a script must have 1 to 32 letters from a to z")
        check_name(self.name)
        if not self.source:
            raise ModuleError("the script is empty")
        try:
            size = len(self.source.encode())
        except UnicodeEncodeError:
            raise ModuleError("the script has half of a surrogate pair, which is not a character") from None
        if size > MAX_SOURCE:
            raise ModuleError(
                f"the script has {size} bytes; the limit is {MAX_SOURCE}. Pass large data as its argument"
            )

    @property
    def id(self) -> str:
        """The id of the script: the SHA-256 of its file, like the id of a module."""
        return hashlib.sha256(self.pack()).hexdigest()

    def pack(self) -> bytes:
        """Returns the content of the script's file: equal bytes for equal scripts."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def unpack(cls, data: bytes) -> StoredScript:
        """Reads the content of a script's file. Raises ModuleError if it is invalid."""
        try:
            found = json.loads(data)
            script = cls(**{one.name: found[one.name] for one in fields(cls)})
        except (ValueError, LookupError, TypeError, RecursionError):
            raise ModuleError("the file is not a valid script") from None
        script.check()
        return script

    def argument(self, arg: bytes) -> bytes:
        """Returns the argument for the interpreter that passes `arg` to the script.

        Raises ArgumentError if `arg` is not UTF-8 or is nested too deeply.
        """
        try:
            value = script_value(arg.decode() if arg else None)
            return interpreter_argument(self.source, self.name, value).encode()
        except UnicodeDecodeError as error:
            raise ArgumentError(f"the argument of a script must be UTF-8 text: {error}") from None
        except RecursionError:
            raise ArgumentError("the argument of a script is nested too deeply") from None


def check_name(name: Any) -> None:
    """Raises ModuleError if messages cannot use `name` as the name of a script."""
    try:
        fits = len(name) <= MAX_NAME and re.fullmatch(NAME_PATTERN, name) and name.encode()
    except (TypeError, UnicodeEncodeError):
        fits = False
    if not fits:
        raise ModuleError(
            f"the name of a script must have 1 to {MAX_NAME} characters and no control characters"
        )


def interpreter_argument(source: str, name: str, value: Any) -> str:
    """Returns the argument for an interpreter that runs this script with this JSON value.

    Raises ValueError or TypeError if `value` is not a JSON value.
    """
    return json.dumps({"script": source, "name": name, "arg": value}, allow_nan=False)


def script_value(text: str | None) -> Any:
    """Returns the value that a script receives for a text argument.

    JSON is parsed, any other text is passed as it is, and a missing argument gives None. Python's parser
    accepts NaN, Infinity and 1e999 as numbers; here they are texts, since JSON does not define the first two
    and a float cannot hold the third.
    """
    if text is None:
        return None
    try:
        return finite_json(text)
    except (ValueError, RecursionError):
        return text


def unread_json(text: str | None) -> str | None:
    """Returns a warning about a text that begins like JSON, but is none; None for other texts."""
    if text is None or not text.lstrip().startswith(("{", "[")):
        return None
    try:
        finite_json(text)
    except (ValueError, RecursionError) as error:
        return f"the argument is not JSON, so the script receives it as a text: {error}"
    return None


def finite_json(text: str) -> Any:
    """Parses JSON without NaN and infinite numbers. Raises ValueError or RecursionError."""
    return json.loads(text, parse_constant=_finite, parse_float=_finite)


def _finite(digits: str) -> float:
    if math.isfinite(value := float(digits)):
        return value
    raise ValueError(f"{digits} is no number, or is too large")


#: minimum digits of an abbreviated id where the user can see the list of ids
SHORTEST_ID = 8
#: the same where the list is not shown: 48 bits, so that clients cannot guess the ids of other owners
SHORTEST_UNSEEN_ID = 12
_BEGINNING = re.compile(f"[0-9a-f]{{{SHORTEST_ID},63}}")


def is_module_id(text: str) -> bool:
    """Returns whether this is a complete id."""
    return bool(MODULE_ID.fullmatch(text))


def looks_like_id(text: str) -> bool:
    """Returns whether this is an id or could abbreviate one. Tags must not look like this."""
    return is_module_id(text) or bool(_BEGINNING.fullmatch(text))


def check_tag_name(name: str) -> None:
    """Raises ModuleError for a text that cannot be a tag."""
    if not TAG_NAME.fullmatch(name):
        raise ModuleError(
            f"invalid tag {name[:100]!r}: a tag has 1 to 64 characters from a-z, 0-9, '.', '_' and '-', "
            "and starts with a letter or digit"
        )
    if looks_like_id(name):
        raise ModuleError(
            f"tag {name!r} could be taken for the id of a module, since it has {SHORTEST_ID} or more "
            "characters, all from 0-9 and a-f: add a letter from g to z, a '.', '_' or '-'"
        )


def resolve_name(
    name: str,
    ids: Callable[[], Iterable[str]],
    tagged: Callable[[str], str | None],
    shortest: int = SHORTEST_UNSEEN_ID,
) -> str:
    """Returns the module id for `name`, which is an id, the beginning of exactly one id, or a tag.

    `ids` lists the stored modules, `tagged` returns the module of a tag, if there is one; each is called only
    if it is needed. Raises UnknownControllerError if nothing has this name (`name` in its detail), or if
    several ids begin with it (`modules`).
    """
    if is_module_id(name):
        return name
    if looks_like_id(name) and len(name) >= shortest:
        found = [module_id for module_id in ids() if module_id.startswith(name)]
        if len(found) > 1:
            problem = f"{len(found)} modules begin with {name!r}: give more digits of the id"
            raise UnknownControllerError(problem, modules=len(found))
        if found:
            return found[0]
    module = tagged(name)
    if module is None:
        raise UnknownControllerError(f"no controller {name!r}", name=name)
    return module


#: imports with an effect besides the result, or with a different result in a copy
_TRACES = {"aici.call", "aici.var_write", "wasi_snapshot_preview1.random_get"}
#: names that the runtime looks for: a description lists them before all others
_INTERFACE = {"memory", *(name for name, _ in EXPORTS.values()), *_TRACES}

#: facts that a compiler reports about a module, each with its type
_FROM_COMPILER = {
    **dict.fromkeys(("compiled_size", "abi_version", "initial_memory", "more_exports"), int),
    **dict.fromkeys(("has_init", "has_init_prompt", "has_pre", "has_post"), bool),
    **dict.fromkeys(("exports", "imports"), list),
    "compiled_sha256": str,
}


#: maximum number of imports, and of exports, in a module's description, and characters of each name. A
#: controller has about ten names, and a list contains the descriptions of many modules
DESCRIBED_NAMES, DESCRIBED_CHARACTERS = 64, 128


@dataclass(slots=True)
class ControllerInfo:
    """The description of one accepted module or script. All fields are plain data, for msgpack or JSON."""

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
    #: the first `DESCRIBED_NAMES`, those of the controller interface before others; long names are shortened
    exports: list[str] = field(default_factory=list)
    #: ``module.name``, each once
    imports: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    #: the owners who are known to have uploaded it
    owners: list[str] = field(default_factory=list)
    #: Unix seconds of the first upload; 0.0 = unknown
    created: float = 0.0
    #: for a script: its language, its name in messages, and the id of its interpreter; otherwise empty
    language: str = ""
    script: str = ""
    interpreter: str = ""
    #: number of exports that are not listed
    more_exports: int = 0

    @property
    def repeatable(self) -> bool:
        """Whether the steps of a copy can be discarded: they have no effects besides results and output.

        Such a controller has no pre_process and no post_process, writes no variables, and draws no random
        numbers, which would differ in a copy.
        """
        return not (self.has_pre or self.has_post or _TRACES & set(self.imports))

    @property
    def nbytes(self) -> int:
        """Approximate size on the wire."""
        names = (self.exports, self.imports, self.tags, self.owners)
        return 1024 + sum(len(name.encode()) + 3 for some in names for name in some)

    def to_wire(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> ControllerInfo:
        """Reads the result of `to_wire`, ignoring unknown fields. Raises `ProtocolError` if it is invalid."""
        known = {f.name for f in fields(cls)}
        try:
            return cls(**{k: v for k, v in wire.items() if k in known})
        except (TypeError, AttributeError) as error:
            raise ProtocolError(f"not a description of a module: {error}") from None

    @classmethod
    def from_compiler(cls, wire: object, module_id: str, size: int) -> ControllerInfo:
        """Builds the description from the answer of a compiler, which hostile code may control.

        Uses only those facts of the answer that the caller cannot know. Raises `ProtocolError`.
        """
        if not isinstance(wire, dict):
            raise ProtocolError("not a description of a module")
        for name, kind in _FROM_COMPILER.items():
            value = wire.get(name)
            if type(value) is not kind or (
                isinstance(value, list) and not all(isinstance(entry, str) for entry in value)
            ):
                raise ProtocolError(f"not a description of a module: {name}")
        facts = {name: wire[name] for name in _FROM_COMPILER}
        lists = {name: _bounded(value) for name, value in facts.items() if isinstance(value, list)}
        return cls(module_id, size, **{**facts, **lists})


def described_names(names: list[str]) -> list[str]:
    """Returns the names that a description lists: each once, at most `DESCRIBED_NAMES`.

    Keeps their order, but of more names puts those of the controller interface first.
    """
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
