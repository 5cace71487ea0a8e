"""Prints our part of a step of vLLM: bytecodes, system calls and processor time in the engine's thread.

    AICI_TESTED_VLLM=0.33.0 .venv-vllm/bin/python -m tests.pyaici.engines.vllm.step_work

The engine is vLLM's own, with asynchronous scheduling and the simulated worker. Each line has a number of
sequences, under a pattern or without a controller: medians of steps in whose pass the controllers have
answered. Methods of vLLM that ours call do not count.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

from lab.inputs.constraints import ENDLESS_WORDS
from lab.vllm.engines import ENVIRONMENT, Engines
from lab.vllm.simulated import VARIABLE, use_version
from lab.vllm.simulated.model import make_tiny_model
from tests.system_calls import be_traced, count, mark

#: numbers of sequences; the engine has room for the largest
BATCHES = 1, 8, 32, 64
#: steps before the measured ones, those whose time is measured, and those whose bytecodes are counted
_WARM_UP, _TIMED, _COUNTED = 16, 31, 9
#: seconds of a pass: controllers answer within it on a machine that has nothing else to do
PASS_SECONDS = 0.05
#: option of the process whose system calls are counted
_TRACED = "--traced"
_METHODS = (
    "schedule",
    "get_grammar_bitmask",
    "update_from_output",
    "_update_request_with_output",
    "_free_request",
)
_GRAMMAR = "fill_bitmask", "accept_tokens", "validate_tokens", "rollback", "is_terminated"


class Side:
    """Knows whether our code runs or vLLM's. `switched`: called before each change."""

    def __init__(self) -> None:
        self.ours = False
        self.switched: Callable[[], None] = lambda: None

    def enter(self, function: Callable[..., Any], *, ours: bool) -> Callable[..., Any]:
        """Returns a function that belongs to a side."""

        def call(*args: Any, **keywords: Any) -> Any:
            before = self.ours
            if before != ours:
                self.switched()
                self.ours = ours
            try:
                return function(*args, **keywords)
            finally:
                if before != ours:
                    self.switched()
                    self.ours = before

        return call

    @contextmanager
    def watched(self, scheduler: type) -> Iterator[None]:
        """Follows calls between our mixin and vLLM's scheduler classes."""
        from contextlib import ExitStack

        from pyaici.engines.vllm.scheduling.request_state import ControllerGrammar
        from pyaici.engines.vllm.scheduling.scheduler import SchedulerMixin

        with ExitStack() as undo:
            for owner in scheduler.__mro__[1:]:
                for name in set(_METHODS) & set(vars(owner)):
                    ours = owner is SchedulerMixin
                    undo.enter_context(patch.object(owner, name, self.enter(vars(owner)[name], ours=ours)))
            for name in _GRAMMAR:
                function = vars(ControllerGrammar)[name]
                undo.enter_context(patch.object(ControllerGrammar, name, self.enter(function, ours=True)))
            yield


class Steps:
    """Steps of an engine in this process, whose worker is simulated."""

    def __init__(self, llm: Any) -> None:
        self._engine = llm.llm_engine
        self._scheduler = self._engine.engine_core.engine_core.scheduler
        self.side = Side()

    @contextmanager
    def running(
        self, batch: int, *, controlled: bool, seconds: float = PASS_SECONDS
    ) -> Iterator[Callable[[], None]]:
        """Runs so many sequences in this block; yields a function that makes a step. `seconds`: of a pass."""
        from lab.vllm.simulated.worker import SimulatedRunner
        from tests.pyaici.engines.vllm.requests import FRANCE, parameters

        execute = SimulatedRunner.execute_model

        def execute_slowly(*args: Any) -> Any:
            time.sleep(seconds)
            return execute(*args)

        engine, options = self._engine, {"max_tokens": 400, "ignore_eos": not controlled}
        settings = parameters(*(("regex", ENDLESS_WORDS) if controlled else ()), **options)
        names = [engine.add_request(f"{batch} {number}", FRANCE, settings) for number in range(batch)]
        while len(self._scheduler.running) < batch:
            engine.step()
        with patch.object(SimulatedRunner, "execute_model", execute_slowly):
            for _ in range(_WARM_UP):
                engine.step()
            with self.side.watched(type(self._scheduler)):
                yield engine.step
        engine.abort_request(names, internal=True)
        while engine.has_unfinished_requests():
            engine.step()

    def seconds(self, step: Callable[[], None]) -> float:
        """Returns the seconds of processor time of a step that are ours."""
        spent, last = list[float](), 0.0

        def switched() -> None:
            nonlocal last
            now = time.thread_time()
            spent[-1] += self.side.ours * (now - last)
            last = now

        self.side.switched = switched
        for _ in range(_TIMED):
            spent.append(0.0)
            step()
        return statistics.median(spent)

    def bytecodes(self, step: Callable[[], None]) -> float:
        """Returns the bytecodes of a step that are ours."""
        found = [0]
        hidden = {
            Side.enter.__code__,
            *(each for each in Side.enter.__code__.co_consts if hasattr(each, "co_code")),
        }

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            if event == "call":
                frame.f_trace_opcodes, frame.f_trace_lines = True, False
                return trace if frame.f_code not in hidden else None
            found[-1] += event == "opcode" and self.side.ours
            return trace

        self.side.switched = lambda: None
        sys.settrace(trace)
        try:
            for _ in range(_COUNTED):
                step()
                found.append(0)
        finally:
            sys.settrace(None)
        return statistics.median(found[:-1])

    def marks(self, step: Callable[[], None]) -> list[int]:
        """Makes steps with a mark at each change of the side.

        Returns, for each mark, the number of the step if our code comes after it, otherwise -1.
        """
        parts: list[int] = []
        made = 0

        def switched() -> None:
            parts.append(-1 if self.side.ours else made)
            mark()

        self.side.switched = switched
        for made in range(_COUNTED):  # noqa: B007
            step()
        return parts


def _traced(steps: Steps) -> None:
    """Makes the steps whose system calls another process counts, and prints their `Steps.marks`."""
    found: dict[int, list[int]] = {}
    for batch in BATCHES:
        with steps.running(batch, controlled=True) as step:
            if not found:
                be_traced()
            found[batch] = steps.marks(step)
    print(json.dumps(list(found.items())))


def _system_calls() -> Iterator[str]:
    """Yields a line for each batch: the system calls of a step in the median."""
    calls, printed = count(["-m", "tests.pyaici.engines.vllm.step_work", _TRACED])
    rest = iter(calls)
    for batch, parts in json.loads(printed.splitlines()[-1]):
        each = [Counter[str]() for _ in range(_COUNTED)]
        for number, some in zip(parts, rest, strict=False):
            if number >= 0:
                each[number] += some
        names = sorted({name for one in each for name in one})
        median = {name: statistics.median(one[name] for one in each) for name in names}
        told = ", ".join(f"{count:g} {name}" for name, count in median.items() if count)
        yield f"{batch:3} under a pattern {told}"


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(_TRACED, action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    with tempfile.TemporaryDirectory() as folder:
        use_version(os.environ[VARIABLE], Path(folder) / "metadata")
        engines = Engines(make_tiny_model(Path(folder) / "model"))
        steps = Steps(engines(async_scheduling=True, max_num_seqs=max(BATCHES)))
        if arguments.traced:
            _traced(steps)
            return
        for controlled in (False, True):
            for batch in BATCHES:
                with steps.running(batch, controlled=controlled) as step:
                    spent, codes = steps.seconds(step), steps.bytecodes(step)
                kind = "under a pattern" if controlled else "free"
                print(f"{batch:3} {kind:15} {codes:7.0f} bytecodes {spent * 1e6:5.0f} us", flush=True)
    for line in _system_calls():
        print(line)


if __name__ == "__main__":
    main()
