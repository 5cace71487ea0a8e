"""An engine that carries out all actions of controllers and validates every answer that it receives.

It has a loop of its own: `BatchingEngine` ends a sequence at the first invalid answer, and a model chooses
its tokens. Here an invalid answer is noted, and the same rows always lead to the same tokens.
"""

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
from pyaici.client.arguments import ALL, Capabilities
from pyaici.client.results import MidResult, PreResult, Row
from pyaici.client.runtime import Runtime

#: the engine ends a longer sequence, as real engines do
MAX_TOKENS = 20_000


@dataclass(slots=True)
class Branch:
    """A live sequence, and the input for its controller in the next step."""

    number: int
    length: int
    tokens: list[int] = field(default_factory=list)
    backtrack: int = 0
    sampled: bool = False
    late: bool = False
    final: bool = False


class Request:
    """A sequence and all forks of it."""

    def __init__(
        self,
        engine: Engine,
        module: str,
        arg: str | bytes = b"",
        prompt: Sequence[int] = (1, 2, 3),
        capabilities: Capabilities = ALL,
    ) -> None:
        """Raises the controller's error if it fails before its first step."""
        self.engine = engine
        self.live: dict[int, Branch] = {}
        #: (number of the branch, digest of its answer), in order
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
        """The output of each branch."""
        return [self._logs.get(number, "") for number in range(self._branches)]

    @property
    def late(self) -> bool:
        """Whether one of its sequences is late."""
        return any(branch.late for branch in self.live.values())

    def inputs(self) -> list[StepInput]:
        """Returns the inputs of its sequences for the next step."""
        return [
            StepInput(seq, branch.tokens, branch.backtrack, sampled=branch.sampled, final=branch.final)
            for seq, branch in self.live.items()
        ]

    def handle_pre(self, seq: int, verdict: PreResult) -> None:
        """Handles the result of post_process and pre_process."""
        self.verbs.append(verdict.verb)
        parent = self.live[seq]
        for child in verdict.children:
            # a child has the history of its parent
            self.live[child] = Branch(self._branches, parent.length)
            self._branches += 1
        if verdict.verb in (Verb.STOP, Verb.ERROR):
            self._end(seq, verdict.error)

    def handle_mid(self, seq: int, result: MidResult) -> None:
        """Handles the result of mid_process and chooses the next token."""
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

    def handle_log(self, number: int, text: str) -> None:
        """Appends output of one of its branches."""
        self._logs[number] = self._logs.get(number, "") + text

    def delivered(self) -> None:
        """Clears the inputs that the step has delivered."""
        for branch in self.live.values():
            branch.tokens, branch.backtrack, branch.sampled = [], 0, False

    def clone(self) -> None:
        """Clones one of its sequences, as engines do for n > 1, unless all are late."""
        for seq, parent in list(self.live.items()):
            if not parent.late:
                child = self.engine.runtime.clone(seq)
                self.live[child] = replace(parent, number=self._branches, tokens=list(parent.tokens))
                self._branches += 1
                return

    def finish(self) -> None:
        """Makes the next step the last one, as an engine that ends a sequence does."""
        for branch in self.live.values():
            branch.final = True

    def free(self) -> None:
        """Frees the live sequences."""
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
        #: invalid answers that the runtime passed on
        self.flaws: list[str] = []
        #: ms that the engine waited in each step
        self.waits: list[float] = []
        #: number of answers
        self.results = 0

    def step(self, requests: Iterable[Request]) -> None:
        """Runs a step of all live sequences of the requests."""
        requests = list(requests)
        for request in requests:
            for seq, branch in list(request.live.items()):
                if branch.length > MAX_TOKENS:
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
            self.results += 1
            request = owner[seq]
            request.handle_pre(seq, verdict)
            for child in verdict.children:
                owner[child], numbers[child] = request, request.live[child].number
        result = step.wait()
        self.waits.append((time.perf_counter() - begun) * 1e3)
        for seq, text in result.logs.items():
            owner[seq].handle_log(numbers[seq], text)
        for seq, mid in result.mid.items():
            self.results += 1
            request = owner[seq]
            if flaw := self._flaw(request.live[seq], mid):
                self.flaws.append(flaw)
            request.handle_mid(seq, mid)

    def _flaw(self, branch: Branch, mid: MidResult) -> str | None:
        """Returns what is invalid in this answer, or None."""
        if mid.verb == Verb.SAMPLE:
            assert mid.row is not None
            return row_flaw(mid.row, self.vocab_size)
        if mid.verb == Verb.SPLICE:
            if not 0 <= mid.backtrack <= branch.length:
                return f"a splice removes {mid.backtrack} tokens of {branch.length}"
            if not all(0 <= token < self.vocab_size for token in mid.ff_tokens):
                return "a splice has tokens outside the vocabulary"
        return None


def row_flaw(row: Row, vocab_size: int) -> str | None:
    """Returns why a row is invalid, or None."""
    if row.temperature is not None and not 0 <= row.temperature < math.inf:
        return f"a temperature of {row.temperature}"
    if row.truncation is not None:
        *shares, deviations = (value for name, value in row.truncation._asdict().items() if name != "top_k")
        if not all(0 <= share <= 1 for share in shares) or not 0 <= deviations < math.inf:
            return f"options {row.truncation}"
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
    """Returns a digest of all contents of a row."""
    parts = [row.kind, row.token, row.default, row.temperature, row.top_logprobs, row.truncation]
    arrays = [a.tobytes() for a in (row.bits, row.tokens, row.bias) if a is not None]
    return hashlib.sha256(repr(parts).encode() + b"".join(arrays)).hexdigest()[:16]


def choose(row: Row, salt: int, vocab_size: int) -> int:
    """Returns an allowed token of the row, the same one for the same row and salt."""
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
