"""A changing load of sequences of lab/guests/ledger.c, with each answer compared with the expected one."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from aicirt.contract.abi import RowKind, Verb
from aicirt.contract.errors import (
    AiciError,
    RuntimeFailure,
    TimeLimitError,
)
from aicirt.contract.messages import StepInput
from lab.campaigns.ledger import Ledger, seen
from pyaici.client.results import MidResult, Row
from pyaici.client.runtime import Runtime
from pyaici.tokens import Vocabulary

_T = TypeVar("_T")
#: number of arguments that repeat, and fraction of new arguments
_KEYS = 40
_NEW_KEYS = 0.2
_STEPS = (5, 60)
_FORWARD_SECONDS = (0.002, 0.006)
#: `num_dense` for a load: forks of all its sequences may have dense rows at a time, those of two steps each
DENSE_ROWS = 64


@dataclass(frozen=True, slots=True)
class Loss:
    """A failure of the runtime: a sequence was lost, or a call failed."""

    #: "step", or the name of the call
    what: str
    code: str
    message: str
    #: pid of the sequence's worker; 0 for a call to the supervisor
    pid: int
    #: time.monotonic() when the engine began to wait, and when the error arrived
    start: float
    end: float


@dataclass(slots=True)
class _Member:
    ledger: Ledger
    steps: int
    pid: int
    report: StepInput
    late: bool = False
    #: before its first answer a sequence may still read its prompt and cannot be cloned
    answered: bool = False
    #: number of sequences that it is about to fork into
    size: int = 1
    printed: str = ""
    prints: str = ""


@dataclass
class Load:
    """An engine with about `count` sequences."""

    runtime: Runtime
    module: str
    vocabulary: Vocabulary
    count: int
    random: random.Random
    #: probability of other actions in each step: "clone", "prepare", "upload"
    churn: dict[str, float] = field(default_factory=dict)
    wasm: bytes = b""
    #: counts of steps, answers, correctly ended requests, forks, clones, late answers, ...
    done: Counter[str] = field(default_factory=Counter)
    #: wrong answers
    wrong: list[str] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._live: dict[int, _Member] = {}
        self._resume = 0.0

    @property
    def live(self) -> int:
        """Number of live sequences."""
        return len(self._live)

    def step(self) -> None:
        """Starts sequences, does other actions at random, and runs a step of all sequences."""
        self._fill()
        for what, likely in self.churn.items():
            if self.random.random() < likely:
                getattr(self, f"_{what}")()
        inputs = []
        for seq, member in self._live.items():
            if member.late:
                inputs.append(StepInput(seq))
                continue
            inputs.append(member.report)
            member.size = member.ledger.begin_step(member.report.tokens, member.report.backtrack)
        if not inputs:
            time.sleep(0.01)
            return
        start = time.monotonic()
        step = self.runtime.begin_step(inputs)
        verdicts = step.wait_pre()
        received = time.monotonic()
        waiting: set[int] = set()
        for seq in list(self._live):
            verdict, member = verdicts.get(seq), self._live[seq]
            if verdict is not None and verdict.error is not None:
                self._fail(seq, verdict.error, start, received)
            elif verdict is not None and verdict.verb == Verb.SUSPEND:  # its worker is late
                member.late = True
                waiting.add(seq)
            elif verdict is not None:
                self._fork(seq, member.size, verdict.verb, verdict.children)
            elif member.size > 1 and member.answered:
                self._drop(seq, f"did not fork into {member.size}")
        time.sleep(self.random.uniform(*_FORWARD_SECONDS))
        start = time.monotonic()
        result = step.wait()
        received = time.monotonic()
        self.done["steps"] += 1
        for seq, text in result.logs.items():
            if seq in self._live:
                self._live[seq].printed += text
        for seq in list(self._live):
            answer = result.mid.get(seq)
            if answer is not None:
                self._check(seq, answer, start, received)
            elif seq not in waiting:
                self._drop(seq, f"no answer for sequence {seq}")

    def finish(self) -> None:
        """Frees all sequences."""
        self.runtime.free(list(self._live))
        self._live.clear()

    # -- starts and other actions -----------------------------------------------------------------

    def _fill(self) -> None:
        if time.monotonic() < self._resume:
            return
        while len(self._live) < self.count:
            ledger, prompt = self._new_ledger()
            wait = self.random.random() < 0.5
            seq = self._call(
                "instantiate", self.runtime.instantiate, self.module, ledger.argument, prompt, wait=wait
            )
            if seq is None:
                self._resume = time.monotonic() + 0.02
                return
            steps = self.random.randint(*_STEPS)
            self._live[seq] = _Member(ledger, steps, self.runtime._live[seq].pid, StepInput(seq))
            self.done["starts"] += 1

    def _new_ledger(self) -> tuple[Ledger, list[int]]:
        new = self.random.random() < _NEW_KEYS
        key = self.random.getrandbits(31) if new else self.random.randrange(_KEYS)
        prompt = [self.random.randrange(1, 200) for _ in range(self.random.randint(1, 40))]
        return Ledger(key, self.random.choice((0, 0, 2)), prompt, self.vocabulary), prompt

    def _clone(self) -> None:
        ready = [seq for seq, it in self._live.items() if it.answered and not it.late and not it.ledger.forks]
        if not ready:
            return
        seq = self.random.choice(ready)
        child = self._call("clone", self.runtime.clone, seq, pid=self._live[seq].pid)
        if child is not None:
            parent = self._live[seq]
            report = parent.report._replace(seq=child)
            self._live[child] = _Member(
                parent.ledger.clone(), parent.steps, parent.pid, report, answered=True
            )
            self.done["clones"] += 1

    def _prepare(self) -> None:
        ledger, _ = self._new_ledger()
        self._call("prepare", self.runtime.prepare, self.module, ledger.argument)
        self.done["prepares"] += 1

    def _upload(self) -> None:
        """Uploads the controller under a new id: with a unique custom section."""
        name = b"campaign"
        body = bytes([len(name)]) + name + self.random.randbytes(8)
        info = self._call("upload", self.runtime.upload, self.wasm + bytes([0, len(body)]) + body)
        if info is not None:
            self.module = info.id
            self.done["uploads"] += 1

    def _call(
        self, what: str, call: Callable[..., _T], *args: object, pid: int = 0, **named: object
    ) -> _T | None:
        start = time.monotonic()
        try:
            return call(*args, **named)
        except RuntimeFailure as error:
            self.losses.append(Loss(what, error.code, error.message, pid, start, time.monotonic()))
        except AiciError as error:
            self.wrong.append(f"{what}: {error.code}: {error.message}")
        return None

    # -- answers ------------------------------------------------------------------------------------

    def _fork(self, seq: int, size: int, verb: Verb, children: list[int]) -> None:
        member = self._live[seq]
        if verb != Verb.FORK or len(children) != size - 1:
            self._drop(seq, f"pre_process returned {verb.name} into {1 + len(children)}, not {size}")
            return
        ledgers = member.ledger.group(size)
        member.size = 1
        for child, ledger in zip(children, ledgers[1:], strict=True):
            self._live[child] = _Member(ledger, member.steps, member.pid, StepInput(child))
        self.done["forks"] += 1

    def _check(self, seq: int, answer: MidResult, start: float, end: float) -> None:
        member = self._live[seq]
        if answer.verb == Verb.LATE:
            member.late = True
            self.done["late"] += 1
            return
        if answer.error is not None and answer.error.code != "failed":
            self._fail(seq, answer.error, start, end)
            return
        if member.size > 1:
            self._drop(seq, f"did not fork into {member.size}")
            return
        member.late, member.answered = False, True
        member.prints += member.ledger.log()
        expected, found = member.ledger.expected(), seen(answer)
        if found != expected:
            self._drop(seq, f"{member.ledger.argument}: {found!r:.200} instead of {expected!r:.200}")
            return
        if answer.verb != Verb.ERROR and member.printed != member.prints:
            self._drop(seq, f"{member.ledger.argument} printed {member.printed!r}, not {member.prints!r}")
            return
        self.done["answers"] += 1
        if answer.verb in (Verb.STOP, Verb.ERROR):
            del self._live[seq]
            self.done["requests"] += 1
        elif answer.verb == Verb.SPLICE:
            member.report = StepInput(seq, list(answer.ff_tokens), answer.backtrack)
        else:
            assert answer.row is not None
            member.report = StepInput(seq, [self._choose(answer.row)], 0, True)
        member.steps -= 1
        if member.steps <= 0 and seq in self._live:
            self.runtime.free([seq])
            del self._live[seq]
            self.done["requests"] += 1

    def _choose(self, row: Row) -> int:
        if row.kind == RowKind.TOKEN:
            return row.token
        if row.kind == RowKind.SPARSE:
            assert row.tokens is not None
            return int(row.tokens[0])
        if row.kind == RowKind.BITMASK:
            assert row.bits is not None
            allowed = [token for token in range(1, 256) if int(row.bits[token >> 5]) >> (token & 31) & 1]
            return self.random.choice(allowed)
        return self.random.randrange(1, 256)

    def _fail(self, seq: int, error: AiciError, start: float, end: float) -> None:
        """Records a sequence that ended with an error which its controller did not request."""
        member = self._live.pop(seq)
        if isinstance(error, RuntimeFailure):
            self.losses.append(Loss("step", error.code, error.message, member.pid, start, end))
        elif isinstance(error, TimeLimitError):  # the machine is overloaded
            self.done[f"ended: {error.code}"] += 1
        else:
            self.wrong.append(f"{member.ledger.argument}: {error.code}: {error.message}")

    def _drop(self, seq: int, problem: str) -> None:
        self.wrong.append(problem)
        self.runtime.free([seq])
        del self._live[seq]
