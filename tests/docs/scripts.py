"""Scripts in documents, and what is said to come of them.

    ```python script          a script for pyctrl; `js script` is one for jsctrl
    ```text played            how the scripts right before it are played, and what comes of each of them

The lines of a `played` block begin with a name and a colon: `prompt`, `arg` (a text, or JSON) and `wish`,
what the pretended model wants to write, go in; `text`, `log` (several lines if need be), `error` come out,
"..." standing for any text. A text is in JSON's quotation marks if it has line breaks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import AiciError
from pyaici.testing import Playground

if TYPE_CHECKING:
    from .blocks import Block

CONTROLLERS = {"python": ("pyctrl", "script.py"), "js": ("jsctrl", "script.js")}


def play(playground: Playground, scripts: Sequence[Block], played: Block) -> None:
    """Plays scripts. Raises AssertionError where one does something else than the document says."""
    assert scripts, f"{played.where}: there is no script right before this"
    said = _fields(played)
    for script in scripts:
        controller, name = CONTROLLERS[script.language]
        argument = {"script": script.text, "name": name, "arg": said.get("arg")}
        found: dict[str, str] = {"error": ""}
        try:
            transcript = playground.play(
                controller, said.get("wish", ""), arg=json.dumps(argument), prompt=said.get("prompt", "")
            )
            found |= {"text": transcript.text, "log": transcript.log, "error": str(transcript.error or "")}
        except AiciError as error:
            found["error"] = str(error)
        wanted = {"error": ""} | {name: said[name] for name in ("text", "log", "error") if name in said}
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
        if colon and start in {"prompt", "arg", "wish", "text", "log", "error"}:
            name = start
            fields[name] = rest.strip()
        else:
            assert name == "log", f"{block.where}: {line!r} belongs to nothing"
            fields[name] += "\n" + line.strip()
    return {name: _value(name, value) for name, value in fields.items()}


def _value(name: str, value: str) -> Any:
    return json.loads(value) if value.startswith('"') or (name == "arg" and value[0] in "[{") else value
