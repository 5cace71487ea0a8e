"""Test cases in files: a prompt, the text that the model wants to write, and the expected outcome."""

from __future__ import annotations

import copy
import difflib
import json
import re
import tomllib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aicirt.contract.errors import ControllerError
from pyaici.client.calls import CallError
from pyaici.recording.recording import TranscriptFileError, read_recording
from pyaici.recording.story import quoted
from pyaici.testing.playground import Playground, Transcript

_NUMBERS: dict[str, tuple[type, ...]] = {"max_tokens": (int,), "temperature": (int, float), "seed": (int,)}
_FIELDS: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "prompt": (str,),
    "model": (str, list),
    "arg": (object,),
    "calls": (dict, str),
    "messages": (list,),
    "expect": (dict,),
    **_NUMBERS,
}
_EXPECTED: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "finish_reason": (str,),
    "error": (str,),
    "log": (str, list),
    "variables": (dict,),
    "forks": (list,),
}


@dataclass(slots=True)
class Case:
    """A test case; docs/guide/building.md explains the fields."""

    name: str
    #: the fields as in the file
    content: dict[str, Any]

    @property
    def expect(self) -> dict[str, Any]:
        found: dict[str, Any] = self.content.get("expect", {})
        return found


@dataclass(slots=True)
class CaseResult:
    """The result of a case."""

    case: Case
    transcript: Transcript
    #: lines that describe how the outcome differs from the expected one
    differences: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.differences

    @property
    def warnings(self) -> list[str]:
        """The lines of the log in which the library warns, such as of an action without `await`."""
        log = self.transcript.log
        return [line for line in log.splitlines() if line.startswith("warning: ")]


def read_cases(path: str | Path) -> list[Case]:
    """Reads the cases of a TOML file, or of a .json file. Raises TranscriptFileError."""
    content = read_table(Path(path))
    cases = content.get("case", None)
    if cases is None:
        cases = [content]
    elif not isinstance(cases, list) or len(content) > 1:
        raise TranscriptFileError(
            f"{path}: write each case under its own [[case]], with no fields outside of them"
        )
    return [_checked(path, number, case) for number, case in enumerate(cases, start=1)]


def read_table(path: Path) -> dict[str, Any]:
    """Returns the content of a TOML or JSON file. Raises TranscriptFileError."""
    try:
        text = path.read_text("utf-8")
        content = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise TranscriptFileError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise TranscriptFileError(f"{path} is not {kind} in UTF-8: {error}") from None
    if not isinstance(content, dict):
        raise TranscriptFileError(f"{path} must be a JSON object")
    return content


def _checked(path: str | Path, number: int, content: Any) -> Case:
    name = f"case {number}"
    if not isinstance(content, dict):
        raise TranscriptFileError(f"{path}: {name} must be a table of fields")
    name = str(content.get("name", name))
    _check_fields(f"{path}: {name}", content, _FIELDS)
    _check_fields(f"{path}: {name}: expect", content.get("expect", {}), _EXPECTED)
    lists = (content.get("model"), *(content.get("expect", {}).get(key) for key in ("log", "forks")))
    for texts in lists:
        if isinstance(texts, list) and not all(isinstance(text, str) for text in texts):
            raise TranscriptFileError(f"{path}: {name}: lists in model, log and forks must be lists of texts")
    if isinstance(content.get("calls"), str):
        content = {**content, "calls": _recorded_answers(Path(path).parent / content["calls"])}
    return Case(name, content)


def _recorded_answers(path: Path) -> dict[str, Any]:
    """Returns the answers to calls in a recording, as a case has them. Raises TranscriptFileError."""
    answers: dict[str, list[Any]] = {}
    for call in sorted(read_recording(path).calls or (), key=lambda call: call.number):
        if call.result is not None and not call.name.startswith("aici."):
            answers.setdefault(call.name, []).append(call.result.get("value", call.result))
    return {name: {"answers": found} for name, found in answers.items()}


def _check_fields(where: str, content: Mapping[str, Any], fields: Mapping[str, tuple[type, ...]]) -> None:
    for key, value in content.items():
        if key not in fields:
            meant = difflib.get_close_matches(key, fields, n=1)
            hint = f": did you mean {meant[0]}?" if meant else f"; the fields are {', '.join(fields)}"
            raise TranscriptFileError(f"{where} has the unknown field {key!r}{hint}")
        if not isinstance(value, fields[key]) or (isinstance(value, bool) and key in _NUMBERS):
            kinds = " or ".join(kind.__name__ for kind in fields[key])
            raise TranscriptFileError(f"{where}: {key} is {value!r}; it must be of type {kinds}")


def written_answers(calls: Mapping[str, Any]) -> dict[str, Callable[..., Any]]:
    """Returns functions that give the written answers to calls: one value, or those of a table `answers`.

    Such a table may also have the `schema` of the arguments.
    """

    def answering(answers: list[Any]) -> Callable[..., Any]:
        left = deque(answers)

        def give(*_: Any, **__: Any) -> Any:
            found = left.popleft() if len(left) > 1 else left[0]  # the last one again and again
            if isinstance(found, dict) and found.keys() == {"error"}:
                raise CallError(
                    str(found["error"].get("code", "failed")), str(found["error"].get("message", ""))
                )
            return found

        return give

    found = {}
    for name, answer in calls.items():
        several = (
            isinstance(answer, dict) and answer.keys() <= {"answers", "schema"} and answer.get("answers")
        )
        function = found[name] = answering(several or [answer])
        if several and "schema" in answer:
            function.schema = answer["schema"]  # type: ignore[attr-defined]
    return found


def run_case(playground: Playground, controller: str | Path, case: Case) -> CaseResult:
    """Plays a case. An error of the controller is in the result; raises if the controller is not found."""
    content = case.content
    model = content.get("model", "")
    options = {name: content[name] for name in _NUMBERS if name in content}
    try:
        transcript = playground.play(
            controller,
            "".join(model) if isinstance(model, list) else model,
            prompt=content.get("prompt", ""),
            arg=content.get("arg", b""),
            calls=written_answers(content["calls"]) if "calls" in content else None,
            messages=content.get("messages"),
            **options,
        )
    except ControllerError as error:  # the controller refuses to start
        log = str(error.detail.get("log", ""))
        transcript = Transcript(finish_reason="error", error=error, log=log)
    result = CaseResult(case, transcript)
    actual = outcome(transcript)
    expected = dict(case.expect)
    if transcript.error is not None and "error" not in expected:
        result.differences += ["there was an error, and none is expected:", *_indented(str(transcript.error))]
    for key, value in expected.items():
        result.differences += _compare(key, value, actual[key])
    return result


def outcome(transcript: Transcript) -> dict[str, Any]:
    """Returns the actual values of everything that a case may expect."""
    values = {name: value.decode("utf-8", "backslashreplace") for name, value in transcript.variables.items()}
    return {
        "text": transcript.text,
        "finish_reason": transcript.finish_reason,
        "error": "" if transcript.error is None else str(transcript.error),
        "log": transcript.log.splitlines(),
        "variables": values,
        "forks": [fork.text for fork in transcript.forks],
    }


def _compare(key: str, expected: Any, actual: Any) -> list[str]:
    """Returns lines about a difference; empty if there is none."""
    if key == "error":
        if expected in actual and (expected or not actual):
            return []
        came = _indented(actual) if actual else ["  there was no error"]
        return [f"error: expected a message with {quoted(expected)}", *came]
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


_CASE = re.compile(r"^\s*\[\[\s*case\s*\]\]")
_VALUE = re.compile(r"^\s*expect\s*=")
_TABLE = re.compile(r"^\s*\[\s*((case\.)?expect)\s*[\].]")


def update_cases(path: Path, results: Sequence[CaseResult]) -> bool:
    """Writes actual outcomes into the file as expectations; returns whether the file was written.

    `results`: the results of all its cases, in order. Raises TranscriptFileError if the file cannot be
    written, or if its expectations have a form that this function cannot rewrite.
    """
    if all(result.passed and result.case.expect for result in results):
        return False
    content = copy.deepcopy(read_table(path))
    expectations = [_expectation(result) for result in results]
    for case, expect in zip(content.get("case", [content]), expectations, strict=True):
        case["expect"] = expect
    if path.suffix == ".json":
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    else:
        text = _rewrite(path.read_text("utf-8"), expectations)
        if _loads(text) != content:
            raise TranscriptFileError(
                f"{path} cannot be updated: write each expectation as expect = {{...}} or [case.expect]"
            )
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise TranscriptFileError(f"cannot write {path}: {error.strerror}") from None
    return True


def _expectation(result: CaseResult) -> dict[str, Any]:
    """Returns the expectation for an outcome: the same fields as before, or all fields if there were none."""
    if result.passed and result.case.expect:
        return result.case.expect
    now = outcome(result.transcript)
    if now["error"]:
        now["error"] = now["error"].splitlines()[0 if "\n    at " in now["error"] else -1]
    before = result.case.expect
    kinds = [key for key in now if (key in before if before else key != "finish_reason")]
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
    text = str(value) if isinstance(value, str) else ""
    if set('"\\') & set(text) and "'" not in text and text.isprintable():
        return f"'{text}'"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)
