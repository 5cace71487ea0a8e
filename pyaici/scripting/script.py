"""A script: its file, and the argument that has a controller run it."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aicirt.contract.modules import MAX_SOURCE, StoredScript, interpreter_argument
from pyaici.build.sdk import source_tree
from pyaici.bundled import bundled_controllers
from pyaici.scripting.errors import InterpreterMissingError, ScriptFileError
from pyaici.scripting.language import LANGUAGES, Language, language_of


@dataclass(frozen=True, slots=True)
class Script:
    """Its text, and the name that messages about it say."""

    name: str
    language: Language
    source: str

    def argument(self, arg: Any = None) -> str:
        """The argument of the controller that runs it; `arg`: what the script gets, any value of JSON.

        Raises ValueError or TypeError for what is none.
        """
        return interpreter_argument(self.source, self.name, arg)

    def stored(self, interpreter: str) -> StoredScript:
        """As it is uploaded; `interpreter`: id of the module that runs it."""
        return StoredScript(interpreter, self.language.word, self.name, self.source)


def read_script(path: str | Path) -> Script:
    """The script in a file. Raises ScriptFileError."""
    file = Path(path)
    language = language_of(file)
    if language is None:
        endings = ", ".join(suffix for one in LANGUAGES for suffix in one.suffixes)
        raise ScriptFileError(f"{path} is no script: the name of one ends with {endings}")
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
    if len(data) > MAX_SOURCE:
        raise ScriptFileError(
            f"{path} is too long: a script has at most {MAX_SOURCE} bytes; data can come as its argument"
        )
    try:
        source = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ScriptFileError(
            f"{path} is not UTF-8: byte {error.start}, in line {line}; save it as UTF-8"
        ) from None
    return Script(str(path), language, source)


def _meant(file: Path) -> str:
    """Files of the same folder with nearly this name."""
    try:
        beside = [one.name for one in file.parent.iterdir() if language_of(one)]
    except OSError:
        return ""
    found = [str(file.with_name(name)) for name in difflib.get_close_matches(file.name, sorted(beside), n=2)]
    return f": did you mean {' or '.join(found)}?" if found else ""


def interpreter_file(language: Language) -> Path:
    """The controller that runs scripts of a language. Raises InterpreterMissingError, with the cure."""
    built = bundled_controllers()
    if language.controller not in built:
        cure = "with network, python -m pyaici.build" + (
            "" if source_tree() else " in a checkout; install that"
        )
        raise InterpreterMissingError(
            f"scripts in {language.name} cannot be run: the controller {language.controller} was not built, "
            f"because its interpreter comes from the network; to mend it: {cure}"
        )
    return built[language.controller]
