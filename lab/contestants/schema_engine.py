"""Runs an engine in a child process: it compiles a JSON schema, and walks through texts."""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

from aicirt.contract.errors import AiciError
from aicirt.settings import WorkerConfig
from lab.contestants import Contestant, Refused
from lab.contestants.aici import Aici
from lab.contestants.fuel import Fuel
from lab.contestants.grammar_cases import Arena, Controllers, tokenized
from lab.contestants.native import Xgrammar
from lab.contestants.race import steps
from lab.inputs.vocabularies import vocabulary
from lab.measurement.local_worker import LocalWorker, load_for_guests
from lab.runners.fuel import metered_host
from lab.runners.host import Vocab
from pyaici.bundled import find_controller

ENGINES = ("aici", "llguidance", "xgrammar")
#: a long limit, so that slow masks show in the figures; and only the template in use is kept
_LIMITS = {"mid_ms": 1000, "max_templates": 1}
_CALIBRATIONS = 1001


class SchemaEngine:
    """Answers are dictionaries for JSON. Times are pairs: ns of wall clock and of the thread's CPU time."""

    def __init__(
        self,
        make: Callable[[Any], Contestant],
        tokens: Callable[[str], Sequence[int]],
        end_tokens: Sequence[int],
    ) -> None:
        """`make` makes a contestant for a schema, `tokens` tokenizes a text."""
        self._make, self._tokens, self._end_tokens = make, tokens, end_tokens
        self._contestant: Contestant | None = None
        # reading the clock of a thread takes as long as a cached mask
        self._clock_ns = round(statistics.median(_timed(lambda: None)[1] for _ in range(_CALIBRATIONS)))

    def compile(self, schema: Any) -> dict[str, Any]:
        """Returns the times as "compile", or the reason of a refusal as "refused"."""
        self.close()
        self._contestant = contestant = self._make(schema)
        try:
            times = self._without_clock(_timed(contestant.compile))
        except (Refused, ValueError) as error:
            return {"refused": str(error)}
        return {"compile": times} | ({"fuel": contestant.fuel} if isinstance(contestant, Fuel) else {})

    def walk(self, text: str) -> dict[str, Any]:
        """Walks through a text, until a token is not allowed.

        Returns the times of the start as "start", of the mask before each token as "wall" and "cpu", and
        whether the engine takes the text as "taken". "fuel" has the fuel of each mask, if it is counted. If
        the engine fails, "error" has the reason.
        """
        contestant = self._contestant
        assert contestant is not None
        wall: list[int] = []
        cpu: list[int] = []
        found: dict[str, Any] = {"wall": wall, "cpu": cpu, "taken": False}
        tokens = self._tokens(text)
        try:
            found["start"] = self._without_clock(_timed(contestant.reset))
            for token, step in zip((*tokens, None), steps(contestant, tokens), strict=True):
                if token is None:
                    found["taken"] = not step.row or any(map(step.allows, self._end_tokens))
                    break
                times = self._without_clock((step.wall_ns, step.cpu_ns))
                wall.append(times[0])
                cpu.append(times[1])
                if isinstance(contestant, Fuel):
                    found.setdefault("fuel", []).append(contestant.fuel)
                if not step.allows(token):
                    break
        except (Refused, AiciError, RuntimeError) as error:
            found["error"] = str(error)
        return found

    def idle(self) -> dict[str, Any]:
        """Ends the text; does what a service does before the next request. Returns its CPU time, ms."""
        assert self._contestant is not None
        _, cpu = _timed(self._contestant.idle)
        found = {"idle_ms": cpu / 1e6}
        if isinstance(self._contestant, Aici):
            found["template_kib"] = self._contestant.template_bytes / 1024
        return found

    def close(self) -> None:
        """Frees the schema."""
        if self._contestant is not None:
            self._contestant.close()
            self._contestant = None

    def _without_clock(self, times: tuple[int, int]) -> tuple[int, int]:
        return times[0], max(times[1] - self._clock_ns, 0)


@contextmanager
def schema_engine(name: str, size: str) -> Iterator[SchemaEngine]:
    """Makes the engine of this name, with the vocabulary of this size."""
    words = vocabulary(size)
    loaded = load_for_guests(words, masks_only=True)
    with LocalWorker(loaded, config=WorkerConfig.with_overrides(_LIMITS)) as worker:
        arena = Arena(words, loaded, worker, Controllers(find_controller("json_schema").parent))
        makers: dict[str, Callable[[Any], Contestant]] = {
            "aici": arena.aici_schema,
            "llguidance": arena.llguidance_schema,
            "xgrammar": lambda schema: Xgrammar.of_schema(arena.natives, schema),
        }
        with closing(SchemaEngine(makers[name], arena.tokens, words.eos)) as engine:
            yield _used_once(engine)


@contextmanager
def fuel_engine(size: str) -> Iterator[SchemaEngine]:
    """Makes our engine with fuel, with the vocabulary of this size."""
    words = vocabulary(size)
    loaded = load_for_guests(words, masks_only=True)
    vocab = Vocab(words.tokens, special=list(words.special), eos=list(words.eos))
    with metered_host() as host:
        program = host.compile(find_controller("json_schema").read_bytes())

        def make(schema: Any) -> Fuel:
            return Fuel(program, vocab, json.dumps(schema))

        with closing(SchemaEngine(make, partial(tokenized, loaded), words.eos)) as engine:
            yield _used_once(engine)


def _used_once(engine: SchemaEngine) -> SchemaEngine:
    """Has the engine do what it does only once: compile a module, or build a tokenizer."""
    engine.compile({"type": "object"})
    engine.walk("{}")
    gc.disable()  # as in a worker
    return engine


def _timed(call: Callable[[], object]) -> tuple[int, int]:
    """Returns the ns of wall clock and of the thread's CPU time that a call takes."""
    cpu, wall = time.thread_time_ns(), time.perf_counter_ns()
    call()
    wall = time.perf_counter_ns() - wall
    return wall, time.thread_time_ns() - cpu
