"""An AICI controller, in a worker inside this process."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from aicirt.contract.errors import AiciError
from aicirt.contract.messages import Sample
from aicirt.settings import LEARN_PART, WARM_STAGES
from aicirt.wasm import Program
from aicirt.worker.sequence import Sequence as Guest
from aicirt.worker.templates import Template
from lab.contestants import Contestant, Refused
from lab.measurement.local_worker import LocalWorker, Mask


class Aici(Contestant):
    """`compile` runs `aici_init` and takes the snapshot; each text begins from it."""

    name = "aici"

    def __init__(self, worker: LocalWorker, program: Program | Path, argument: str) -> None:
        self._worker = worker
        self._program = program if isinstance(program, Program) else worker.program(program)
        self._argument = argument
        self._template: Template | None = None
        #: bytes of the template after `aici_init`
        self._first_bytes = 0
        self._is_warm = False
        self._sequence: Guest | None = None
        self._news: list[int] = []
        self._mask: Mask | None = None

    def compile(self) -> None:
        self._end()
        try:
            self._template = self._worker.template(self._program, self._argument)
        except AiciError as error:
            raise Refused(error.message) from error
        self._first_bytes, self._is_warm = self._template.snapshot.nbytes, False

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

    def idle(self) -> None:
        """Does the builder's work between two requests: fills tables ahead, and learns from the last text."""
        assert self._sequence is not None
        found = self._worker.finish(self._sequence)
        self._sequence = None
        if not self._is_warm:
            self._is_warm = True
            for before, after in pairwise((0.0, *WARM_STAGES)):
                self._warm(b"", after - before)
        if found:
            self._warm(found, LEARN_PART)

    def close(self) -> None:
        self._end()
        self._template = None

    @property
    def template_bytes(self) -> int:
        """Bytes of the template, which all sequences share."""
        return self._template.snapshot.nbytes if self._template else 0

    def _warm(self, found: bytes, part: float) -> None:
        assert self._template is not None
        grown = self._template.snapshot.nbytes - self._first_bytes
        with suppress(AiciError):  # the template stays unchanged
            self._template = self._worker.warm(self._template, found, part=part, grown=grown)

    def _end(self) -> None:
        if self._sequence is not None:
            self._worker.free([self._sequence])
            self._sequence = None
