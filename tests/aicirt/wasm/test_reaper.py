"""A thread frees large guests, so that closing a guest does not wait for the kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aicirt.wasm import Export, Instance, WasmEngine
from aicirt.wasm.memory import MIN_BYTES, Reaper

Make = Callable[..., Instance]
PAGES = 512
BYTES = PAGES << 16
FILL = f"""(func (export "aici_init") (param i32) (result i32)
  (drop (memory.grow (i32.const {PAGES})))
  (memory.fill (i32.const 65536) (i32.const 7) (i32.const {BYTES})) (i32.const 0))"""


@pytest.fixture
def reaper(engine: WasmEngine) -> Iterator[Reaper]:
    engine.reaper = reaper = Reaper()
    yield reaper
    engine.reaper = None
    if reaper.pending_bytes:
        reaper.start()
    reaper.end_thread()


def filled(make: Make) -> Instance:
    guest = make(FILL)
    guest.call(Export.INIT, 0)
    guest.refresh()
    return guest


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_closed_guests_keep_their_memory_until_the_thread_frees_it(make: Make, reaper: Reaper) -> None:
    guests = [filled(make) for _ in range(4)]
    before = resident()
    for guest in guests:
        guest.close()
        guest.close()
    assert 4 * BYTES <= reaper.pending_bytes <= 4 * BYTES + (1 << 20)
    assert resident() > before - BYTES, "the memory must still be mapped"
    reaper.start()
    reaper.drain()
    assert reaper.pending_bytes == 0
    assert resident() < before - 3 * BYTES


def test_small_guests_are_freed_at_once(make: Make, reaper: Reaper) -> None:
    guest = make(FILL)
    assert guest.size < MIN_BYTES
    guest.close()
    assert reaper.pending_bytes == 0


def test_stop_frees_what_is_left(make: Make, reaper: Reaper) -> None:
    filled(make).close()
    reaper.start()
    reaper.end_thread()
    assert reaper.pending_bytes == 0
