"""Simulations of what vLLM's model runners do with a logits processor."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import torch

from pyaici.client.runtime import Runtime
from pyaici.engines.vllm.logits.processor import AiciLogitsProcessor
from tests.pyaici.engines.batching.support import BOS, EOS, WIDTH

PROMPT = [BOS, 72, 101, 108]
UNIDIRECTIONAL, SWAP = SimpleNamespace(name="UNIDIRECTIONAL"), SimpleNamespace(name="SWAP")


def config(**changes: Any) -> Any:
    values: dict[str, Any] = {
        "world_size": 1,
        "async_scheduling": False,
        "speculative_config": None,
        "logits_processors": None,
        "v2": False,
    } | changes
    return SimpleNamespace(
        parallel_config=SimpleNamespace(
            world_size=values["world_size"],
            tensor_parallel_size=values["world_size"],
            pipeline_parallel_size=1,
        ),
        scheduler_config=SimpleNamespace(async_scheduling=values["async_scheduling"], max_num_seqs=4),
        model_config=SimpleNamespace(logits_processors=values["logits_processors"]),
        speculative_config=values["speculative_config"],
        use_v2_model_runner=values["v2"],
    )


def params(arg: str | None = None, controller: str = "guest", **changes: Any) -> Any:
    call = {"aici_controller": controller, "aici_arg": arg, "aici_path": "logits"}
    values: dict[str, Any] = {
        "extra_args": None if arg is None else call,
        "eos_token_id": EOS,
        "stop_token_ids": [],
        "seed": None,
        "ignore_eos": False,
        "structured_outputs": None,
        "allowed_token_ids": None,
        "bad_words": [],
        "min_tokens": 0,
    }
    return SimpleNamespace(**(values | changes))


def changes(removed: Any = (), added: Any = (), moved: Any = ()) -> Any:
    return SimpleNamespace(removed=removed, added=added, moved=moved)


def has_live(runtime: Runtime, count: int) -> bool:
    """Waits until the worker has this many sequences. Returns False after 20 s."""
    deadline = time.monotonic() + 20
    while sum(int(worker["sequences"]) for worker in runtime.health()["workers"]) != count:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def allowed(processor: AiciLogitsProcessor, rows: int, context: Any = None) -> list[list[int] | None]:
    """Returns the tokens that each row allows. None means that the row is unchanged."""
    logits = torch.zeros(rows, WIDTH)
    assert processor.apply(logits, context) is logits
    lines = [row.isfinite().nonzero().flatten().tolist() for row in logits]
    return [None if len(line) == WIDTH else line for line in lines]


def masks(step: int) -> list[int]:
    """Returns the tokens that the guest allows in a step, counted from 0."""
    return sorted({1 + (step + 1) % 8, 20})


class V1:
    """Calls one processor as model runner V1 does."""

    def __init__(self, runtime: Runtime, **settings: Any) -> None:
        self.runtime = runtime
        self.processor = AiciLogitsProcessor(config(**settings), "cpu", False)
        self.outputs: dict[int, list[int]] = {}

    def step(self, update: Any = None, rows: int = 1) -> list[list[int] | None]:
        self.processor.update_state(update)
        return allowed(self.processor, rows)

    def add(self, index: int, parameters: Any, *outputs: int) -> Any:
        self.outputs[index] = list(outputs)
        return index, parameters, PROMPT, self.outputs[index]


class V2:
    """Calls one processor as model runner V2 does, with slots whose tokens are in a tensor."""

    def __init__(self, **settings: Any) -> None:
        self.tokens = torch.zeros(8, 64, dtype=torch.int32)
        self.total = torch.zeros(8, dtype=torch.int32)
        self.prompt, self.prefill = torch.zeros(2, 8, dtype=torch.int32)
        states = SimpleNamespace(
            all_token_ids=SimpleNamespace(gpu=self.tokens),
            total_len=SimpleNamespace(gpu=self.total),
            prompt_len=SimpleNamespace(np=self.prompt.numpy()),
            prefill_len=SimpleNamespace(np=self.prefill.numpy()),
        )
        self.processor = AiciLogitsProcessor(config(v2=True, **settings), states)

    def add(self, slot: int, parameters: Any, *outputs: int) -> bool:
        text = [*PROMPT, *outputs]
        self.tokens[slot, : len(text)] = torch.tensor(text, dtype=torch.int32)
        self.total[slot] = self.prefill[slot] = len(text)
        self.prompt[slot] = len(PROMPT)
        return bool(self.processor.add_request(slot, parameters))

    def append(self, slot: int, token: int) -> None:
        self.tokens[slot, self.total[slot]] = token
        self.total[slot] += 1

    def step(self, *slots: int, partial: tuple[int, ...] = (), drafts: int = 0) -> list[list[int] | None]:
        lengths = torch.tensor([2 if slot in partial else int(self.total[slot]) for slot in slots])
        each = [slot for slot in slots for _ in range(1 + drafts)]
        context = SimpleNamespace(
            idx_mapping_np=torch.tensor(slots).numpy(),
            expanded_idx_mapping=torch.tensor(each),
            seq_lens_upper_bound_np=lengths.numpy(),
        )
        return allowed(self.processor, len(each), context)
