"""Compiled controllers as a worker has loaded them."""

from __future__ import annotations

from collections import OrderedDict

from aicirt.wasm.host import Linker
from aicirt.wasm.program import Program


class Programs:
    """Loaded when they are first needed; the least recently used are given up beyond a number.

    One that is given up is unloaded when no guest and no template of it is left.
    """

    def __init__(self, linker: Linker, limit: int) -> None:
        self._linker = linker
        self._limit = limit
        self._programs: OrderedDict[str, Program] = OrderedDict()
        #: how many had to go for others
        self.given_up = 0

    def get(self, module: str, path: str) -> Program:
        """The program of a module (its id), whose compiled code is at `path`. Raises ModuleError."""
        program = self._programs.get(module)
        if program is None:
            program = self._programs[module] = Program.from_file(self._linker, path)
            program.id = module
            if len(self._programs) > self._limit:
                self._programs.popitem(last=False)
                self.given_up += 1
        self._programs.move_to_end(module)
        return program
