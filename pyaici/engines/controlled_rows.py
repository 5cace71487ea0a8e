"""Controllers in a loop that samples one token for each row in each pass, and can only mask.

A splice is forced token by token. Removing tokens, forking and suspending are refused: the declared
capabilities leave them out. When a controller stops, its row is forced to end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from aicirt.contract.abi import RowKind, Verb
from aicirt.contract.errors import AiciError, LivelockError, ResultError
from aicirt.contract.messages import StepInput
from pyaici.client.arguments import MASK_ONLY
from pyaici.client.results import MidResult, Row
from pyaici.engines.engine import MAX_LOG_BYTES

if TYPE_CHECKING:
    from pyaici.client.arguments import Argument, Capabilities
    from pyaici.client.runtime import Runtime
    from pyaici.client.step import Step

#: Masks can carry out splices that do not backtrack.
CAPABILITIES = replace(MASK_ONLY, ff_tokens=True)
#: The most rounds in a row in which a controller may be late or splice nothing. The loop cannot skip a step,
#: so the controller is asked again at once.
MAX_ROUNDS = 1000
_OVERRULED = "the caller has reordered the rows, or a later logits processor has allowed the token again"

Key = TypeVar("Key", bound=Hashable)


class OverruledError(RuntimeError):
    """Raised when a row receives a token that its controller has forbidden."""


@dataclass(slots=True)
class _ControlledRow:
    """A row with a live controller. Either a report of it is due or under way, or it awaits a token."""

    control: int
    #: tokens that end the row; the first of them is forced when the controller ends the row
    ends: Sequence[int]
    #: the constraint on the awaited token, unless that token is forced
    row: Row | None = None
    #: tokens of a splice: those still to be forced, and those that the row has received
    to_force: deque[int] = field(default_factory=deque)
    forced: list[int] = field(default_factory=list)
    #: an end token was sampled: the controller only gets this last report
    ended: bool = False
    rounds: int = 0


class ControlledRows(Generic[Key]):
    """The controllers of rows. The caller names each row by a key.

    Reports are posted as soon as all rows of the last pass have received their tokens, so that controllers
    run beside what the caller does next.
    """

    def __init__(self, runtime: Runtime) -> None:
        """The runtime must have the model's vocabulary."""
        self._runtime = runtime
        self._lines: dict[Key, _ControlledRow] = {}
        self._keys: dict[int, Key] = {}
        #: rows whose controller has stopped, with the token that ends each
        self._stopped: dict[Key, int] = {}
        #: the inputs of controllers' next steps
        self._due: dict[Key, StepInput] = {}
        self._posted: list[Step] = []
        #: rows of the present pass that have not received a token
        self._awaited: set[Key] = set()
        #: whether a row of that pass has received one
        self._passed = False
        #: errors of controllers, by row
        self.errors: dict[Key, AiciError] = {}
        #: the newest part of each controller's output, at most `MAX_LOG_BYTES` characters
        self.logs: dict[Key, str] = {}

    def start_controller(
        self,
        key: Key,
        controller: str,
        arg: Argument,
        prompt: Sequence[int],
        ends: Sequence[int],
        *,
        capabilities: Capabilities = CAPABILITIES,
        **options: Any,
    ) -> None:
        """Starts a controller for a row that ends with any token of `ends`.

        When the controller ends the row, the first of `ends` is forced. `options` are those of
        `Runtime.instantiate`, whose errors it raises.
        """
        control = self._runtime.instantiate(controller, arg, prompt, capabilities=capabilities, **options)
        self._lines[key] = _ControlledRow(control, ends)
        self._keys[control] = key
        self._due[key] = StepInput(control)

    def copy_row(self, key: Key, copy: Key) -> None:
        """Copies a row that awaits a token, with its controller. Raises the errors of `Runtime.clone`."""
        if (line := self._lines.get(key)) is not None:
            control = self._runtime.clone(line.control)
            self._lines[copy] = replace(
                line, control=control, to_force=deque(line.to_force), forced=list(line.forced)
            )
            self._keys[control] = copy
        if key in self._stopped:
            self._stopped[copy] = self._stopped[key]
        if key in self.errors:
            self.errors[copy] = self.errors[key]

    def report_token(self, key: Key, token: int) -> None:
        """Records the token that a row received. Raises OverruledError if its controller forbids it."""
        self._passed = True
        self._awaited.discard(key)
        line = self._lines.get(key)
        if line is not None:
            self._record(key, line, token)
        if not self._awaited:
            self.post()

    def _record(self, key: Key, line: _ControlledRow, token: int) -> None:
        line.ended = token in line.ends
        line.rounds = 0
        if not line.to_force:
            if line.row is not None and not line.row.permits(token):
                raise OverruledError(f"token {token} was sampled, which the controller forbade: {_OVERRULED}")
            line.row = None
            self._due[key] = StepInput(line.control, [token], sampled=True)
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
            self._due[key] = StepInput(line.control, line.forced)
            line.forced = []

    def post(self) -> None:
        """Sends the reports that are due; the controllers then work on their answers."""
        if self._due:
            reports, self._due = list(self._due.values()), {}
            self._posted.append(self._runtime.begin_step(reports))

    def rows(self) -> dict[Key, Row]:
        """Returns the constraint on each row's next token, valid until the next call.

        Waits for the answers of controllers.
        """
        self.settle()
        self._passed, self._awaited = False, {*self._lines, *self._stopped}
        found = {key: self._constraint(key) for key in self._awaited}
        return {key: row for key, row in found.items() if row is not None}

    def row(self, key: Key) -> Row | None:
        """Does the same as `rows` for one row of a pass; None if it has no constraint."""
        self.settle()
        if self._passed:
            self._passed, self._awaited = False, set()
        self._awaited.add(key)
        return self._constraint(key)

    def stopped(self, key: Key) -> bool:
        """Returns whether the row has no controller any more and only awaits its end token."""
        return key in self._stopped

    def drop(self, keys: Iterable[Key]) -> None:
        """Forgets finished rows and frees their controllers. Their errors and output stay."""
        controls = []
        for key in keys:
            self._stopped.pop(key, None)
            self._due.pop(key, None)
            self._awaited.discard(key)
            line = self._lines.pop(key, None)
            if line is not None:
                del self._keys[line.control]
                controls.append(line.control)
        if controls:
            self._runtime.free(controls)

    def close(self) -> None:
        """Drops all rows and abandons the steps in progress."""
        self.drop([*self._lines, *self._stopped])
        for step in self._posted:
            step.abandon()
        self._posted = []

    def _constraint(self, key: Key) -> Row | None:
        if (token := self._stopped.get(key)) is not None:
            return Row(RowKind.TOKEN, token=token)
        line = self._lines.get(key)
        if line is None:
            return None
        return Row(RowKind.TOKEN, token=line.to_force[0]) if line.to_force else line.row

    def settle(self) -> None:
        """Waits until no answer is missing. Afterwards each row awaits a token."""
        self.post()
        while self._posted:
            self._await_answers(self._posted.pop(0))
            self.post()

    def _await_answers(self, step: Step) -> None:
        """Waits for the answers of a step. Afterwards each row awaits a token, or its next report is due."""
        pre = step.wait_pre()
        result = step.wait()
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
            self._due[key] = StepInput(line.control)
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
