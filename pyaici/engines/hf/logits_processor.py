"""Controllers in `model.generate()`: a standard logits processor, limited to what masks can do.

`generate` owns the loop and samples one token for each row in each pass, so there are limits that `HfEngine`
does not have:

- Controllers run after the forward pass instead of beside it.
- Masks force spliced tokens one by one; each takes a forward pass.
- Backtracking, forking and suspending are refused; the declared capabilities leave them out.
- A controller's temperature and its request for top-k are ignored.
- Controllers get no log-probabilities.
- When a controller stops or fails, its row is forced to end with an end token.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar

import torch
from transformers import LogitsProcessor

from aicirt.contract.abi import RowKind, Verb
from aicirt.contract.errors import AiciError, LivelockError, ResultError
from aicirt.contract.messages import StepInput
from pyaici.client.capabilities import MASK_ONLY
from pyaici.client.masks import apply_masks
from pyaici.client.results import MidResult, Row
from pyaici.engines.engine import MAX_LOG_BYTES

if TYPE_CHECKING:
    from pyaici.client.arguments import Argument
    from pyaici.client.runtime import Runtime
    from pyaici.client.step import Step

#: Masks can carry out splices that do not backtrack.
CAPABILITIES = replace(MASK_ONLY, ff_tokens=True)
#: The most rounds in a row in which a controller may be late or splice nothing. The loop cannot skip a step,
#: so the controller is asked again at once.
MAX_ROUNDS = 1000
_OVERRULED = "the caller has reordered the rows, or a later logits processor has allowed the token again"

Key = TypeVar("Key", bound=Hashable)


class AiciLogitsProcessor(LogitsProcessor):  # type: ignore[misc,unused-ignore]
    """Steers `model.generate` with one controller for each row of its batch.

    ::

        with AiciLogitsProcessor(runtime, "regex", "[0-9]+", [prompt], eos=2) as control:
            model.generate(input_ids, logits_processor=LogitsProcessorList([control]))

    Use an instance for one call of `generate`, greedy or sampling. `errors` and `logs` have the errors and
    the output of controllers.
    """

    def __init__(
        self,
        runtime: Runtime,
        module: str,
        arg: Argument,
        prompts: Sequence[Sequence[int]],
        *,
        eos: int | Iterable[int],
    ) -> None:
        """`prompts`: the tokens of each row, without padding. `eos`: the end tokens that `generate` uses.

        The runtime must have the model's vocabulary. Raises ValueError without an end token, and the errors
        of `Runtime.instantiate`.
        """
        ends = frozenset([eos] if isinstance(eos, int) else eos)
        if not ends:
            raise ValueError("give an end token (eos): a row whose controller stops ends with it")
        self._ends = sorted(ends)
        self._num_rows = len(prompts)
        self._lines: ControlledRows[int] = ControlledRows(runtime)
        #: errors of the controllers, by row
        self.errors = self._lines.errors
        #: output of the controllers, by row
        self.logs = self._lines.logs
        self._first = True
        try:
            for row, prompt in enumerate(prompts):
                self._lines.start_controller(row, module, arg, prompt, self._ends)
        except AiciError:
            self.close()
            raise

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Applies the controllers' rows to `scores` [B, V] in place. `input_ids`: int64 [B, T].

        Raises ValueError if the batch has another number of rows than there were prompts, and
        `OverruledError` if a row received a token that its controller forbids.
        """
        if len(input_ids) != self._num_rows:
            raise ValueError(
                f"generate runs {len(input_ids)} rows, but there were {self._num_rows} prompts; "
                "for beam search and several sequences per prompt use HfEngine"
            )
        if not self._first:
            self._hear(input_ids[:, -1].tolist())
        self._first = False
        rows = self._lines.rows()
        apply_masks(scores, [rows.get(row) for row in range(self._num_rows)])
        return scores

    def _hear(self, last: list[int]) -> None:
        """Records the token that each row received."""
        for row, token in enumerate(last):
            if self._lines.stopped(row) and token in self._ends:
                self._lines.drop([row])
            else:
                self._lines.report_token(row, token)

    def close(self) -> None:
        """Ends the remaining controllers, e.g. those of rows that reached the length limit."""
        self._lines.close()

    def __enter__(self) -> AiciLogitsProcessor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class OverruledError(RuntimeError):
    """Raised when a row receives a token that its controller has forbidden."""


@dataclass(slots=True)
class _ControlledRow:
    """A row with a live controller. Either its next report is due, or it awaits a token."""

    control: int
    #: tokens that end the row; the first of them is forced when the controller ends the row
    ends: Sequence[int]
    #: the input of the controller's next step; None while the row awaits a token
    report: StepInput | None
    #: the constraint on the awaited token, unless that token is forced
    row: Row | None = None
    #: tokens of a splice: those still to be forced, and those that the row has received
    to_force: deque[int] = field(default_factory=deque)
    forced: list[int] = field(default_factory=list)
    #: an end token was sampled: the controller only gets this last report
    ended: bool = False
    rounds: int = 0


class ControlledRows(Generic[Key]):
    """The controllers of rows. The caller names each row by a key."""

    def __init__(self, runtime: Runtime) -> None:
        """The runtime must have the model's vocabulary."""
        self._runtime = runtime
        self._lines: dict[Key, _ControlledRow] = {}
        self._keys: dict[int, Key] = {}
        #: rows whose controller has stopped, with the token that ends each
        self._stopped: dict[Key, int] = {}
        self._posted: Step | None = None
        #: errors of controllers, by row
        self.errors: dict[Key, AiciError] = {}
        #: the newest part of each controller's output, at most `MAX_LOG_BYTES` characters
        self.logs: dict[Key, str] = {}

    def start_controller(
        self,
        key: Key,
        module: str,
        arg: Argument,
        prompt: Sequence[int],
        ends: Sequence[int],
    ) -> None:
        """Starts a controller for a row that ends with any token of `ends`.

        When the controller ends the row, the first of `ends` is forced. Raises the errors of
        `Runtime.instantiate`.
        """
        control = self._runtime.instantiate(module, arg, prompt, capabilities=CAPABILITIES)
        self._lines[key] = _ControlledRow(control, ends, StepInput(control))
        self._keys[control] = key

    def report_token(self, key: Key, token: int) -> None:
        """Records the token that a row received. Raises OverruledError if its controller forbids it."""
        line = self._lines.get(key)
        if line is None:
            return
        line.ended = token in line.ends
        line.rounds = 0
        if not line.to_force:
            if line.row is not None and not line.row.permits(token):
                raise OverruledError(f"token {token} was sampled, which the controller forbade: {_OVERRULED}")
            line.row = None
            line.report = StepInput(line.control, [token], sampled=True)
            return
        wanted = line.to_force.popleft()
        if token != wanted:
            raise OverruledError(
                f"token {token} was sampled where the controller forced {wanted}: {_OVERRULED}"
            )
        line.forced.append(token)
        if line.ended:
            line.to_force.clear()
        if not line.to_force:
            line.report = StepInput(line.control, line.forced)
            line.forced = []

    def rows(self) -> dict[Key, Row]:
        """Returns the constraint on each row's next token, valid until the next call.

        Asks the controllers of rows that have received a token, and waits for them.
        """
        while reports := [line.report for line in self._lines.values() if line.report is not None]:
            self._posted = self._runtime.begin_step(reports)
            self._await_answers(self._posted)
        rows: dict[Key, Row] = {}
        for key, line in self._lines.items():
            if line.to_force:
                rows[key] = Row(RowKind.TOKEN, token=line.to_force[0])
            elif line.row is not None:
                rows[key] = line.row
        for key, token in self._stopped.items():
            rows[key] = Row(RowKind.TOKEN, token=token)
        return rows

    def stopped(self, key: Key) -> bool:
        """Returns whether the row has no controller any more and only awaits its end token."""
        return key in self._stopped

    def drop(self, keys: Iterable[Key]) -> None:
        """Forgets finished rows and frees their controllers."""
        controls = []
        for key in keys:
            self._stopped.pop(key, None)
            line = self._lines.pop(key, None)
            if line is not None:
                del self._keys[line.control]
                controls.append(line.control)
        if controls:
            self._runtime.free(controls)

    def close(self) -> None:
        """Drops all rows and abandons the step in progress."""
        self.drop([*self._lines, *self._stopped])
        if self._posted is not None:
            self._posted.abandon()
            self._posted = None

    def _await_answers(self, step: Step) -> None:
        """Waits for the answers of a step. Afterwards each row awaits a token, or its next report is due."""
        try:
            pre = step.wait_pre()
            result = step.wait()
        finally:
            self._posted = None
        for control, text in result.logs.items():
            if (key := self._keys.get(control)) is not None:
                self.logs[key] = (self.logs.get(key, "") + text)[-MAX_LOG_BYTES:]
        verdicts = {control: verdict.error for control, verdict in pre.items()}
        for control, error in verdicts.items():
            if (key := self._keys.get(control)) is not None:
                self._over(key, error)
        for control, answer in result.mid.items():
            if control not in verdicts and (key := self._keys.get(control)) is not None:
                self._apply_answer(key, self._lines[key], answer)

    def _apply_answer(self, key: Key, line: _ControlledRow, answer: MidResult) -> None:
        line.report = None
        if line.ended:
            self.drop([key])
            return
        if answer.verb == Verb.SAMPLE:
            line.row = answer.row
        elif answer.verb == Verb.SPLICE and answer.backtrack:
            self._over(key, ResultError("the controller backtracks, which this engine does not support"))
            return
        elif answer.verb == Verb.SPLICE:
            line.to_force.extend(answer.ff_tokens)
        elif answer.verb != Verb.LATE:
            self._over(key, answer.error)
            return
        if line.row is None and not line.to_force:
            line.report = StepInput(line.control)
            line.rounds += 1
            if line.rounds == MAX_ROUNDS:
                self._over(
                    key, LivelockError(f"the controller gave no token and no mask in {MAX_ROUNDS} rounds")
                )

    def _over(self, key: Key, error: AiciError | None) -> None:
        """Ends the row of a controller that has stopped or failed."""
        line = self._lines[key]
        if error is not None:
            self.errors[key] = error
        self.drop([key])
        if not line.ended:
            self._stopped[key] = line.ends[0]
