"""Closed guests are freed later, large ones by a thread, so that nobody waits for the kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aicirt.wasm import Engine, Export, Instance
from aicirt.wasm.memory import LEAST_BYTES, Reaper

Make = Callable[..., Instance]
PAGES = 512
BYTES = PAGES << 16
FILL = f"""(func (export "aici_init") (param i32) (result i32)
  (drop (memory.grow (i32.const {PAGES})))
  (memory.fill (i32.const 65536) (i32.const 7) (i32.const {BYTES})) (i32.const 0))"""


@pytest.fixture
def reaper(engine: Engine) -> Iterator[Reaper]:
    engine.reaper = reaper = Reaper()
    yield reaper
    engine.reaper = None
    if reaper.pending_bytes:
        reaper.start()
    reaper.stop()


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


def test_small_guests_are_freed_one_by_one_when_their_thread_has_time(make: Make, reaper: Reaper) -> None:
    guests = [make(FILL) for _ in range(3)]
    size = guests[0].size
    assert size < LEAST_BYTES
    for guest in guests:
        guest.close()
    for left in (2, 1, 0):
        assert reaper.free_one()
        assert reaper.pending_bytes == left * size
    assert not reaper.free_one()


@pytest.mark.parametrize("grown,most", [(0, 64), (30, 8)])
def test_number_and_memory_of_small_guests_that_wait_are_bounded(
    make: Make, reaper: Reaper, grown: int, most: int
) -> None:
    for _ in range(most + 2):
        guest = make(FILL)
        if grown:
            guest.grow(grown)
        size = guest.size
        guest.close()
    waiting = reaper.pending_bytes // size
    assert most // 2 <= waiting <= most and reaper.pending_bytes <= 16 << 20


def test_stop_frees_what_is_left(make: Make, reaper: Reaper) -> None:
    filled(make).close()
    make(FILL).close()
    reaper.start()
    reaper.stop()
    assert reaper.pending_bytes == 0
