"""Looks for errors in scripts without a model: their top level runs in the real runtime."""

from __future__ import annotations

import weakref
from pathlib import Path
from types import TracebackType
from typing import Any

from aicirt.contract.errors import ControllerError
from pyaici.runtime import Runtime
from pyaici.scripting.errors import ScriptFileError
from pyaici.scripting.problem import Problem, find_problem, is_syntax_error
from pyaici.scripting.script import Script, interpreter_file, read_script
from pyaici.testing.vocabulary import small_vocabulary


class Checker:
    """One runtime for all files. Use as a context manager."""

    def __init__(self) -> None:
        self._runtime = Runtime(workers=1)
        self._end = weakref.finalize(self, self._runtime.close)
        self._runtime.register(small_vocabulary())
        self._modules: dict[Path, str] = {}

    def check(self, path: str | Path, arg: Any = None) -> Problem | None:
        """The first error: of the file, of the syntax, of the top level, or that there is nothing to run.

        `arg`: what the script gets as its argument. Raises InterpreterMissingError.
        """
        try:
            script = read_script(path)
        except ScriptFileError as error:
            return Problem(str(path), 1, None, error.message)
        message = self._run(script, arg)
        return None if message is None else find_problem(script, message)

    def check_syntax(self, script: Script) -> Problem | None:
        """The first error that every argument meets: of the syntax. Raises InterpreterMissingError."""
        message = self._run(script, None)
        return find_problem(script, message) if message and is_syntax_error(message) else None

    def _run(self, script: Script, arg: Any) -> str | None:
        """What the top level ends with."""
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

    def __enter__(self) -> Checker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
