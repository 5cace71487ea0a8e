"""The heap behind `new` in controllers: blocks do not overlap, are packed densely, and are reused."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from lab.runners.probe import Functions
from pyaici.toolchain import build_controller

#: sizes that are rounded up differently and come from different parts of the heap
_SIZES = (0, 1, 11, 12, 13, 28, 200, 1019, 1020, 1021, 1300, 5000, 70_000, 300_000, 1_100_000, 2_500_000)


class Heap(Functions):
    """The functions of probe.cpp."""

    def take(self, size: int) -> int:
        """0 if there is no more memory."""
        return self._number("probe_take", size)

    def give_back(self, block: int) -> None:
        self._call("probe_give_back", block)


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("heap")
    return build_controller([Path(__file__).with_name("probe.cpp")], folder / "heap_probe.wasm").path


@pytest.fixture
def heap(module: Path) -> Heap:
    return Heap(module)


def test_blocks_keep_their_contents(heap: Heap) -> None:
    rng = random.Random(0)
    blocks: dict[int, bytes] = {}
    for _ in range(3000):
        if blocks and (len(blocks) > 60 or rng.random() < 0.4):
            block = rng.choice(list(blocks))
            data = blocks.pop(block)
            assert heap._get(block, len(data)) == data
            heap.give_back(block)
        else:
            size = rng.choice(_SIZES[:13] if rng.random() < 0.98 else _SIZES)
            block = heap.take(size)
            assert block and block % 16 == 0
            blocks[block] = rng.randbytes(64) * (size // 64) + rng.randbytes(size % 64)
            heap._set(block, blocks[block])
    for block, data in blocks.items():
        assert heap._get(block, len(data)) == data


def test_small_blocks_share_pages(heap: Heap) -> None:
    blocks = [heap.take(size) for size in (20, 40, 100, 300, 20, 700, 12)]
    assert max(blocks) - min(blocks) < 4096


def test_blocks_are_used_again(heap: Heap) -> None:
    for size in _SIZES:
        heap.give_back(heap.take(size))
    size = heap.memory()
    for _ in range(20):
        blocks = [heap.take(size) for size in _SIZES]
        for block in blocks:
            heap.give_back(block)
    assert heap.memory() == size


def test_out_of_memory(heap: Heap) -> None:
    assert heap.take(0xFFFFFFFF) == 0 and heap.take(0xFFFFFFF8) == 0 and heap.take(0xFFFF0000) == 0
    assert heap.take(100)
