"""Runs scripts in documents and compares their results.

    ```python script          a script for pyctrl; `js script` is a script for jsctrl
    ```text played            the input and the result of the preceding scripts

The lines of a `played` block begin with a name and a colon. Input: `prompt`, `arg` (a text, or JSON),
`wish`, the text that the simulated model prefers, `calls`, a JSON object of answers as in test cases, and
`messages`, a JSON list. Result: `text`, `log` (one or more lines) and `error`, where "..." stands for any
text. A text with line breaks is in JSON's quotation marks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import AiciError
from pyaici.testing import Playground
from pyaici.testing.cases import written_answers

if TYPE_CHECKING:
    from .blocks import Block

CONTROLLERS = {"python": ("pyctrl", "script.py"), "js": ("jsctrl", "script.js")}


def play(playground: Playground, scripts: Sequence[Block], played: Block) -> None:
    """Plays scripts. Raises AssertionError if a result differs from the document."""
    assert scripts, f"{played.where}: a script must precede this block"
    fields = _fields(played)
    for script in scripts:
        controller, name = CONTROLLERS[script.language]
        argument = {"script": script.text, "name": name, "arg": fields.get("arg")}
        found: dict[str, str] = {"error": ""}
        try:
            transcript = playground.play(
                controller,
                fields.get("wish", ""),
                arg=json.dumps(argument),
                prompt=fields.get("prompt", ""),
                calls=written_answers(fields["calls"]) if "calls" in fields else None,
                messages=fields.get("messages"),
            )
            found |= {"text": transcript.text, "log": transcript.log, "error": str(transcript.error or "")}
        except AiciError as error:
            found["error"] = str(error)
        wanted = {"error": ""} | {name: fields[name] for name in ("text", "log", "error") if name in fields}
        for name, value in wanted.items():
            assert _matches(value, found.get(name, "")), f"{script.where}: {name} is\n{found.get(name)}"


def _matches(wanted: str, found: str) -> bool:
    from .blocks import matches

    return matches(wanted, found)


def _fields(block: Block) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    name = ""
    for line in block.text.splitlines():
        start, colon, rest = line.partition(":")
        if colon and start in {"prompt", "arg", "wish", "calls", "messages", "text", "log", "error"}:
            name = start
            fields[name] = rest.strip()
        else:
            assert name == "log", f"{block.where}: {line!r} has no field name"
            fields[name] += "\n" + line.strip()
    return {name: _value(name, value) for name, value in fields.items()}


def _value(name: str, value: str) -> Any:
    return (
        json.loads(value)
        if value.startswith('"') or (name in ("arg", "calls", "messages") and value[0] in "[{")
        else value
    )
