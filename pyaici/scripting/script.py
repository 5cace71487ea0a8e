"""Scripts: read from a file or a request, and turned into the argument of their interpreter."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aicirt.contract.errors import AiciError, ModuleError
from aicirt.contract.modules import MAX_NAME, MAX_SOURCE, NAME_PATTERN, StoredScript, interpreter_argument
from pyaici.bundled import LANGUAGES, Language, build_cure, bundled_controllers, language_of


class ScriptFileError(AiciError):
    """Reports a file that does not exist, cannot be read, is not UTF-8, or is too long."""

    code = "script_file"


class InterpreterMissingError(ModuleError):
    """Reports that the controller that runs scripts of this language has not been built."""

    code = "interpreter_missing"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in a file. Lines and columns count from 1; None: unknown."""

    file: str
    line: int | None
    column: int | None
    message: str

    def __str__(self) -> str:
        place = ":".join(str(at) for at in (self.file, self.line, self.column) if at is not None)
        return f"{place}: {self.message}"


@dataclass(frozen=True, slots=True)
class Script:
    """A script: its text, and its name in messages."""

    name: str
    language: Language
    source: str

    def argument(self, arg: Any = None) -> str:
        """Returns the argument of the controller that runs the script. `arg`: the script's argument.

        Raises ValueError or TypeError if `arg` is not a JSON value.
        """
        return interpreter_argument(self.source, self.name, arg)

    def stored(self, interpreter: str) -> StoredScript:
        """Returns the script for an upload. `interpreter`: id of the module that runs it."""
        return StoredScript(interpreter, self.language.word, self.name, self.source)


def read_script(path: str | Path) -> Script:
    """Reads a script from a file. Raises ScriptFileError."""
    file = Path(path)
    language = language_of(file)
    if language is None:
        endings = ", ".join(suffix for one in LANGUAGES for suffix in one.suffixes)
        raise ScriptFileError(f"{path} is not a script: the name of a script ends with one of {endings}")
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_SOURCE + 1)
    except IsADirectoryError:
        raise ScriptFileError(f"{path} is a folder, not a script") from None
    except FileNotFoundError:
        raise ScriptFileError(f"there is no file {path}{_meant(file)}") from None
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise ScriptFileError(f"cannot read {path}: {reason}") from None
    return decode_script(str(path), language, data)


def decode_script(name: str, language: Language, data: bytes) -> Script:
    """Returns the script that a file has. Raises ScriptFileError if it is too long or not UTF-8."""
    if len(data) > MAX_SOURCE:
        raise ScriptFileError(
            f"{name} is too long: a script has at most {MAX_SOURCE} bytes; pass data as its argument"
        )
    try:
        source = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ScriptFileError(
            f"{name} is not UTF-8: byte {error.start}, in line {line}; save it as UTF-8"
        ) from None
    return Script(name, language, source)


def _meant(file: Path) -> str:
    """Returns a hint that names scripts of the same folder with a similar name, or ""."""
    try:
        beside = [one.name for one in file.parent.iterdir() if language_of(one)]
    except OSError:
        return ""
    found = [str(file.with_name(name)) for name in difflib.get_close_matches(file.name, sorted(beside), n=2)]
    return f": did you mean {' or '.join(found)}?" if found else ""


def interpreter_file(language: Language) -> Path:
    """Returns the Wasm file that runs scripts of a language. Raises InterpreterMissingError."""
    built = bundled_controllers()
    if language.controller not in built:
        raise InterpreterMissingError(
            f"scripts in {language.name} cannot be run: the controller {language.controller} was not built; "
            f"to fix this: {build_cure()}"
        )
    return built[language.controller]


#: the languages by their names in requests
LANGUAGE_NAMES = {language.word: language for language in LANGUAGES}
MEMBERS = ("language", "source", "name", "arg")


def requested_script(language: str, source: str, name: str | None = None) -> Script:
    """Returns a script, called script.py or script.js by default. Raises KeyError for an unknown language."""
    found = LANGUAGE_NAMES[language]
    return Script(name or f"script{found.suffixes[0]}", found, source)


def read_request(value: Any) -> tuple[str, str]:
    """Returns the controller of a script in a request, and that controller's argument.

    `value`: the object, or its JSON text; it is fully checked here, since no schema has checked it. Raises
    ValueError, which says what is wrong with it, and InterpreterMissingError.
    """
    body = _object(value)
    for member in body:
        if member not in MEMBERS:
            meant = difflib.get_close_matches(str(member), MEMBERS, n=1)
            hint = f"did you mean {meant[0]}?" if meant else f"the members are {', '.join(MEMBERS)}"
            raise ValueError(f"it has the unknown member {str(member)[:64]}: {hint}")
    language, source, name = body.get("language"), body.get("source"), body.get("name")
    if not isinstance(language, str) or language not in LANGUAGE_NAMES:
        raise ValueError(f"its language is {language!r:.64}; it must be {' or '.join(LANGUAGE_NAMES)}")
    if not isinstance(source, str) or not source:
        raise ValueError("its source must be a text, and not empty")
    if len(source) > MAX_SOURCE:
        raise ValueError(f"its source has {len(source)} characters; at most {MAX_SOURCE} are allowed")
    named = isinstance(name, str) and len(name) <= MAX_NAME and re.fullmatch(NAME_PATTERN, name)
    if name is not None and not named:
        raise ValueError(f"its name must have 1 to {MAX_NAME} characters and no control characters")
    script = requested_script(language, source, name)
    try:
        f"{source}{name}".encode()
        argument = script.argument(body.get("arg"))
    except UnicodeEncodeError:
        raise ValueError("it has half of a surrogate pair, which is not a character") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"its arg must be a JSON value: {error}") from None
    interpreter_file(script.language)
    return script.language.controller, argument


def _object(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"it is a text, but not JSON: {error}") from None
    if not isinstance(value, Mapping):
        raise ValueError('it must be an object: {"language": "python", "source": "..."}')
    return value
