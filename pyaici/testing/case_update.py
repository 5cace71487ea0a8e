"""Rewrites the expectations of written tests with what came of them; all else of a file stays as it is."""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyaici.testing.cases import CaseResult, outcome, read_table
from pyaici.testing.recording_file import TranscriptFileError

_CASE = re.compile(r"^\s*\[\[\s*case\s*\]\]")
_VALUE = re.compile(r"^\s*expect\s*=")
_TABLE = re.compile(r"^\s*\[\s*((case\.)?expect)\s*[\].]")


def update_cases(path: Path, results: Sequence[CaseResult]) -> bool:
    """Whether the file had to change. `results`: of all its cases, in order.

    Raises TranscriptFileError if it cannot be written, or writes its expectations in a way that is not known
    here.
    """
    if all(result.passed and result.case.expect for result in results):
        return False
    told = copy.deepcopy(read_table(path))
    expectations = [_expectation(result) for result in results]
    for case, expect in zip(told.get("case", [told]), expectations, strict=True):
        case["expect"] = expect
    if path.suffix == ".json":
        text = json.dumps(told, indent=2, ensure_ascii=False) + "\n"
    else:
        text = _rewrite(path.read_text("utf-8"), expectations)
        if _loads(text) != told:
            raise TranscriptFileError(
                f"{path} cannot be updated: write each expectation as expect = {{...}} or [case.expect]"
            )
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise TranscriptFileError(f"cannot write {path}: {error.strerror}") from None
    return True


def _expectation(result: CaseResult) -> dict[str, Any]:
    """Of the same kinds as before; where there were none, of all that there is."""
    if result.passed and result.case.expect:
        return result.case.expect
    now = outcome(result.transcript)
    if now["error"]:
        now["error"] = now["error"].splitlines()[0 if "\n    at " in now["error"] else -1]
    before = result.case.expect
    kinds = [key for key in now if key in before] if before else [key for key in now if key != "reason"]
    expect = {key: now[key] for key in kinds if now[key] or key in before or key == "text"}
    if not now["error"]:
        expect.pop("error", None)
    else:
        expect["error"] = now["error"]
    return expect


def _rewrite(text: str, expectations: Sequence[dict[str, Any]]) -> str:
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if _CASE.match(line)]
    if not starts:
        return "\n".join(_rewrite_case(lines, expectations[0])) + "\n"
    made = lines[: starts[0]]
    for start, end, expect in zip(starts, [*starts[1:], len(lines)], expectations, strict=False):
        made += [lines[start], *_rewrite_case(lines[start + 1 : end], expect)]
    return "\n".join(made) + "\n"


def _rewrite_case(lines: list[str], expect: dict[str, Any]) -> list[str]:
    new = f"expect = {_toml(expect)}"
    for number, line in enumerate(lines):
        if _VALUE.match(line):
            for end in range(number + 1, len(lines) + 1):
                if _loads("\n".join(lines[number:end])) is not None:
                    return [*lines[:number], new, *lines[end:]]
        if found := _TABLE.match(line):
            end = number + 1
            while end < len(lines) and (not lines[end].startswith("[") or _TABLE.match(lines[end])):
                end += 1
            while not lines[end - 1].strip():
                end -= 1
            table = [f"[{found[1]}]", *(f"{_key(name)} = {_toml(value)}" for name, value in expect.items())]
            return [*lines[:number], *table, *lines[end:]]
    at = next((number for number, line in enumerate(lines) if line.startswith("[")), len(lines))
    while at and not lines[at - 1].strip():
        at -= 1
    return [*lines[:at], new, *lines[at:]]


def _loads(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(name)} = {_toml(one)}" for name, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)
