"""A script that is kept beside modules: a text, and the module that interprets it."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import asdict, dataclass, fields
from typing import Any

from aicirt.errors import ArgumentError, ModuleError

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
        """What it is found by, as a module by the SHA-256 of its content."""
        return hashlib.sha256(self.pack()).hexdigest()

    def pack(self) -> bytes:
        """Its file: the same bytes for the same script."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def unpack(cls, data: bytes) -> StoredScript:
        """Raises ModuleError for what is none, whoever has written it."""
        try:
            found = json.loads(data)
            script = cls(**{one.name: found[one.name] for one in fields(cls)})
        except (ValueError, LookupError, TypeError, RecursionError):
            raise ModuleError("it is no script") from None
        script.check()
        return script

    def argument(self, arg: bytes) -> bytes:
        """What its interpreter gets where the script shall get `arg`. Raises ArgumentError."""
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
    """The argument of the controller that runs this script with this value of JSON.

    Raises ValueError or TypeError for a value that is none.
    """
    return json.dumps({"script": source, "name": name, "arg": value}, allow_nan=False)


def script_value(text: str | None) -> Any:
    """What a script gets of an argument that is a text: a value of JSON if it is one, else the text; without
    one None.

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
