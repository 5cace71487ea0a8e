"""Controllers in `model.generate()`: a standard logits processor, for what masks alone can do.

`generate` owns the loop, so this has limits that `HfEngine` has not: controllers run after the forward
pass instead of beside it; spliced tokens are forced one by one through masks, each at the price of
a forward pass; taking back, forking and suspending are refused (the capabilities say so); a
controller's temperature and its wish for top-k are ignored; log-probabilities are not told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING

import torch
from transformers import LogitsProcessor

from aicirt.errors import AiciError, LateError, ResultError
from pyaici.capabilities import MASK_ONLY
from pyaici.masks import apply_masks
from pyaici.step import MidResult, Row, RowKind, StepInput, Verb

if TYPE_CHECKING:
    from pyaici.runtime import Runtime

#: Splices without a backtrack can be done by masks.
CAPABILITIES = replace(MASK_ONLY, ff_tokens=True)
#: How often in a row a controller may be late or splice nothing; `generate` cannot skip a step, so
#: it is asked again at once.
MAX_ROUNDS = 1000


@dataclass(slots=True)
class _Line:
    """One row of the batch whose controller is alive."""

    control: int
    report: StepInput
    #: tokens of a splice that are still to be sampled, and those that have been
    to_force: deque[int] = field(default_factory=deque)
    forced: list[int] = field(default_factory=list)
    #: the end token was sampled: the controller is told, and that is all
    ended: bool = False


class AiciLogitsProcessor(LogitsProcessor):  # type: ignore[misc,unused-ignore]
    """Steers `model.generate` with one controller for each row of its batch.

    ::

        with AiciLogitsProcessor(runtime, module.id, "[0-9]+", [prompt], eos=2) as control:
            model.generate(input_ids, logits_processor=LogitsProcessorList([control]))

    Made for one call of `generate`, greedy or sampling. When a controller stops or fails, its row is
    made to end with an end token; what happened is in `errors` and `logs`.
    """

    def __init__(
        self,
        runtime: Runtime,
        module: str,
        arg: str | bytes,
        prompts: Sequence[Sequence[int]],
        *,
        eos: int | Iterable[int],
    ) -> None:
        """`prompts`: the tokens of each row, without padding. `eos`: the end tokens that `generate` has.

        The runtime must have the model's vocabulary. Raises what `Runtime.instantiate` raises.
        """
        self._runtime = runtime
        self._eos = frozenset([eos] if isinstance(eos, int) else eos)
        if not self._eos:
            raise ValueError("an end token is needed: a controller that stops has to end its row")
        #: why a row ended, by row: errors of the controllers
        self.errors: dict[int, AiciError] = {}
        #: what the controllers printed, by row
        self.logs: dict[int, str] = {}
        self._num_rows = len(prompts)
        self._lines: dict[int, _Line] = {}
        #: rows whose controller has stopped and that have no end token yet
        self._stopped: set[int] = set()
        self._first = True
        try:
            for row, prompt in enumerate(prompts):
                control = runtime.instantiate(module, arg, prompt, capabilities=CAPABILITIES)
                self._lines[row] = _Line(control, StepInput(control))
        except AiciError:
            self.close()
            raise

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """`input_ids` int64 [B, T], `scores` [B, V]: forbids what the controllers forbid, in place."""
        if len(input_ids) != self._num_rows:
            raise ValueError(
                f"generate runs {len(input_ids)} rows, but there were {self._num_rows} prompts; "
                "for beam search and several sequences per prompt use HfEngine"
            )
        if not self._first:
            self._hear(input_ids[:, -1].tolist())
        self._first = False
        rows: list[Row | None] = [None] * self._num_rows
        for row, constraint in self._ask().items():
            rows[row] = constraint
        for row, line in self._lines.items():
            if line.to_force:
                rows[row] = Row(RowKind.TOKEN, token=line.to_force[0])
        for row in self._stopped:
            rows[row] = Row(RowKind.TOKEN, token=min(self._eos))
        apply_masks(scores, rows)
        return scores

    def _hear(self, last: list[int]) -> None:
        """Takes note of the token that each row got."""
        for row, line in self._lines.items():
            token = last[row]
            line.ended = token in self._eos
            if not line.to_force:
                line.report = StepInput(line.control, [token], sampled=True)
                continue
            wanted = line.to_force.popleft()
            if token != wanted:
                raise RuntimeError(
                    f"row {row} got token {token} where the controller forced {wanted}: rows were moved, or "
                    "a later logits processor allowed what this one forbade"
                )
            line.forced.append(token)
            if line.ended:
                line.to_force.clear()
            if not line.to_force:
                line.report = StepInput(line.control, line.forced)
                line.forced = []
        self._stopped -= {row for row in self._stopped if last[row] in self._eos}

    def _ask(self) -> dict[int, Row | None]:
        """Steps every controller that is not in the middle of a splice; the rows of those that sample."""
        constraints: dict[int, Row | None] = {}
        asking = {line.control: row for row, line in self._lines.items() if not line.to_force}
        for _ in range(MAX_ROUNDS):
            if not asking:
                return constraints
            inputs = [self._lines[row].report for row in asking.values()]
            step = self._runtime.begin_step(inputs)
            pre = step.wait_pre()
            result = step.wait()
            for control, text in result.logs.items():
                row = asking[control]
                self.logs[row] = self.logs.get(row, "") + text
            for control, row in list(asking.items()):
                line = self._lines[row]
                line.report = StepInput(control)
                if line.ended:
                    self._drop(row)
                elif control in pre:
                    self._end(row, pre[control].error)
                else:
                    answer = result.mid[control]
                    if answer.verb == Verb.SAMPLE:
                        constraints[row] = answer.row
                    elif answer.verb == Verb.SPLICE:
                        self._splice(row, line, answer)
                        if not line.to_force and row in self._lines:
                            continue
                    elif answer.verb == Verb.LATE:
                        continue
                    else:
                        self._end(row, answer.error)
                del asking[control]
        for row in asking.values():
            self._end(row, LateError(f"the controller gave no token and no mask in {MAX_ROUNDS} rounds"))
        return constraints

    def _splice(self, row: int, line: _Line, answer: MidResult) -> None:
        if answer.backtrack:
            self._end(row, ResultError("a splice takes tokens back, which generate cannot"))
        else:
            line.to_force.extend(answer.ff_tokens)

    def _end(self, row: int, error: AiciError | None) -> None:
        """The controller has stopped, or failed: the row shall end."""
        if error is not None:
            self.errors[row] = error
        self._stopped.add(row)
        self._drop(row)

    def _drop(self, row: int) -> None:
        self._runtime.free([self._lines.pop(row).control])

    def close(self) -> None:
        """Ends the controllers that are left, e.g. those of rows that reached the length limit."""
        self._runtime.free([line.control for line in self._lines.values()])
        self._lines.clear()

    def __enter__(self) -> AiciLogitsProcessor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
