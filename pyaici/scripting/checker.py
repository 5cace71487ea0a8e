"""Finds errors in scripts without a model: runs their top level in the real runtime, and reads their text."""

from __future__ import annotations

import re
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

from aicirt.contract.errors import ControllerError
from aicirt.system.files import Closing
from pyaici.bundled import PYTHON
from pyaici.client.runtime import Runtime
from pyaici.recording.vocabulary import small_vocabulary
from pyaici.scripting.script import Problem, Script, ScriptFileError, interpreter_file, read_script
from pyaici.scripting.static import JAVASCRIPT_MAIN, PythonText, left_open, line_of_main

#: lines of tracebacks with a place, from MicroPython and from QuickJS
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+)(?:, in .*)?$')
_AT = re.compile(r"^\s+at (?:.* \()?(?P<file>[^()]*?):(?P<line>\d+)(?::(?P<column>\d+))?\)?$")
#: a place outside of the script, in the library or the interpreter
_ELSEWHERE = re.compile(r"^\s+at ")
#: how a message about the call begins that runs the top level: it ended with no place in the script
_CALL = re.compile(r"^aici_init\b")
#: how the error of an interrupted script begins. QuickJS knows the places of calls and accesses, else the
#: function's, which at the top level is the beginning of the file
_TIMEOUT = "TimeLimitError:"
_NO_EXPORT = re.compile(r"Could not find export '(\w+)'")
#: a frame of running code, not of code that is being parsed
_RUNNING = re.compile(r'^  File ".*", line \d+, in |^\s+at .* \(')
#: how both languages begin the message of a syntax error
_SYNTAX = ("SyntaxError:", "IndentationError:", "TabError:")


def is_syntax_error(message: str) -> bool:
    """Returns whether the message is a syntax error of the script itself, whatever its argument.

    Code that raises such an error while it runs, such as `JSON.parse`, is in a frame that has a name.
    """
    lines = message.splitlines()
    return any(line.startswith(_SYNTAX) for line in lines) and not any(map(_RUNNING.match, lines))


def find_problem(script: Script, message: str) -> Problem:
    """Returns the problem in a controller's error message, at the innermost line of the script.

    A message without a place is reported at line 1, or without a line if the code may have run anywhere.
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
        # Python lists the innermost call last, JavaScript first
        number, column = places[-1] if frame is _FRAME else places[0]
        if frame is _FRAME and text.startswith(_SYNTAX) and (bracket := left_open(script.source)):
            # MicroPython sees that a bracket is missing only where the text cannot go on
            text = f"SyntaxError: '{bracket.name}' was never closed"
            return Problem(script.name, bracket.line, bracket.column, text)
        if (number, column) == (1, "1") and text.startswith(_TIMEOUT):
            return Problem(script.name, None, None, text)
        return Problem(script.name, number, None if column is None else int(column), text)
    if _CALL.match(text):
        return Problem(script.name, None, None, _CALL.sub("the top level", text))
    return Problem(script.name, _line_of_import(script, text), None, text)


def _line_of_import(script: Script, text: str) -> int:
    """Returns the line that imports a missing name, which QuickJS does not report; 1 if not found."""
    if missing := _NO_EXPORT.search(text):
        for number, line in enumerate(script.source.splitlines(), start=1):
            if re.search(rf"\b{missing[1]}\b", line):
                return number
    return 1


class Checker(Closing):
    """Checks files, all with one runtime. Use as a context manager."""

    def __init__(self, store: Path | None = None) -> None:
        """`store`: as in `Runtime`."""
        self._runtime = Runtime(workers=1, store=store)
        self._end = weakref.finalize(self, self._runtime.close)
        self._runtime.register(small_vocabulary())
        self._modules: dict[Path, str] = {}

    def check(self, path: str | Path, arg: Any = None) -> Problem | None:
        """Returns the first error, if any.

        Finds errors in the file, the syntax and the top level, a script with nothing to run, a `main` that is
        not asynchronous and, in Python, actions without `await` and undefined names. `arg`: the script's
        argument. Raises InterpreterMissingError.
        """
        try:
            script = read_script(path)
        except ScriptFileError as error:
            return Problem(str(path), 1, None, error.message)
        message = self._run_top_level(script, arg)
        if message is not None:
            return find_problem(script, message)
        return (
            self._later_python(script) if script.language is PYTHON else self._later_javascript(script, arg)
        )

    def _later_python(self, script: Script) -> Problem | None:
        """Returns an error of `main` itself, an action without `await`, or an undefined name."""
        try:
            text = PythonText(script.source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None  # CPython cannot parse what MicroPython has accepted
        if (main := text.plain_main()) is not None:
            said = "TypeError: main must be a coroutine: write async def main()"
            return Problem(script.name, main.line, main.column, said)
        if (action := text.unawaited()) is not None:
            said = f"{action.name}(...) is never awaited: write await {action.name}(...)"
            return Problem(script.name, action.line, action.column, said)
        if not (unbound := text.unbound()):
            return None
        # the interpreter knows its own names and those of its modules: it reads one name in each line
        lines = [*text.star_imports(), *(use.name for use in unbound), "async def main(): pass"]
        message = self._run_top_level(Script(script.name, PYTHON, "\n".join(lines)), None)
        if message is None or "NameError" not in message:
            return None
        problem = find_problem(script, message)
        use = unbound[(problem.line or 1) - 1 - len(text.star_imports())]
        return replace(problem, line=use.line, column=use.column)

    def _later_javascript(self, script: Script, arg: Any) -> Problem | None:
        """Returns the error of a `main` that is not asynchronous."""
        message = self._run_top_level(replace(script, source=f"{script.source}\n{JAVASCRIPT_MAIN}"), arg)
        if message is None:
            return None
        return replace(find_problem(script, message), line=line_of_main(script.source), column=None)

    def check_syntax(self, script: Script) -> Problem | None:
        """Returns a syntax error, which no argument avoids. Raises InterpreterMissingError."""
        message = self._run_top_level(script, None)
        return find_problem(script, message) if message and is_syntax_error(message) else None

    def _run_top_level(self, script: Script, arg: Any) -> str | None:
        """Runs the top level; returns its error message, if any."""
        wasm = interpreter_file(script.language)
        if wasm not in self._modules:
            self._modules[wasm] = self._runtime.upload(wasm).id
        try:
            self._runtime.prepare(self._modules[wasm], script.argument(arg))
        except ControllerError as error:
            return error.message
        return None

    def close(self) -> None:
        """Ends the runtime."""
        self._end()
