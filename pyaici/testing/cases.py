"""Tests that people write: a prompt, what the model wants to write, and what must come of it."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aicirt.contract.errors import ControllerError
from pyaici.testing.playground import Playground
from pyaici.testing.recording_file import TranscriptFileError
from pyaici.testing.story import quoted
from pyaici.testing.transcript import Transcript

_NUMBERS: dict[str, tuple[type, ...]] = {
    "max_tokens": (int,),
    "temperature": (int, float),
    "seed": (int,),
}
_FIELDS: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "prompt": (str,),
    "model": (str, list),
    "arg": (object,),
    "expect": (dict,),
    **_NUMBERS,
}
_EXPECTED: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "reason": (str,),
    "error": (str,),
    "log": (str, list),
    "variables": (dict,),
    "forks": (list,),
}


@dataclass(slots=True)
class Case:
    """One of them; docs/scripting_tests.md explains the fields."""

    name: str
    #: as in the file
    told: dict[str, Any]

    @property
    def expect(self) -> dict[str, Any]:
        found: dict[str, Any] = self.told.get("expect", {})
        return found


@dataclass(slots=True)
class CaseResult:
    """What became of a case."""

    case: Case
    transcript: Transcript
    #: lines about what is not as expected
    differences: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.differences


def read_cases(path: str | Path) -> list[Case]:
    """The cases of a file in TOML, or JSON if its name ends so. Raises TranscriptFileError."""
    told = read_table(Path(path))
    cases = told.get("case", None)
    if cases is None:
        cases = [told]
    elif not isinstance(cases, list) or len(told) > 1:
        raise TranscriptFileError(f"{path}: cases stand in [[case]] each, and nothing stands beside them")
    return [_checked(path, number, case) for number, case in enumerate(cases, start=1)]


def read_table(path: Path) -> dict[str, Any]:
    """What the file says. Raises TranscriptFileError."""
    try:
        text = path.read_text("utf-8")
        told = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise TranscriptFileError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise TranscriptFileError(f"{path} is no {kind} in UTF-8: {error}") from None
    if not isinstance(told, dict):
        raise TranscriptFileError(f"{path} is no table of fields")
    return told


def _checked(path: str | Path, number: int, told: Any) -> Case:
    name = f"case {number}"
    if not isinstance(told, dict):
        raise TranscriptFileError(f"{path}: {name} is no table of fields")
    name = str(told.get("name", name))
    _check(f"{path}: {name}", told, _FIELDS)
    _check(f"{path}: {name}: expect", told.get("expect", {}), _EXPECTED)
    lists = (told.get("model"), *(told.get("expect", {}).get(key) for key in ("log", "forks")))
    for texts in lists:
        if isinstance(texts, list) and not all(isinstance(text, str) for text in texts):
            raise TranscriptFileError(f"{path}: {name}: model, log and forks are lists of texts")
    return Case(name, told)


def _check(where: str, told: Mapping[str, Any], fields: Mapping[str, tuple[type, ...]]) -> None:
    for key, value in told.items():
        if key not in fields:
            meant = difflib.get_close_matches(key, fields, n=1)
            hint = f": did you mean {meant[0]}?" if meant else f"; there are {', '.join(fields)}"
            raise TranscriptFileError(f"{where} has a field {key!r}, which is none{hint}")
        if not isinstance(value, fields[key]) or (isinstance(value, bool) and key in _NUMBERS):
            kinds = " or ".join(kind.__name__ for kind in fields[key])
            raise TranscriptFileError(f"{where}: {key} is {value!r}; it must be of the kind {kinds}")


def run_case(playground: Playground, controller: str | Path, case: Case) -> CaseResult:
    """Plays a case. Raises what keeps the controller from being found; what it ends with is in the result."""
    told = case.told
    model = told.get("model", "")
    options = {name: told[name] for name in _NUMBERS if name in told}
    try:
        transcript = playground.play(
            controller,
            "".join(model) if isinstance(model, list) else model,
            prompt=told.get("prompt", ""),
            arg=told.get("arg", b""),
            **options,
        )
    except ControllerError as error:  # it does not even begin
        log = str(error.detail.get("log", ""))
        transcript = Transcript(reason="error", error=error, log=log)
    result = CaseResult(case, transcript)
    actual = outcome(transcript)
    expected = dict(case.expect)
    if transcript.error is not None and "error" not in expected:
        result.differences += ["there was an error, and none is expected:", *_indented(str(transcript.error))]
    for key, value in expected.items():
        result.differences += _compare(key, value, actual[key])
    return result


def outcome(transcript: Transcript) -> dict[str, Any]:
    """What a case may expect, as it was."""
    values = {name: value.decode("utf-8", "backslashreplace") for name, value in transcript.variables.items()}
    return {
        "text": transcript.text,
        "reason": transcript.reason,
        "error": "" if transcript.error is None else str(transcript.error),
        "log": transcript.log.splitlines(),
        "variables": values,
        "forks": [fork.text for fork in transcript.forks],
    }


def _compare(key: str, expected: Any, actual: Any) -> list[str]:
    """Lines about a difference; none if there is none."""
    if key == "error":
        if expected in actual and (expected or not actual):
            return []
        came = _indented(actual) if actual else ["  there was none"]
        return [f"error: a message with {quoted(expected)} is expected", *came]
    if isinstance(expected, str) and isinstance(actual, list):
        expected = expected.splitlines()
    if expected == actual:
        return []
    if isinstance(expected, str):
        return [f"{key}:", f"  - {quoted(expected)}", f"  + {quoted(actual)}"]
    compared = difflib.ndiff(_lines(expected), _lines(actual))
    lines = [line for line in compared if not line.startswith("?")]
    return [f"{key}:", *(f"  {line}" for line in lines)]


def _lines(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [f"{name} = {json.dumps(text, ensure_ascii=False)}" for name, text in sorted(value.items())]
    return [quoted(line) for line in value]


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines()]
