"""An engine that plays along with whatever controllers do, and looks at all that reaches it."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from aicirt.contract.abi import RowKind, Verb
from aicirt.contract.errors import AiciError
from aicirt.contract.messages import StepInput
from pyaici.client.capabilities import ALL, Capabilities
from pyaici.client.runtime import Runtime
from pyaici.client.step import MidResult, PreResult, Row

#: a sequence of more tokens is ended, as engines do
MOST_TOKENS = 20_000


@dataclass(slots=True)
class Branch:
    """One live sequence, and what its controller is to be told next."""

    number: int
    length: int
    tokens: list[int] = field(default_factory=list)
    backtrack: int = 0
    sampled: bool = False
    late: bool = False
    final: bool = False


class Request:
    """A sequence and all that is forked from it."""

    def __init__(
        self,
        engine: Engine,
        module: str,
        arg: str | bytes = b"",
        prompt: Sequence[int] = (1, 2, 3),
        capabilities: Capabilities = ALL,
    ) -> None:
        """Raises what the controller ends with before its first step."""
        self.engine = engine
        self.live: dict[int, Branch] = {}
        #: (number of the branch, digest of its answer), in the order of answers
        self.answers: list[tuple[int, str]] = []
        self.errors: list[AiciError] = []
        self.verbs: list[Verb] = []
        self.stopped = 0
        self._logs: dict[int, str] = {}
        self._branches = 1
        seq = engine.runtime.instantiate(module, arg, prompt, seed=7, capabilities=capabilities)
        self.live[seq] = Branch(0, len(prompt))

    @property
    def log(self) -> list[str]:
        """What each branch has printed."""
        return [self._logs.get(number, "") for number in range(self._branches)]

    @property
    def late(self) -> bool:
        """Whether one of its sequences still computes."""
        return any(branch.late for branch in self.live.values())

    def inputs(self) -> list[StepInput]:
        """What has happened to its sequences since the last step."""
        return [
            StepInput(seq, branch.tokens, branch.backtrack, sampled=branch.sampled, final=branch.final)
            for seq, branch in self.live.items()
        ]

    def hear_pre(self, seq: int, verdict: PreResult) -> None:
        """What post_process and pre_process said."""
        self.verbs.append(verdict.verb)
        parent = self.live[seq]
        for child in verdict.children:
            # what happened before the fork happened to both
            self.live[child] = Branch(self._branches, parent.length)
            self._branches += 1
        if verdict.verb in (Verb.STOP, Verb.ERROR):
            self._end(seq, verdict.error)

    def hear_mid(self, seq: int, result: MidResult) -> None:
        """What mid_process said; chooses what comes next."""
        self.verbs.append(result.verb)
        branch = self.live[seq]
        branch.late = result.verb == Verb.LATE
        if result.verb in (Verb.STOP, Verb.ERROR):
            self._end(seq, result.error)
        elif result.verb == Verb.SPLICE:
            branch.backtrack, branch.tokens = result.backtrack, list(result.ff_tokens)
            branch.length += len(branch.tokens) - branch.backtrack
            self.answers.append((branch.number, f"splice {branch.backtrack} {branch.tokens}"))
        elif result.verb == Verb.SAMPLE:
            assert result.row is not None
            digest = row_digest(result.row)
            branch.tokens, branch.sampled = [choose(result.row, branch.length, self.engine.vocab_size)], True
            branch.length += 1
            self.answers.append((branch.number, digest))

    def hear_log(self, number: int, text: str) -> None:
        """What one of its branches has printed."""
        self._logs[number] = self._logs.get(number, "") + text

    def delivered(self) -> None:
        """The step has told the controllers what was waiting."""
        for branch in self.live.values():
            branch.tokens, branch.backtrack, branch.sampled = [], 0, False

    def clone(self) -> None:
        """A copy of one of its sequences, as engines make them for n > 1, unless all are late."""
        for seq, parent in list(self.live.items()):
            if not parent.late:
                child = self.engine.runtime.clone(seq)
                self.live[child] = replace(parent, number=self._branches, tokens=list(parent.tokens))
                self._branches += 1
                return

    def finish(self) -> None:
        """The next step is the last one, by the engine's decision."""
        for branch in self.live.values():
            branch.final = True

    def free(self) -> None:
        """Ends what is left."""
        self.engine.runtime.free(self.live)
        self.live.clear()

    def _end(self, seq: int, error: AiciError | None) -> None:
        del self.live[seq]
        if error is None:
            self.stopped += 1
        else:
            self.errors.append(error)


class Engine:
    """Steps requests together."""

    def __init__(self, runtime: Runtime, vocab_size: int) -> None:
        self.runtime = runtime
        self.vocab_size = vocab_size
        #: what no controller may make the runtime hand on, and did
        self.flaws: list[str] = []
        #: ms for which the engine waited in each step
        self.waits: list[float] = []
        self.heard = 0

    def step(self, requests: Iterable[Request]) -> None:
        """One step of all live sequences of the requests."""
        requests = list(requests)
        for request in requests:
            for seq, branch in list(request.live.items()):
                if branch.length > MOST_TOKENS:
                    self.runtime.free([seq])
                    del request.live[seq]
        owner = {seq: request for request in requests for seq in request.live}
        if not owner:
            return
        begun = time.perf_counter()
        step = self.runtime.begin_step([item for request in requests for item in request.inputs()])
        pre = step.wait_pre()
        numbers = {seq: request.live[seq].number for seq, request in owner.items()}
        for request in requests:
            request.delivered()
        for seq, verdict in pre.items():
            self.heard += 1
            request = owner[seq]
            request.hear_pre(seq, verdict)
            for child in verdict.children:
                owner[child], numbers[child] = request, request.live[child].number
        result = step.wait()
        self.waits.append((time.perf_counter() - begun) * 1e3)
        for seq, text in result.logs.items():
            owner[seq].hear_log(numbers[seq], text)
        for seq, mid in result.mid.items():
            self.heard += 1
            request = owner[seq]
            if flaw := self._flaw(request.live[seq], mid):
                self.flaws.append(flaw)
            request.hear_mid(seq, mid)

    def _flaw(self, branch: Branch, mid: MidResult) -> str | None:
        """Why this answer should not have reached an engine."""
        if mid.verb == Verb.SAMPLE:
            assert mid.row is not None
            return row_flaw(mid.row, self.vocab_size)
        if mid.verb == Verb.SPLICE:
            if not 0 <= mid.backtrack <= branch.length:
                return f"a splice takes {mid.backtrack} tokens back of {branch.length}"
            if not all(0 <= token < self.vocab_size for token in mid.ff_tokens):
                return "a splice has tokens that are none"
        return None


def row_flaw(row: Row, vocab_size: int) -> str | None:
    """Why a row must not reach an engine; None if it may."""
    if row.temperature is not None and not 0 <= row.temperature < math.inf:
        return f"a temperature of {row.temperature}"
    if row.kind == RowKind.BITMASK:
        assert row.bits is not None
        bits = np.unpackbits(row.bits.view(np.uint8), bitorder="little")
        if bits[vocab_size:].any():
            return "a mask has bits beyond the vocabulary"
        return None if bits.any() else "a mask allows nothing"
    if row.kind == RowKind.TOKEN:
        return None if 0 <= row.token < vocab_size else f"the token {row.token}"
    if row.bias is None:
        return None
    if not (row.bias < math.inf).all():
        return "a bias is NaN or infinite"
    if row.kind == RowKind.SPARSE:
        assert row.tokens is not None
        if row.default not in (0.0, -math.inf) or (row.tokens >= vocab_size).any():
            return f"a sparse row of default {row.default} has tokens {row.tokens.tolist()}"
        if row.default == 0.0:
            return None
    return None if (row.bias > -math.inf).any() else "biases allow nothing"


def row_digest(row: Row) -> str:
    """All that a row says, in few characters."""
    parts = [row.kind, row.token, row.default, row.temperature, row.top_k]
    arrays = [a.tobytes() for a in (row.bits, row.tokens, row.bias) if a is not None]
    return hashlib.sha256(repr(parts).encode() + b"".join(arrays)).hexdigest()[:16]


def choose(row: Row, salt: int, vocab_size: int) -> int:
    """A token that the row allows, the same one for the same row and salt."""
    allowed: np.ndarray
    if row.kind == RowKind.TOKEN:
        return row.token
    if row.kind == RowKind.BITMASK:
        assert row.bits is not None
        allowed = np.flatnonzero(np.unpackbits(row.bits.view(np.uint8), bitorder="little")[:vocab_size])
    elif row.kind == RowKind.DENSE:
        assert row.bias is not None
        allowed = np.flatnonzero(row.bias > -math.inf)
    elif row.kind == RowKind.SPARSE and row.default != 0.0:
        assert row.bias is not None and row.tokens is not None
        allowed = row.tokens[row.bias > -math.inf]
    else:
        return salt % vocab_size
    return int(allowed[salt % len(allowed)]) if len(allowed) else 0
