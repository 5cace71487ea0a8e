"""The cache of llama.cpp compared with lists of tokens, and its count of cells with one by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from aicirt.contract.errors import SpaceError
from pyaici import LlamaModel, load_library
from pyaici.engines.batching.model import Feed
from pyaici.engines.llama.library import MAX_SEQUENCES
from pyaici.engines.llama.runner import LlamaRunner, LlamaSlot
from tests.pyaici.engines.batching.support import make_model
from tests.pyaici.engines.llama.tiny_gguf import WINDOWED, write_gguf

CELLS = 256


class Node:
    """A token at a position: slots that share it share its cell."""

    def __init__(self, token: int) -> None:
        self.token = token


class CacheMachine(RuleBasedStateMachine):
    """Feeds, forks, shortens, copies and frees slots, and evaluates some against the library's own model."""

    reference: Any
    model: LlamaModel

    @initialize()
    def start(self) -> None:
        self.runner = LlamaRunner(self.model, CELLS)
        self.held: list[tuple[LlamaSlot, list[Node]]] = []

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.runner.close()

    def _used(self) -> int:
        return len({id(node) for _, nodes in self.held for node in nodes})

    @rule(tokens=st.lists(st.integers(0, 255), min_size=1, max_size=40), pick=st.integers(0, 7))
    def feed(self, tokens: list[int], pick: int) -> None:
        if not self.held or pick == 0:
            self.held.append((self.runner.cache.new_slot(), []))
        slot, nodes = self.held[pick % len(self.held)]
        if self._used() + len(tokens) > CELLS:
            with pytest.raises(SpaceError):
                self.runner.run([Feed(slot, tokens)])
            return
        (logits,) = self.runner.run([Feed(slot, tokens)])
        nodes += map(Node, tokens)
        ids = torch.tensor([[node.token for node in nodes]])
        with torch.no_grad():
            want = self.reference(input_ids=ids, use_cache=False).logits[0, -1].numpy()
        assert np.abs(logits - want).max() < 0.15  # keys and values have 16 bits

    @precondition(lambda self: self.held)
    @rule(pick=st.integers(0, 7), share=st.floats(0, 1))
    def shorten(self, pick: int, share: float) -> None:
        slot, nodes = self.held[pick % len(self.held)]
        slot.length = int(share * len(nodes))
        self.runner.cache.trim(slot)
        del nodes[slot.length :]

    @precondition(lambda self: self.held)
    @rule(pick=st.integers(0, 7))
    def fork(self, pick: int) -> None:
        slot, nodes = self.held[pick % len(self.held)]
        self.held.append((self.runner.cache.fork(slot), nodes.copy()))

    @precondition(lambda self: self.held)
    @rule(pick=st.integers(0, 7), share=st.floats(0, 1))
    def copy_a_beginning(self, pick: int, share: float) -> None:
        slot, nodes = self.held[pick % len(self.held)]
        length = int(share * len(nodes))
        new = self.runner.cache.new_slot()
        self.runner.cache.copy(slot, new, length)
        self.held.append((new, nodes[:length]))

    @precondition(lambda self: self.held)
    @rule(pick=st.integers(0, 7))
    def free(self, pick: int) -> None:
        slot, _ = self.held.pop(pick % len(self.held))
        self.runner.cache.free(slot)
        assert not slot.placed

    @precondition(lambda self: self.held)
    @rule(pick=st.integers(0, 7), more=st.integers(1, 300))
    def reserve_and_give_back(self, pick: int, more: int) -> None:
        slot, nodes = self.held[pick % len(self.held)]
        if self._used() + more > CELLS:
            with pytest.raises(SpaceError, match="limited to 256 tokens"):
                self.runner.cache.extend(slot, len(nodes) + more)
            return
        self.runner.cache.extend(slot, len(nodes) + more)
        assert self.runner.cache.free_cells == CELLS - self._used() - more
        self.runner.cache.trim(slot)

    @invariant()
    def cells_are_counted(self) -> None:
        if not hasattr(self, "runner"):
            return
        cache = self.runner.cache
        assert cache.free_cells == CELLS - self._used()
        for slot, nodes in self.held:
            assert slot.length == len(nodes)
            for number in cache.copies:
                last = self.model.library.memory_seq_pos_max(cache._memory, slot.index + number)
                assert last == len(nodes) - 1


@pytest.mark.parametrize(
    ("config", "settings_of_it"),
    [("LlamaConfig", {}), ("Gemma3TextConfig", WINDOWED)],
)
def test_cache_behaves_like_lists(tmp_path: Path, config: str, settings_of_it: dict[str, Any]) -> None:
    reference = make_model(config, **settings_of_it)
    with LlamaModel(load_library(), write_gguf(reference, tmp_path / "tiny.gguf")) as model:
        machine = type("Machine", (CacheMachine,), {"reference": reference, "model": model})
        run_state_machine_as_test(
            machine, settings=settings(max_examples=40, stateful_step_count=25, deadline=None)
        )


def test_sequences_run_out_with_an_error(tiny: LlamaModel) -> None:
    runner = LlamaRunner(tiny, 1024)
    slots = [runner.cache.new_slot() for _ in range(MAX_SEQUENCES)]
    with pytest.raises(SpaceError, match=f"all {MAX_SEQUENCES} sequences"):
        runner.cache.new_slot()
    runner.cache.free(slots[7])
    runner.run([Feed(runner.cache.new_slot(), [1, 2, 3])])
    runner.close()


def test_long_feeds_are_split_into_calls(tiny: LlamaModel) -> None:
    runner = LlamaRunner(tiny, 8192)
    slots = [runner.cache.new_slot() for _ in range(40)]
    rows = runner.run([Feed(slot, [number] * 101) for number, slot in enumerate(slots)])
    alone = LlamaRunner(tiny, 1024)
    for number in (0, 20, 39):
        (row,) = alone.run([Feed(alone.cache.new_slot(), [number] * 101)])
        assert np.abs(row - rows[number]).max() < 0.1
    runner.close()
    alone.close()
