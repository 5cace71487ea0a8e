"""An AICI controller, in a worker inside this process."""

from __future__ import annotations

from pathlib import Path

from aicirt.contract.errors import AiciError
from aicirt.contract.messages import Sample
from aicirt.wasm import Program
from aicirt.worker.sequence import Sequence as Guest
from aicirt.worker.templates import Template
from bench.contestants import Contestant, Refused
from bench.measurement.local_worker import LocalWorker, Mask


class Aici(Contestant):
    """`compile` runs `aici_init` and takes the snapshot; each text begins from it."""

    name = "aici"

    def __init__(self, worker: LocalWorker, program: Program | Path, argument: str) -> None:
        self._worker = worker
        self._program = program if isinstance(program, Program) else worker.program(program)
        self._argument = argument
        self._template: Template | None = None
        self._sequence: Guest | None = None
        self._news: list[int] = []
        self._mask: Mask | None = None

    def compile(self) -> None:
        self._end()
        try:
            self._template = self._worker.template(self._program, self._argument)
        except AiciError as error:
            raise Refused(error.message) from error

    def reset(self) -> None:
        self._end()
        assert self._template is not None
        self._sequence = self._worker.start(self._template)
        self._news = []

    def mask(self) -> None:
        assert self._sequence is not None
        self._mask = self._worker.mask(self._sequence, self._news, sampled=bool(self._news))

    def accept(self, token: int) -> None:
        self._news = [token]

    def row(self) -> bytes:
        assert self._mask is not None
        if not isinstance(self._mask.row, Sample):
            return b""  # the text can only end here
        return self._worker.row(self._mask.row)

    def _end(self) -> None:
        if self._sequence is not None:
            self._worker.free([self._sequence])
            self._sequence = None
