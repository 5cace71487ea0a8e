"""Tracks the places and tokens of controlled requests in the batches of vLLM's two model runners.

V1 reports every change of its batch and shares its token lists. V2 numbers its requests once and keeps the
tokens on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import AiciError
from pyaici.client.masks import apply_masks
from pyaici.engines.vllm.frontend.arguments import ControllerCall
from pyaici.engines.vllm.logits.constraints import Constrained, Constraints

if TYPE_CHECKING:
    import torch

    from pyaici.client.results import Row


#: placeholder for a token that is not known yet
_UNKNOWN = -1
#: a slot absent from this many batches in a row loses its controller; if it comes back, it gets a new one
ABSENT_STEPS = 16


@dataclass(slots=True)
class _Sharing:
    request: Constrained
    prompt: Sequence[int] | None
    #: the model runner's own list of output tokens, which grows
    outputs: list[int]


class SharedLists:
    """The batch of model runner V1, by index."""

    def __init__(self, constraints: Constraints) -> None:
        self._constraints = constraints
        self._at: dict[int, _Sharing] = {}

    def __len__(self) -> int:
        return len(self._at)

    def update(self, batch_update: Any, calls: dict[int, ControllerCall]) -> None:
        """Applies vLLM's BatchUpdate. `calls`: the controllers of the added requests, by index."""
        for index in batch_update.removed:
            self._leave(index)
        for index, params, prompt, outputs in batch_update.added:
            self._leave(index)
            if index in calls:
                request = Constrained.of(calls[index], params)
                self._at[index] = _Sharing(request, prompt, outputs)
                self._constraints.start(request, prompt)
        for source, target, direction in batch_update.moved:
            moved, replaced = self._at.pop(source, None), self._at.pop(target, None)
            if moved is not None:
                self._at[target] = moved
            if replaced is not None and direction.name == "SWAP":
                self._at[source] = replaced
            elif replaced is not None:
                self._constraints.drop([replaced.request])

    def prepare(self) -> None:
        """Posts to the controllers before the forward pass; those whose tokens are known run beside it."""
        for sharing in self._at.values():
            self._hear(sharing)
        self._constraints.post()

    def apply(self, logits: torch.Tensor) -> None:
        """Applies the controllers' rows to the logits after the forward pass."""
        for sharing in self._at.values():
            self._hear(sharing)
            if _UNKNOWN in sharing.outputs[sharing.request.received :]:
                error = AiciError("vLLM does not report the sampled tokens to this logits processor")
                sharing.request.received = len(sharing.outputs)
                self._constraints.fail(sharing.request, error)
        rows = self._constraints.rows()
        at = {index: rows.get(sharing.request) for index, sharing in self._at.items()}
        apply_masks(logits, [at.get(index) for index in range(len(logits))])

    def _hear(self, sharing: _Sharing) -> None:
        request, outputs = sharing.request, sharing.outputs
        if (
            len(outputs) < request.received
        ):  # vLLM has dropped some tokens, e.g. because cached keys were lost
            self._constraints.start(request, sharing.prompt)
        if len(outputs) > request.received:
            new = outputs[request.received :]
            self._constraints.hear(request, new[: new.index(_UNKNOWN)] if _UNKNOWN in new else new)

    def _leave(self, index: int) -> None:
        sharing = self._at.pop(index, None)
        if sharing is not None:
            self._constraints.drop([sharing.request])


@dataclass(slots=True)
class _Slot:
    request: Constrained
    started: bool = False
    absent: int = 0


class DeviceSlots:
    """The requests of model runner V2, by slot."""

    def __init__(self, constraints: Constraints, states: Any) -> None:
        """`states`: vLLM's LogitsProcRequestState."""
        self._constraints = constraints
        self._states = states
        self._slots: dict[int, _Slot] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def enter(self, index: int, params: Any, call: ControllerCall | None) -> None:
        """Assigns a slot to a request. The slot's previous request has ended."""
        slot = self._slots.pop(index, None)
        if slot is not None:
            self._constraints.drop([slot.request])
        if call is not None:
            self._slots[index] = _Slot(Constrained.of(call, params))

    def apply(self, logits: torch.Tensor, context: Any) -> None:
        """Applies the controllers' rows after the forward pass. `context`: vLLM's LogitsContext."""
        batch: list[int] = context.idx_mapping_np.tolist()
        lengths: list[int] = context.seq_lens_upper_bound_np.tolist()
        prefill = self._states.prefill_len.np
        # a prompt that is computed in parts has rows whose tokens vLLM discards
        sampling = [i for i, length in zip(batch, lengths, strict=False) if length >= prefill[i]]
        self._hear([index for index in sampling if index in self._slots])
        self._forget(batch)
        rows = self._constraints.rows()
        # a request with drafts has several rows; engines with drafts are refused
        each = batch if len(batch) == len(logits) else context.expanded_idx_mapping.tolist()
        apply_masks(logits, [self._row(index, rows) for index in each])

    def _row(self, index: int, rows: dict[Constrained, Row]) -> Row | None:
        slot = self._slots.get(index)
        return None if slot is None else rows.get(slot.request)

    def _hear(self, indices: list[int]) -> None:
        import torch

        if not indices:
            return
        tokens, totals = self._states.all_token_ids.gpu, self._states.total_len.gpu
        which = torch.tensor(indices, device=totals.device)
        total = totals[which].long()
        # one transfer for all requests, because every transfer waits for the device
        known, last = torch.stack(
            [total, tokens[which.to(tokens.device), total.to(tokens.device) - 1].long()]
        ).tolist()
        for index, length, token in zip(indices, known, last, strict=True):
            slot = self._slots[index]
            slot.absent = 0
            prompt = int(self._states.prompt_len.np[index])
            received = prompt + slot.request.received
            if not slot.started or length < received:
                text = tokens[index, :length].tolist()
                self._constraints.start(slot.request, text[:prompt], text[prompt:])
                slot.started = True
            elif length == received + 1:
                self._constraints.hear(slot.request, [token])
            elif length > received:
                self._constraints.hear(slot.request, tokens[index, received:length].tolist())

    def _forget(self, batch: list[int]) -> None:
        """Drops the controllers of slots that stay absent: vLLM does not report the end of a request."""
        present = set(batch)
        for index, slot in self._slots.items():
            if index not in present and slot.started:
                slot.absent += 1
                if slot.absent == ABSENT_STEPS:
                    slot.absent, slot.started = 0, False
                    self._constraints.drop([slot.request])
