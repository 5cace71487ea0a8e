"""A double of `pyaici.client.runtime.Runtime` whose controllers are Python objects of the test.

It answers at once, in the same process. Other tests use the real runtime and its processes.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from aicirt.contract.abi import RowKind, Verb
from aicirt.contract.errors import AiciError
from aicirt.contract.messages import StepInput
from pyaici.client.arguments import Capabilities
from pyaici.client.control import Placement, WorkerAddress
from pyaici.client.results import MidResult, PreResult, Row, StepResult

WORDS = 9  # mask words for 288 logits


def allow(*tokens: int) -> MidResult:
    """Returns a result: sample one of these tokens."""
    bits = np.zeros(WORDS, dtype=np.uint32)
    for token in tokens:
        bits[token >> 5] |= np.uint32(1 << (token & 31))
    return MidResult(Verb.SAMPLE, Row(RowKind.BITMASK, bits=bits))


def anything(**row: Any) -> MidResult:
    """Returns a result: sample any token."""
    return MidResult(Verb.SAMPLE, Row(RowKind.ALL, **row))


def splice(tokens: Sequence[int] | bytes, backtrack: int = 0) -> MidResult:
    """Returns a result: remove tokens at the end and append others."""
    return MidResult(Verb.SPLICE, backtrack=backtrack, ff_tokens=list(tokens))


STOP = MidResult(Verb.STOP)
LATE = MidResult(Verb.LATE)
CONTINUE = PreResult(Verb.CONTINUE)
SUSPEND = PreResult(Verb.SUSPEND)


def fork(count: int) -> PreResult:
    """Returns a result of pre_process: go on as `count` sequences. The runtime numbers the new ones."""
    return PreResult(Verb.FORK, children=[-1] * (count - 1))


class Script:
    """A controller that returns `mids`, one in each step, and then repeats the last.

    Subclasses override `pre` and `mid`. A fork gets a copy of the controller.
    """

    def __init__(self, *mids: MidResult, pres: Iterable[PreResult] = ()) -> None:
        self.mids = list(mids)
        self.pres = list(pres)
        self.reports: list[StepInput] = []
        self.output = ""
        #: place in the last fork: 0 in the parent, 1, 2, ... in its children
        self.number = 0

    def post(self, report: StepInput) -> None:
        """Receives the last tokens of a sequence that the engine has ended. If not overridden, `mid` does."""

    def pre(self, report: StepInput) -> PreResult:
        return self.pres.pop(0) if self.pres else CONTINUE

    def mid(self, report: StepInput) -> MidResult:
        return self.mids.pop(0) if len(self.mids) > 1 else self.mids[0]


class ScriptedRuntime:
    """A runtime whose modules are functions from (arg, prompt) to a `Script`."""

    def __init__(self, **modules: Callable[[str, list[int]], Script]) -> None:
        self.modules = modules
        self.live: dict[int, Script] = {}
        #: all controllers, also those that have ended, by number
        self.ever: dict[int, Script] = {}
        self.freed: list[int] = []
        self.steps = 0
        self.capabilities: list[Capabilities] = []
        #: raised by the next begin_step, wait_pre or wait
        self.failure: tuple[str, AiciError] | None = None
        self.refuse_clone: AiciError | None = None
        self.order: list[str] = []
        #: whether controllers have post_process
        self.post = True
        self._numbers = itertools.count(100)

    def register(self, vocabulary: Any) -> None:
        self.vocabulary = vocabulary

    def place(self, controller: str, arg: str | bytes = b"", **options: Any) -> Placement:
        return Placement(WorkerAddress(0, 0, 0), 0, True, self.post, False)

    def instantiate(
        self,
        controller: str,
        arg: str | bytes = b"",
        prompt: Sequence[int] = (),
        *,
        capabilities: Capabilities,
        seed: int | None = None,
        wait: bool = True,
        within: float = 0.0,
        owner: str | None = None,
        placement: Any = None,
        calls: str = "",
    ) -> int:
        self.capabilities.append(capabilities)
        return self._enter(
            self.modules[controller](arg.decode() if isinstance(arg, bytes) else arg, list(prompt))
        )

    def lost(self) -> dict[int, AiciError]:
        return {}

    def woken(self) -> list[int]:
        return []

    def wants_logprobs(self, seq: int) -> bool:
        assert seq in self.live
        return self.post

    def clone(self, seq: int) -> int:
        return self.begin_clone(seq)

    def begin_clone(self, seq: int) -> int:
        if self.refuse_clone is not None:
            raise self.refuse_clone
        return self._enter(copy.deepcopy(self.live[seq]))

    def cloned(self, child: int, seconds: float | None = 0.0) -> bool:
        return child in self.live

    def free(self, seqs: Iterable[int]) -> None:
        for seq in seqs:
            if self.live.pop(seq, None) is not None:
                self.freed.append(seq)

    def begin_step(self, inputs: Sequence[StepInput]) -> ScriptedStep:
        self.fail_if("begin_step")
        self.steps += 1
        return ScriptedStep(self, list(inputs))

    def fail_if(self, where: str) -> None:
        self.order.append(where)
        if self.failure is not None and self.failure[0] == where:
            error, self.failure = self.failure[1], None
            raise error

    def _enter(self, script: Script) -> int:
        number = next(self._numbers)
        self.live[number] = self.ever[number] = script
        return number

    def adopt(self, parent: int) -> int:
        child = copy.deepcopy(self.live[parent])
        return self._enter(child)


class ScriptedStep:
    def __init__(self, runtime: ScriptedRuntime, inputs: list[StepInput]) -> None:
        self.runtime = runtime
        self.inputs = {item.seq: item for item in inputs}
        assert len(self.inputs) == len(inputs), "a sequence was posted twice"
        for item in inputs:
            runtime.live[item.seq].reports.append(item)
        self.scripts = {seq: runtime.live[seq] for seq in self.inputs}
        self.waiting: list[int] = []
        self.pre: dict[int, PreResult] | None = None

    def wait_pre(self, *, ready: bool = False, patient: bool = True) -> dict[int, PreResult]:
        self.runtime.fail_if("wait_pre")
        if self.pre is not None:
            return self.pre
        self.pre = {}
        for seq, item in self.inputs.items():
            if item.final:
                script = self.runtime.live.pop(seq)
                if type(script).post is Script.post:
                    script.mid(item)
                else:
                    script.post(item)
                continue
            answer = self.runtime.live[seq].pre(item)
            if answer.verb == Verb.CONTINUE:
                self.waiting.append(seq)
                continue
            if answer.verb == Verb.FORK:
                children = [self.runtime.adopt(seq) for _ in answer.children]
                for number, child in enumerate(children, start=1):
                    self.scripts[child] = self.runtime.live[child]
                    self.scripts[child].number = number
                answer = PreResult(Verb.FORK, children=children)
                self.waiting += [seq, *children]
            elif answer.verb != Verb.SUSPEND:
                del self.runtime.live[seq]
            self.pre[seq] = answer
        return self.pre

    def abandon(self) -> None:
        self.runtime.order.append("abandon")

    def wait(self, *, ready: bool = False, patient: bool = True) -> StepResult:
        if self.pre is None:
            self.wait_pre()
        self.runtime.fail_if("wait")
        result = StepResult({})
        for seq in self.waiting:
            script = self.runtime.live[seq]
            answer = script.mid(self.inputs.get(seq, StepInput(seq)))
            result.mid[seq] = answer
            if answer.verb in (Verb.STOP, Verb.ERROR):
                del self.runtime.live[seq]
        for seq, script in self.scripts.items():
            if script.output:
                result.logs[seq], script.output = script.output, ""
        return result
