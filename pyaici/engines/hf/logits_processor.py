"""Controllers in `model.generate()`: a standard logits processor, limited to what masks can do.

`generate` owns the loop and samples one token for each row in each pass, so there are limits that `HfEngine`
does not have:

- Controllers run after the forward pass instead of beside it.
- Masks force spliced tokens one by one; each takes a forward pass.
- Backtracking, forking and suspending are refused; the declared capabilities leave them out.
- A controller's temperature, its options that leave out tokens, and `top_logprobs` are ignored.
- Controllers get no log-probabilities.
- When a controller stops or fails, its row is forced to end with an end token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from transformers import LogitsProcessor

from aicirt.contract.errors import AiciError, counted
from aicirt.system.files import Closing
from pyaici.client.masks import apply_masks
from pyaici.engines.controlled_rows import ControlledRows

if TYPE_CHECKING:
    from pyaici.client.arguments import Argument
    from pyaici.client.runtime import Runtime


class AiciLogitsProcessor(Closing, LogitsProcessor):  # type: ignore[misc,unused-ignore]
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
        controller: str,
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
                self._lines.start_controller(row, controller, arg, prompt, self._ends)
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
                f"generate runs {counted(len(input_ids), 'row')} for {counted(self._num_rows, 'prompt')}; "
                "for beam search and several sequences per prompt use HfEngine"
            )
        if not self._first:
            self._collect(input_ids[:, -1].tolist())
        self._first = False
        rows = self._lines.rows()
        apply_masks(scores, [rows.get(row) for row in range(self._num_rows)])
        return scores

    def _collect(self, last: list[int]) -> None:
        """Records the token that each row received."""
        for row, token in enumerate(last):
            if self._lines.stopped(row) and token in self._ends:
                self._lines.drop([row])
            else:
                self._lines.report_token(row, token)

    def close(self) -> None:
        """Ends the remaining controllers, e.g. those of rows that reached the length limit."""
        self._lines.close()
