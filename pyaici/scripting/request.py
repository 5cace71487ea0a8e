"""A script as requests have it: `{"language": "python", "source": "...", "name": "...", "arg": ...}`."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from typing import Any

from aicirt.contract.modules import MAX_NAME, MAX_SOURCE, NAME_PATTERN
from pyaici.scripting.language import LANGUAGES
from pyaici.scripting.script import Script, interpreter_file

#: what requests call the languages
LANGUAGE_NAMES = {language.word: language for language in LANGUAGES}
MEMBERS = ("language", "source", "name", "arg")


def requested_script(language: str, source: str, name: str | None = None) -> Script:
    """The script; one without a name is called script.py or script.js. Raises KeyError for no language."""
    found = LANGUAGE_NAMES[language]
    return Script(name or f"script{found.suffixes[0]}", found, source)


def read_request(value: Any) -> tuple[str, str]:
    """The controller of a script that has no schema before it, and that controller's argument.

    `value`: the object, or a text of JSON that is one. Raises ValueError, which says what is wrong with it,
    and InterpreterMissingError.
    """
    body = _object(value)
    for member in body:
        if member not in MEMBERS:
            meant = difflib.get_close_matches(str(member), MEMBERS, n=1)
            hint = f"did you mean {meant[0]}?" if meant else f"known are {', '.join(MEMBERS)}"
            raise ValueError(f"it has the unknown member {str(member)[:64]}: {hint}")
    language, source, name = body.get("language"), body.get("source"), body.get("name")
    if not isinstance(language, str) or language not in LANGUAGE_NAMES:
        raise ValueError(f"its language must be {' or '.join(LANGUAGE_NAMES)}: it is {language!r:.64}")
    if not isinstance(source, str) or not source:
        raise ValueError("its source must be the text of a script")
    if len(source) > MAX_SOURCE:
        raise ValueError(f"its source has {len(source)} characters; {MAX_SOURCE} are allowed")
    named = isinstance(name, str) and len(name) <= MAX_NAME and re.fullmatch(NAME_PATTERN, name)
    if name is not None and not named:
        raise ValueError(f"its name must be a file's, of at most {MAX_NAME} characters without line ends")
    script = requested_script(language, source, name)
    try:
        f"{source}{name}".encode()
        argument = script.argument(body.get("arg"))
    except UnicodeEncodeError:
        raise ValueError("it has half of a surrogate pair, which is no character") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"its arg must be a value of JSON: {error}") from None
    interpreter_file(script.language)
    return script.language.controller, argument


def _object(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"it is a text, but not of JSON: {error}") from None
    if not isinstance(value, Mapping):
        raise ValueError('it must be an object: {"language": "python", "source": "..."}')
    return value
