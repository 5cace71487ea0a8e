"""Scripts in either language, run in the real runtime with a pretended model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from aicirt.contract.errors import AiciError, ControllerError, ControllerFailed, TrapError
from pyaici.testing import Playground, Transcript

#: seconds, for work that takes a second of a slow machine
PATIENT = {"init_ms": 60_000, "mid_ms": 60_000}
#: what runs scripts of each language, and what their files are called
CONTROLLERS = {"python": ("pyctrl", "script.py"), "javascript": ("jsctrl", "script.js")}


@dataclass
class Scripts:
    """Runs scripts of one language."""

    playground: Playground
    language: str

    def play(self, source: str, wish: str = "", *, arg: Any = None, **options: Any) -> Transcript:
        """Runs a request under a script's control; `options` are those of `Playground.play`."""
        controller, name = CONTROLLERS[self.language]
        argument = json.dumps({"script": source, "name": name, "arg": arg})
        return self.playground.play(controller, wish, arg=argument, **options)


@pytest.fixture(scope="module")
def playground() -> Iterator[Playground]:
    with Playground() as playground:
        yield playground


@pytest.fixture
def python(playground: Playground) -> Scripts:
    return Scripts(playground, "python")


@pytest.fixture
def javascript(playground: Playground) -> Scripts:
    return Scripts(playground, "javascript")


Play = Callable[..., Transcript]

#: the same script in Python and in JavaScript
Pair = tuple[str, str]

WELL: Pair = (
    'from aici import *\nasync def main():\n    print(await gen(regex="[0-9]+"))\n',
    'import { gen } from "aici";\n'
    'export async function main() { console.log(await gen({ regex: "[0-9]+" })); }\n',
)


@pytest.fixture(params=[0, 1], ids=["in_python", "in_javascript"])
def play(request: pytest.FixtureRequest, python: Scripts, javascript: Scripts) -> Play:
    """Plays the script of a pair that is in the language of this run."""
    which = request.param
    scripts = (python, javascript)[which]

    def play(pair: Pair, wish: str = "", **options: Any) -> Transcript:
        return scripts.play(pair[which], wish, **options)

    return play


def check(transcript: Transcript) -> Transcript:
    """The transcript of a request that did not fail."""
    assert transcript.error is None, transcript.error
    return transcript


def failed(play: Play, pair: Pair, wish: str = "") -> str:
    """Returns the error of a script that starts successfully and then fails."""
    try:
        error: AiciError | None = play(pair, wish).error
    except ControllerError as early:  # in the part before the first token
        error = early
    assert isinstance(error, ControllerFailed | TrapError), error
    return str(error)
