"""What is wrong with a script, and in which line: read out of the messages of its interpreter."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyaici.scripting.language import PYTHON
from pyaici.scripting.script import Script

#: places in tracebacks, as MicroPython and QuickJS write them
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+)(?:, in .*)?$')
_AT = re.compile(r"^\s+at (?:.* \()?(?P<file>[^()]*?):(?P<line>\d+)(?::(?P<column>\d+))?\)?$")
#: a place in what is not the script: the library, or the interpreter
_ELSEWHERE = re.compile(r"^\s+at ")
_NO_EXPORT = re.compile(r"Could not find export '(\w+)'")
#: a frame of code that runs, not of code that is read
_RUNNING = re.compile(r'^  File ".*", line \d+, in |^\s+at .* \(')
#: how both languages begin to say that a text is none of theirs
_SYNTAX = ("SyntaxError:", "IndentationError:", "TabError:")


@dataclass(frozen=True, slots=True)
class Problem:
    """Of a file. Lines and columns count from 1."""

    file: str
    line: int
    column: int | None
    message: str

    def __str__(self) -> str:
        column = "" if self.column is None else f":{self.column}"
        return f"{self.file}:{self.line}{column}: {self.message}"


def is_syntax_error(message: str) -> bool:
    """Whether a controller says with this that a text is no script, whatever its argument.

    What raises such an error while it runs, such as `JSON.parse`, is in a frame that has a name.
    """
    lines = message.splitlines()
    return any(line.startswith(_SYNTAX) for line in lines) and not any(map(_RUNNING.match, lines))


def find_problem(script: Script, message: str) -> Problem:
    """The problem of which a controller has said this: in the last line of the script that the traceback has.

    A message without a place is about the first line.
    """
    frame, words = _FRAME, []
    lines = message.splitlines()
    if script.language is not PYTHON:
        frame = _AT
    places = []
    for line in lines:
        if found := frame.match(line):
            if found["file"] == script.name:
                places.append((int(found["line"]), found.groupdict().get("column")))
        elif line != "Traceback (most recent call last):" and not _ELSEWHERE.match(line):
            words.append(line.strip())
    text = " ".join(filter(None, words)).removeprefix(f"{script.name} ")
    if places:
        # Python tells the innermost call last, JavaScript first
        number, column = places[-1] if frame is _FRAME else places[0]
        return Problem(script.name, number, None if column is None else int(column), text)
    return Problem(script.name, _line_of_import(script, text), None, text)


def _line_of_import(script: Script, text: str) -> int:
    """QuickJS does not say where a name is imported that is not there."""
    if missing := _NO_EXPORT.search(text):
        for number, line in enumerate(script.source.splitlines(), start=1):
            if re.search(rf"\b{missing[1]}\b", line):
                return number
    return 1
