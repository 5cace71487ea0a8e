from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from aicirt.contract.errors import RuntimeFailure, TimeLimitError, TrapError
from aicirt.wasm import Export, Fiber, Instance, fork, take_snapshot
from lab.runners.wat import IMPORTS

Make = Callable[..., Instance]
FUNCTION = '(func (export "{}") (result i32) (local $i i32) {})'
ENDLESS = "(loop $l (br $l)) (i32.const 0)"
#: counts down for tens of milliseconds
LONG = """(local.set $i (i32.const 60000000))
  (loop $l (br_if $l (local.tee $i (i32.sub (local.get $i) (i32.const 1))))) (i32.const 77)"""


def _pre(code: str) -> str:
    return FUNCTION.format("aici_pre_process", code)


def test_short_call_ends_in_its_first_slice(make: Make) -> None:
    guest = make('(func (export "aici_init") (param i32) (result i32) (i32.add (local.get 0) (i32.const 1)))')
    fiber = Fiber(guest, Export.INIT, (0xFFFFFFF0,))
    assert not fiber.done and guest.fiber is fiber
    assert fiber.poll() and fiber.done and fiber.result == 0xFFFFFFF1
    assert guest.fiber is None
    with pytest.raises(RuntimeFailure, match="has already ended"):
        fiber.poll()


def test_endless_and_finite_guests_interleave_on_one_thread(make: Make) -> None:
    endless, finite = make(_pre(ENDLESS)), make(_pre(LONG))
    first, second = Fiber(endless, Export.PRE, limit_ms=10_000), Fiber(finite, Export.PRE, limit_ms=10_000)
    slices = 0
    while not second.poll():
        assert not first.poll()
        slices += 1
    assert second.result == 77 and slices >= 3
    assert endless.used_ns > 0
    first.abandon_call()


def test_a_slice_takes_about_one_tick(make: Make) -> None:
    fiber = Fiber(make(_pre(ENDLESS)), Export.PRE, limit_ms=10_000)
    took = []
    for _ in range(20):
        start = time.thread_time()
        assert not fiber.poll()
        took.append((time.thread_time() - start) * 1e3)
    assert sorted(took)[10] < 3
    fiber.abandon_call()


def test_a_slice_ends_early_when_others_wait(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the first slice lasts until the second tick, since the first one only reads the clock."""
    guest = make(_pre(ENDLESS))
    asked = []

    def wanted() -> bool:
        asked.append(guest.engine.running)
        return True

    monkeypatch.setattr(guest.engine, "wanted", wanted)
    fiber = Fiber(guest, Export.PRE, limit_ms=10_000)
    for _ in range(5):
        assert not fiber.poll()
    assert asked == [guest], "asked once: after the clock is read, every tick ends a slice"
    fiber.abandon_call()


def test_time_limit_counts_all_slices(make: Make) -> None:
    guest = make(_pre(ENDLESS))
    fiber = Fiber(guest, Export.PRE, limit_ms=15)
    start = time.thread_time()
    with pytest.raises(TimeLimitError) as caught:
        fiber.run()
    assert time.thread_time() - start >= 0.015
    assert 15 <= caught.value.detail["used_ms"] < 25
    assert guest.fiber is None and guest.failed


def test_slice_that_ends_before_any_tick_is_not_charged_earlier_time(make: Make) -> None:
    """Thousands of exceptions fill wasmtime's heap for exceptions. Its collection ends the slice early."""
    throws = """(tag $t) (global $left (mut i32) (i32.const 3000))
      (func (export "aici_pre_process") (result i32)
        (loop $l (block $h (try_table (catch $t $h) (throw $t)))
          (global.set $left (i32.sub (global.get $left) (i32.const 1))) (br_if $l (global.get $left)))
        (i32.const 5))"""
    end = time.thread_time() + 0.2
    while time.thread_time() < end:
        pass
    guest = make(throws)
    fiber = Fiber(guest, Export.PRE, limit_ms=100)
    polls = 1
    while not fiber.poll():
        polls += 1
    assert polls > 1 and fiber.result == 5
    assert guest.used_ns < 1e8


def test_traps_and_host_exits_end_a_fiber(make: Make) -> None:
    with pytest.raises(TrapError):
        Fiber(make(_pre("unreachable")), Export.PRE).run()
    guest = make(_pre("(drop (call $tokenize (i32.const 0) (i32.const 0))) unreachable"), imports=IMPORTS)
    with pytest.raises(ZeroDivisionError):
        Fiber(guest, Export.PRE).run()
    with pytest.raises(RuntimeFailure):
        Fiber(guest, Export.PRE)


def test_endless_recursion_traps_on_the_stack_of_a_fiber(make: Make) -> None:
    deep = "(func $r (result i32) (i32.add (call $r) (i32.const 1)))"
    with pytest.raises(TrapError) as caught:
        Fiber(make(deep + _pre("(call $r)")), Export.PRE).run()
    assert caught.value.detail["trap"] == "stack_overflow"


def test_guest_with_an_unfinished_call_refuses_other_uses(make: Make) -> None:
    guest = make(_pre(ENDLESS))
    fiber = Fiber(guest, Export.PRE, limit_ms=10_000)
    fiber.poll()
    for use in (
        lambda: guest.call(Export.MID),
        lambda: Fiber(guest, Export.MID),
        lambda: take_snapshot(guest),
        lambda: fork(guest),
    ):
        with pytest.raises(RuntimeFailure, match="asynchronous"):
            use()
    fiber.abandon_call()
    with pytest.raises(RuntimeFailure, match="only be closed"):
        guest.call(Export.MID)


@pytest.mark.parametrize("polls", [0, 1, 5])
def test_unfinished_fibers_can_be_dropped_in_any_order(make: Make, polls: int) -> None:
    sibling = make(_pre(LONG))
    alive = Fiber(sibling, Export.PRE, limit_ms=10_000)
    for order in ("cancel", "close", "forget"):
        guest = make(_pre(ENDLESS))
        fiber = Fiber(guest, Export.PRE, limit_ms=10_000)
        for _ in range(polls):
            assert not fiber.poll()
        if order == "cancel":
            fiber.abandon_call()
            fiber.abandon_call()
        if order != "forget":
            guest.close()
            assert guest.fiber is None
        del fiber
        alive.poll() if not alive.done else None
    if not alive.done:
        alive.run()
    assert alive.result == 77


def test_synchronous_and_asynchronous_calls_alternate_on_one_guest(make: Make) -> None:
    count = "(global.set $n (i32.add (global.get $n) (i32.const 1))) (global.get $n)"
    guest = make(
        "(global $n (mut i32) (i32.const 0))" + _pre(LONG),
        mid=FUNCTION.format("aici_mid_process", count),
    )
    for turn in range(100):
        assert guest.call(Export.MID) == 2 * turn + 1
        assert Fiber(guest, Export.MID).run() == 2 * turn + 2
    assert Fiber(guest, Export.PRE, limit_ms=10_000).run() == 77
    assert guest.call(Export.MID) == 201


def test_wrong_number_of_arguments_is_an_error(make: Make) -> None:
    with pytest.raises(RuntimeFailure, match="takes 0 arguments"):
        Fiber(make(), Export.MID, (1,))
