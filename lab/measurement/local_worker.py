"""A worker inside this process, which is also its client: to time its work, or to let it crash alone."""

from __future__ import annotations

import itertools
import math
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from aicirt.contract.abi import RowKind, Verb
from aicirt.contract.errors import AiciError, error_from_wire
from aicirt.contract.messages import (
    CLONE,
    FREE,
    START,
    STEP,
    Clone,
    Free,
    Sample,
    Splice,
    Start,
    StepInput,
    StepRequest,
    decode,
    encode,
)
from aicirt.ipc.frames import FrameSocket
from aicirt.ipc.ring import Doorbell
from aicirt.ipc.segment import Layout, Segment
from aicirt.settings import WorkerConfig
from aicirt.system.files import sealed_bytes
from aicirt.vocab.image import build_image
from aicirt.wasm import Export, Linker, Program, Ticker, WasmEngine, host_functions
from aicirt.wasm.fiber import begin
from aicirt.worker.client import Client
from aicirt.worker.hostapi import CALLS, TIMED, LoadedVocabulary
from aicirt.worker.loop import Worker
from aicirt.worker.process import Controls
from aicirt.worker.scheduling import Listener
from aicirt.worker.sequence import Sequence as Guest
from aicirt.worker.templates import Build, Template, Warmed, Warming
from pyaici.client.arguments import ALL
from pyaici.tokens import Vocabulary

_CLIENT = 1
_MID = int(Export.MID)


def load_for_guests(vocabulary: Vocabulary, *, masks_only: bool = False) -> LoadedVocabulary:
    """Loads a vocabulary as a worker does.

    With `masks_only`, controllers learn that its tokenizer is not the model's own. They then cannot choose
    tokens for forced text, so every step has a mask.
    """
    spec = vocabulary.registration()
    tokenizer, kind = spec.pop("tokenizer_data"), spec.pop("tokenizer_kind")
    image = build_image(spec.pop("tokens"), **spec)
    image_fd, tokenizer_fd = sealed_bytes("bench-image", image), sealed_bytes("bench-tokenizer", tokenizer)
    loaded = LoadedVocabulary(image_fd, len(image), tokenizer_fd, len(tokenizer), kind)
    loaded.exact &= not masks_only
    return loaded


class Mask(NamedTuple):
    """The answer of mid_process: a row, or forced tokens. `seconds` is the time that the worker took."""

    seconds: float
    row: Sample | None
    forced: Sequence[int] = ()


class LocalWorker:
    """A worker with one client. Use it as a context manager, one at a time in a process."""

    def __init__(
        self, vocabulary: LoadedVocabulary, *, num_rows: int = 64, config: WorkerConfig | None = None
    ) -> None:
        config = config or WorkerConfig()
        self.engine = WasmEngine(config.limits)
        self.linker = Linker(self.engine, host_functions(CALLS, TIMED))
        self.ticker = Ticker(self.engine)
        self._sockets = socket.socketpair()
        self._bell = Doorbell.create()
        self._listener = Listener(self._bell, self.engine.interrupt_slice)
        self._listener.start()
        self.worker = Worker(
            *(self._bell, self._listener, FrameSocket(self._sockets[0]), self.engine, self.ticker),
            *(config.request, config.worker),
        )
        self.worker.serve_call = Controls(self.worker, self.linker).serve_call
        self.vocabulary = vocabulary
        self.layout = Layout(vocabulary.vocab_size, num_rows=2 * num_rows, num_dense=0)
        self._segment = Segment.create(self.layout)
        assert self._segment.file is not None
        self.client = Client(
            _CLIENT,
            0,
            self._segment.file.fd,
            self.layout,
            vocabulary,
            config.worker.max_outbox,
        )
        self.worker.clients[_CLIENT] = self.client
        self._numbers = itertools.count(1)
        #: rows to release with the next step, [row, generation, ...]: mask rows and dense rows
        self._used: tuple[list[int], list[int]] = [], []
        #: the last mask that was read of each sequence
        self._last: dict[int, bytes] = {}
        self._programs: list[Program] = []

    def __enter__(self) -> LocalWorker:
        self.ticker.arm()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ticker.disarm()
        self.worker.detach(_CLIENT)
        self._listener.end_thread()
        self._segment.close()
        self._bell.close()
        for end in self._sockets:
            end.close()
        self.ticker.close()

    def program(self, wasm: Path) -> Program:
        """Compiles a trusted module."""
        program = Program.compile(self.linker, wasm.read_bytes())
        self._programs.append(program)
        return program

    def template(self, program: Program, arg: str) -> Template:
        """Builds the snapshot after `aici_init`. Raises the controller's error if it fails."""
        outcome: list[Template | AiciError] = []
        capabilities = self.worker.guest_capabilities(ALL.to_wire(), self.vocabulary)
        build = Build(
            *("", self.worker.memory, self.worker.limits, lambda: program, arg.encode(), self.vocabulary),
            *(capabilities, outcome.append),
        )
        while not build.run():
            pass
        (found,) = outcome
        if isinstance(found, AiciError):
            raise found
        self.worker.templates.add(found)
        return found

    def warm(self, template: Template, found: bytes = b"", *, part: float = 1.0, grown: int = 0) -> Template:
        """Fills the tables of a template as the builder does. Raises the error of `aici_warm` if it fails.

        `found`: what a sequence of the template has found (`worker.profiles`). `part`: fraction of the
        builder's budget. `grown`: bytes by which the template has grown before."""
        outcome: list[Warmed | AiciError] = []
        capabilities = self.worker.guest_capabilities(ALL.to_wire(), self.vocabulary)
        settings = self.worker.settings
        budget, most = part * settings.warm_budget_ms, settings.warm_bytes - grown
        self.worker.agenda.when_idle(
            Warming(template, capabilities, self.worker.limits, budget, most, found, outcome.append)
        )
        self._idle()
        (found,) = outcome
        if isinstance(found, AiciError):
            raise found
        self.worker.templates.add(found.template)
        return found.template

    # -- requests of a client ------------------------------------------------------------------

    def start(self, template: Template, prompt: Iterable[int] = ()) -> Guest:
        """Starts a sequence. Raises the controller's error if it fails."""
        tokens = b"".join(token.to_bytes(4, "little") for token in prompt)
        number = next(self._numbers)
        self._ask(Start(START, number, template.number, tokens, ALL.to_wire(), number))
        return self.client.sequences[number]

    def clone(self, parent: Guest) -> Guest:
        """Clones a sequence."""
        number = next(self._numbers)
        self._ask(Clone(CLONE, parent.id, number))
        return self.client.sequences[number]

    def free(self, seqs: Iterable[Guest]) -> None:
        """Ends sequences."""
        numbers = [seq.id for seq in seqs]
        self._send(Free(FREE, numbers))
        for number in numbers:
            self._last.pop(number, None)

    def finish(self, seq: Guest) -> bytes:
        """Ends a sequence; returns what it has found (`aici_found`): b"" if it was not asked."""
        self.free([seq])
        self._idle()
        return b"".join(found for _, found in self.worker.profiles.take_found()[-1:])

    def step(self, inputs: Sequence[StepInput]) -> list[Any]:
        """Runs a step; returns a list per answer: [seq, verb, ...]. Releases the rows of the step before."""
        number = next(self._numbers)
        self._send(StepRequest(STEP, number, True, *self._used, list(inputs)))
        self._used = [], []
        results: list[Any] = []
        while (data := self._segment.to_client.read()) is not None:
            message = decode(data)
            assert message[1] == number
            results += message[2]
        for entry in results:
            if entry[1] == Verb.SAMPLE and entry[2] in (RowKind.BITMASK, RowKind.SPARSE):
                self._used[0].extend(entry[3:5])
        return results

    def _idle(self) -> None:
        """Does the work that waits until the worker is idle."""
        while self.worker.agenda:
            self.worker.agenda.run_slice()

    def _ask(self, message: NamedTuple) -> list[Any]:
        self._send(message)
        data = self._segment.to_client.read()
        assert data is not None
        answer = decode(data)
        if answer[2] is not None:
            raise error_from_wire(answer[2])
        return answer

    def _send(self, message: NamedTuple) -> None:
        sent = self._segment.to_worker.try_write(encode(message))
        assert sent
        while self.worker._serve():
            pass

    # -- masks ---------------------------------------------------------------------------------

    def mask(self, seq: Guest, tokens: Sequence[int], *, backtrack: int = 0, sampled: bool = False) -> Mask:
        """Runs one step of one sequence as the worker does.

        Delivers the tokens to the guest, runs mid_process and copies its row to shared memory. Raises the
        controller's error if it fails.
        """
        step = StepInput(seq.id, tokens, backtrack, sampled, math.nan, math.nan)
        before = time.perf_counter()
        seq.deliver(step)
        call = begin(seq.instance, _MID, seq.instance.program.limit_ns[_MID])
        address = call if isinstance(call, int) else call.run()
        result, seq.flags, seq.last_row = self.client.writer.read_mid(
            seq.instance, address, seq.id, seq.length, seq.last_row
        )
        seconds = time.perf_counter() - before
        if isinstance(result, Sample):
            return Mask(seconds, result)
        return Mask(seconds, None, result.ff_tokens if isinstance(result, Splice) else ())

    def walk(self, seq: Guest, tokens: Iterable[int]) -> Iterator[Mask]:
        """Yields the mask before each of these tokens, for a new sequence. Releases the rows."""
        news: tuple[int, ...] = ()
        for token in tokens:
            mask = self.mask(seq, news, sampled=bool(news))
            if mask.row is not None and mask.row.kind == RowKind.BITMASK:
                self.row(mask.row)
            yield mask
            news = (token,)

    def row(self, sample: Sample) -> bytes:
        """Returns the words of a mask, or of the sequence's last mask; releases the row."""
        if sample.kind == RowKind.SAME:
            return self._last[sample.seq]
        start = self.layout.rows + sample.row * self.layout.row_bytes
        words = bytes(self._segment.memory[start : start + self.layout.mask_words * 4])
        self.client.rows.give_back((sample.row, sample.generation))
        self._last[sample.seq] = words
        return words
