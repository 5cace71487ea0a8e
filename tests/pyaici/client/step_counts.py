"""Work of client and worker for a step, a start, a copy and an end, as committed in step_counts_*.json.

``python -m tests.pyaici.client.step_counts`` prints what differs from the file; with ``--write`` it updates
the file.

Client and worker run in one thread: when the client rings the worker's bell, the worker serves a round.
Clocks stand still, and no tick interrupts a guest. The counts are bytecodes and system calls of each side,
and calls of wasmtime, messages and their bytes of both. The work of guests is not counted. Each version of
Python has other bytecodes, and so a file of its own.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import socket
import sys
import tempfile
import time
from _ctypes import CFuncPtr
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar
from unittest.mock import patch

from aicirt.contract.abi import Verb
from aicirt.contract.messages import Reply, StepInput
from aicirt.ipc.frames import FrameSocket
from aicirt.ipc.ring import Doorbell, Ring
from aicirt.ipc.segment import Layout
from aicirt.wasm import Export, fiber, host, raw
from aicirt.wasm.memory import Reaper
from aicirt.worker.client import Client
from aicirt.worker.templates import Template
from lab.inputs.vocabularies import synthetic
from lab.measurement.local_worker import LocalWorker, load_for_guests
from pyaici.client import channel, runtime
from pyaici.client.control import Placement, WorkerAddress
from pyaici.client.results import MidResult
from pyaici.client.runtime import Runtime
from pyaici.tokens import Vocabulary
from pyaici.toolchain import build_controller
from tests.counts import Counts
from tests.system_calls import be_traced, count, mark

MODULE = "tests.pyaici.client.step_counts"
_VERSION = f"{sys.version_info.major}_{sys.version_info.minor}"
COUNTS = Counts(Path(__file__).with_name(f"step_counts_{_VERSION}.json"), MODULE)
ROOT = Path(__file__).resolve().parents[3]
VOCABULARY = synthetic(32_000)
_TOKEN = VOCABULARY.tokens.index(b"a")
#: numbers of sequences in a step
_BATCHES = 1, 10, 40, 256
#: steps before the counted ones, and counted ones
_WARM_UP, _REPEATS = 3, 3
#: seconds between two steps
_FORWARD = 0.02
#: option of the process whose system calls are counted
_TRACED = "--traced"


class Meter:
    """Knows the side that is running: "client" or "worker", or "" for the measurement itself."""

    def __init__(self) -> None:
        self.side = ""

    def switch(self, side: str) -> str:
        """Counts for another side from now on; returns the one before."""
        before, self.side = self.side, side
        return before

    def take(self) -> Any:
        """Returns what was counted since the last call."""


class Work(Meter):
    """Counts bytecodes, calls of wasmtime, messages and their bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._found: defaultdict[str, int] = defaultdict(int)
        self._hidden = {it.__code__ for it in (Meter.switch, Pair.serve, _Bell.ring, _step)}

    def take(self) -> dict[str, int]:
        found, self._found = self._found, defaultdict(int)
        return dict(sorted(found.items()))

    @contextmanager
    def on(self) -> Iterator[None]:
        """Counts in this block."""
        with ExitStack() as undo:
            for name, function in list(vars(raw).items()):
                if isinstance(function, CFuncPtr):
                    undo.enter_context(patch.object(raw, name, self._counted(function)))
            undo.enter_context(patch.object(Ring, "try_write", self._written(Ring.try_write)))
            undo.callback(sys.settrace, None)
            sys.settrace(self._trace)
            yield

    def _counted(self, function: Any) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if self.side:
                self._found["wasmtime calls"] += 1
            return function(*args)

        self._hidden.add(call.__code__)
        return call

    def _written(self, write: Callable[..., bool]) -> Callable[..., bool]:
        def try_write(ring: Ring, payload: bytes, more: bool = False) -> bool:
            done = write(ring, payload, more)
            if done:
                self._found["messages"] += 1
                self._found["message bytes"] += len(payload)
            return done

        self._hidden.add(try_write.__code__)
        return try_write

    def _trace(self, frame: FrameType, _event: str, _arg: object) -> Any:
        if frame.f_code in self._hidden:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._opcode

    def _opcode(self, _frame: FrameType, event: str, _arg: object) -> Any:
        if event == "opcode" and self.side:
            self._found[f"{self.side} bytecodes"] += 1
        return self._opcode


class Marks(Meter):
    """Marks where another side begins, for the process that counts system calls."""

    def __init__(self) -> None:
        super().__init__()
        #: what begins with each mark: number of the measurement, and the side
        self.marks: list[tuple[int, str]] = []
        self._number = 0

    def switch(self, side: str) -> str:
        mark()
        self.marks.append((self._number, side))
        return super().switch(side)

    def take(self) -> int:
        """Returns the number of the measurement that ends."""
        self._number += 1
        return self._number - 1


class _Bell(Doorbell):
    """The worker's bell as the client sees it: the worker serves a round when it is rung for a message."""

    __slots__ = ()
    pair: ClassVar[Pair]

    def ring(self) -> None:
        Doorbell.ring(self)
        self.pair.serve()


class _Supervisor:
    """Answers the calls of a client."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair

    def call(self, name: str, fds: Sequence[int] = (), **args: Any) -> Any:
        """Registers the vocabulary, or attaches the client."""
        if name == "vocabulary":
            return {"id": 1, "vocab_size": self._pair.local.vocabulary.vocab_size}
        assert name == "attach", name
        return self._pair.attach(args, *fds)

    def close(self) -> None:
        """Does nothing: there is no connection."""


class Pair:
    """A worker and a client in this thread. Use it as a context manager."""

    def __init__(self, meter: Meter, vocabulary: Vocabulary = VOCABULARY) -> None:
        self.meter = meter
        self._vocabulary = vocabulary
        #: seconds, on all clocks but those of CPU time
        self._clock = [1000.0]
        self._clients = itertools.count(2)
        self._undo = ExitStack()
        self._folder = self._undo.enter_context(tempfile.TemporaryDirectory())
        self.local = self._undo.enter_context(LocalWorker(load_for_guests(vocabulary)))
        guests = {
            "steady": "lab/guests/steady.c",
            "guest": "tests/guests/guest.c",
            "regex": "controllers/regex",
        }
        self._programs = {name: self._program(name, ROOT / source) for name, source in guests.items()}
        self._templates: dict[tuple[str, str], Template] = {}
        self.runtime: Runtime

    def _program(self, name: str, source: Path) -> Any:
        return self.local.program(build_controller(source, Path(self._folder) / f"{name}.wasm").path)

    def __enter__(self) -> Pair:
        local, read = self.local, partial(self._clock.__getitem__, 0)
        local.ticker.disarm()  # `run_round` arms it
        self._undo.callback(local.ticker.arm)
        never = fiber._TimerSpec(1000, 0, 1000, 0)
        _Bell.pair = self
        reaper = Reaper()
        self._undo.callback(reaper.end_thread)
        for target, name, value in (
            (local.engine, "reaper", reaper),
            (channel, "Doorbell", _Bell),
            (runtime, "Control", lambda *_: _Supervisor(self)),
            (local.ticker, "_on", never),
            (time, "monotonic", read),
            (time, "monotonic_ns", partial(int, 10**12)),
            (host, "monotonic", read),
        ):
            self._undo.enter_context(patch.object(target, name, value))
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    @contextmanager
    def client(self) -> Iterator[None]:
        """Attaches a new client, whose numbers take as many bytes in each step."""
        with Runtime("nowhere", num_rows=4 * max(_BATCHES)) as self.runtime:
            self.runtime.register(self._vocabulary)
            self.runtime._steps, self.runtime._live._numbers = itertools.count(1000), itertools.count(1000)
            yield

    def attach(self, args: dict[str, Any], segment: int, waker: int) -> None:
        """Attaches a client as `aicirt.worker.process` does, and sends it the doorbell."""
        worker = self.local.worker
        for number in list(worker.clients):
            worker.detach(number)
        layout = Layout.from_wire(args["layout"])
        number = next(self._clients)
        worker.clients[number] = Client(
            *(number, args["link"], segment, layout, self.local.vocabulary, worker.settings.max_outbox)
        )
        bell = worker._bell.file
        assert bell is not None
        with socket.socket(fileno=os.dup(waker)) as sock:
            FrameSocket(sock).send(Reply(0, None, None), [bell.fd])

    def serve(self) -> None:
        """Has the worker serve a round if the client has sent a message."""
        side = self.meter.switch("")
        worker = self.local.worker
        if any(client.from_client.waiting for client in worker.clients.values()):
            self.meter.switch("worker")
            worker.run_round()
        self.meter.switch(side)

    def place(self, name: str, argument: str = "") -> Placement:
        """Returns a placement for a controller; builds its snapshot at the first call."""
        key = name, argument
        program = self._programs[name]
        if key not in self._templates:
            self._templates[key] = self.local.template(program, argument)
        has = program.has
        address = WorkerAddress(0, 0, os.getpid())
        self.runtime._links.attach(address, *self.runtime._require_vocabulary())
        return Placement(address, self._templates[key].number, has[Export.PRE], has[Export.POST], False)

    def start(self, name: str, argument: str = "") -> int:
        """Starts a sequence."""
        return self.runtime.instantiate("", "", (1, 2, 3), seed=7, placement=self.place(name, argument))

    def run(self, case: Case) -> list[Any]:
        """Returns what the meter takes of each repetition of a case."""
        found = []
        with self.client():
            for operation in itertools.islice(case(self), _WARM_UP + _REPEATS):
                self._clock[0] += _FORWARD
                self.meter.take()
                self.meter.switch("client")
                operation()
                self.meter.switch("")
                found.append(self.meter.take())
        return found[_WARM_UP:]


#: yields what is counted, and prepares it and cleans up in between
Case = Callable[[Pair], Iterator[Callable[[], object]]]


def _step(client: Runtime, inputs: list[StepInput], answers: dict[int, MidResult]) -> None:
    step = client.begin_step(inputs)
    step.wait_pre()
    answers.update(step.wait().mid)


def _next(seq: int, answer: MidResult) -> StepInput:
    if answer.verb == Verb.SPLICE:
        return StepInput(seq, answer.ff_tokens, answer.backtrack)
    assert answer.verb == Verb.SAMPLE, answer
    return StepInput(seq, [_TOKEN], sampled=True, logprob=-0.5, allowed_mass=0.75)


def _steps(name: str, argument: str, number: int) -> Case:
    """Steps of sequences, whose masks are the same each time."""

    def case(pair: Pair) -> Iterator[Callable[[], object]]:
        seqs = [pair.start(name, argument) for _ in range(number)]
        inputs = [StepInput(seq) for seq in seqs]
        while True:
            answers: dict[int, MidResult] = {}
            yield partial(_step, pair.runtime, inputs, answers)
            inputs = [_next(seq, answers[seq]) for seq in seqs]

    return case


def _one_step(name: str, argument: str, before: int = 0, *, final: bool = False) -> Case:
    """The step of a new sequence after the first `before` steps."""

    def case(pair: Pair) -> Iterator[Callable[[], object]]:
        while True:
            seq = pair.start(name, argument)
            item = StepInput(seq)
            answers: dict[int, MidResult] = {}
            for _ in range(before):
                _step(pair.runtime, [item], answers)
                item = _next(seq, answers[seq])
            yield partial(_step, pair.runtime, [item._replace(final=final)], answers)
            pair.runtime.free([seq, *answers])

    return case


def _start(name: str, argument: str = "") -> Case:
    def case(pair: Pair) -> Iterator[Callable[[], object]]:
        where = pair.place(name, argument)
        while True:
            seqs = set(pair.runtime._live)
            yield partial(pair.runtime.instantiate, "", "", (1, 2, 3), seed=7, placement=where)
            pair.runtime.free(pair.runtime._live.keys() - seqs)

    return case


def _clone(pair: Pair) -> Iterator[Callable[[], object]]:
    seq = pair.start("guest", "ok")
    while True:
        yield partial(pair.runtime.clone, seq)
        pair.runtime.free(pair.runtime._live.keys() - {seq})


def _free(pair: Pair) -> Iterator[Callable[[], object]]:
    while True:
        seq = pair.start("steady")
        _step(pair.runtime, [StepInput(seq)], {})
        yield partial(pair.runtime.free, [seq])


CASES: dict[str, Case] = {
    **{f"critical {number}": _steps("steady", "", number) for number in _BATCHES},
    **{f"overlapped {number}": _steps("regex", "[a-z]+", number) for number in _BATCHES},
    "new mask": _one_step("regex", "[a-z]+"),
    "splice": _steps("guest", "splice 0", 1),
    "fork into 5": _one_step("guest", "fork 5", before=1),
    "start": _start("steady"),
    "start with a vocabulary": _start("regex", "[a-z]+"),
    "clone": _clone,
    "end by client": _free,
    "end by final tokens": _one_step("steady", "", before=1, final=True),
    "end by controller": _one_step("guest", "mid_return_stop", before=1),
}


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def measure() -> dict[str, dict[str, int]]:
    """Returns the counts of all cases: of several repetitions, the fewest of each kind."""
    work = Work()
    with _without_garbage_collection(), Pair(work) as pair, work.on():
        found = {name: _fewest(pair.run(case)) for name, case in CASES.items()}
    return {name: {**found[name], **calls} for name, calls in _system_calls().items()}


def _fewest(counts: list[dict[str, int]]) -> dict[str, int]:
    return {what: min(some.get(what, 0) for some in counts) for what in sorted(counts[0])}


def _system_calls() -> dict[str, dict[str, int]]:
    segments, output = count(["-m", MODULE, _TRACED])
    numbers, marks = json.loads(output)
    calls: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for (number, side), segment in zip(marks, segments, strict=True):
        if side:
            calls[number].update({f"{side} {name}": times for name, times in segment.items()})
    return {name: _fewest([calls[number] for number in some]) for name, some in numbers.items()}


def _be_counted() -> None:
    """Runs all cases in a process that `system_calls` traces."""
    meter = Marks()
    with _without_garbage_collection(), Pair(meter) as pair:
        be_traced()
        numbers = {name: pair.run(case) for name, case in CASES.items()}
    print(json.dumps([numbers, meter.marks]))


if __name__ == "__main__":
    if _TRACED in sys.argv:
        _be_counted()
    else:
        sys.exit(COUNTS.main(measure, __doc__))
