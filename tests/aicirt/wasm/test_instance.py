from __future__ import annotations

from collections.abc import Callable

import pytest

from aicirt.contract.errors import (
    ControllerFailed,
    ModuleError,
    ResultError,
    RuntimeFailure,
    TimeLimitError,
    TrapError,
)
from aicirt.wasm import Export, Fiber, GuestExit, Instance
from aicirt.wasm.snapshot import fork, map_readonly, take_snapshot
from lab.runners.wat import IMPORTS

Make = Callable[..., Instance]
PRE = '(func (export "aici_pre_process") (result i32) {})'


def test_calls_return_unsigned_results_and_keep_state(make: Make) -> None:
    guest = make(
        "(global $n (mut i32) (i32.const -3))"
        '(func (export "aici_init") (param i32) (result i32) (local.get 0))',
        mid='(func (export "aici_mid_process") (result i32) '
        "(global.set $n (i32.add (global.get $n) (i32.const 1))) (global.get $n))",
    )
    assert [guest.call(Export.MID) for _ in range(4)] == [0xFFFFFFFE, 0xFFFFFFFF, 0, 1]
    assert guest.call(Export.INIT, 0xFFFFFFFF) == 0xFFFFFFFF
    assert guest.call(Export.ARG) == 16


def test_error_names_a_missing_export(make: Make) -> None:
    guest = make()
    assert not guest.program.has[Export.PRE] and guest.program.has[Export.MID]
    with pytest.raises(ModuleError, match="aici_pre_process"):
        guest.call(Export.PRE)


def test_start_function_and_initialize_run_once_in_order(make: Make) -> None:
    guest = make(
        """(global $n (mut i32) (i32.const 1))
        (func $s (global.set $n (i32.mul (global.get $n) (i32.const 10)))) (start $s)
        (func (export "_initialize") (global.set $n (i32.add (global.get $n) (i32.const 5))))""",
        mid='(func (export "aici_mid_process") (result i32) (global.get $n))',
    )
    assert guest.call(Export.MID) == 15
    assert fork(guest)[0].call(Export.MID) == 15


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("unreachable", "unreachable"),
        ("(i32.load (i32.const 0x7fffffff))", "out_of_bounds"),
        ("(i32.div_s (i32.const 1) (i32.const 0))", "divide_by_zero"),
        ("(i32.div_s (i32.const 0x80000000) (i32.const -1))", "integer_overflow"),
        ("(i32.trunc_f32_s (f32.const nan))", "bad_conversion_to_integer"),
        ("(call_indirect (result i32) (i32.const 0))", "indirect_call_to_null"),
        ("(call_indirect (result i32) (i32.const 9))", "table_out_of_bounds"),
        ("(call $recursion)", "stack_overflow"),
    ],
)
def test_traps_name_their_kind_and_carry_the_backtrace(make: Make, code: str, kind: str) -> None:
    deep = "(func $recursion (result i32) (i32.add (call $recursion) (i32.const 1)))"
    guest = make(f"(table 2 funcref) {deep} {PRE.format(code)}")
    with pytest.raises(TrapError) as caught:
        guest.call(Export.PRE)
    assert caught.value.detail["trap"] == kind
    assert caught.value.detail["callback"] == "aici_pre_process"
    assert "wasm backtrace" in caught.value.detail["backtrace"]
    assert "aici_pre_process trapped" in caught.value.message
    with pytest.raises(RuntimeFailure, match="only be closed"):
        guest.call(Export.MID)


def test_uncaught_exception_is_a_trap(make: Make) -> None:
    for run in (lambda g: g.call(Export.PRE), lambda g: Fiber(g, Export.PRE).run()):
        guest = make("(tag $t (param i32))" + PRE.format("(throw $t (i32.const 1))"))
        with pytest.raises(TrapError) as caught:
            run(guest)
        assert caught.value.detail["trap"] == "uncaught_exception"


def test_data_segment_that_does_not_fit_traps_at_instantiation(make: Make) -> None:
    grow = "(func (drop (memory.grow (i32.const 1))))"
    with pytest.raises(TrapError, match="instantiation trapped") as caught:
        make(f'(data (i32.const 65535) "xx") {grow}')
    assert caught.value.detail["trap"] == "out_of_bounds"


def test_loop_ends_at_the_time_limit(make: Make) -> None:
    guest = make(PRE.format("(loop $l (br $l)) (i32.const 0)"))
    with pytest.raises(TimeLimitError) as caught:
        guest.call(Export.PRE)
    detail = caught.value.detail
    assert detail["callback"] == "aici_pre_process" and detail["limit_ms"] == 1.0
    assert 1.0 <= detail["used_ms"] < 10


def test_a_host_function_can_end_the_guest(make: Make) -> None:
    guest = make(PRE.format("(call $stop) unreachable"), imports=IMPORTS)
    with pytest.raises(GuestExit) as exit:
        guest.call(Export.PRE)
    assert exit.value.reason == "stop"
    data = '(data (i32.const 64) "no such colour")'
    guest = make(PRE.format("(call $fail (i32.const 64) (i32.const 14)) unreachable") + data, imports=IMPORTS)
    with pytest.raises(ControllerFailed, match="no such colour"):
        guest.call(Export.PRE)


def test_error_of_a_host_function_is_raised_unchanged(make: Make) -> None:
    body = PRE.format("(drop (call $tokenize (i32.const 0) (i32.const 0))) unreachable")
    with pytest.raises(ZeroDivisionError):
        make(body, imports=IMPORTS).call(Export.PRE)


def test_memory_access_outside_the_memory_is_refused(make: Make) -> None:
    guest = make('(data (i32.const 65532) "tail")')
    assert guest.read(65532, 4) == b"tail"
    guest.write_memory(65532, b"last")
    assert bytes(guest.view[-4:]) == b"last"
    for address, length in ((65533, 4), (0xFFFFFFFF, 1), (-1, 1), (0, 65537), (65536, 1)):
        with pytest.raises(ResultError):
            guest.read(address, length)
        with pytest.raises(ResultError):
            guest.write_memory(address, bytes(length))
    assert guest.read(65536, 0) == b""


def test_host_sees_memory_that_the_guest_has_grown(make: Make) -> None:
    guest = make(PRE.format("(memory.grow (i32.const 3))"))
    assert guest.call(Export.PRE) == 1
    guest.write_memory(4 * 65536 - 2, b"ok")
    assert guest.size == len(guest.view) == 4 * 65536
    assert guest.grow(2) == 4 * 65536
    assert len(guest.view) == 6 * 65536


def test_closed_guests_can_only_be_closed_again(make: Make) -> None:
    guest = make()
    guest.close()
    guest.close()
    for use in (
        lambda: guest.call(Export.MID),
        lambda: guest.read(0, 1),
        lambda: guest.write_memory(0, b"x"),
        lambda: guest.grow(1),
        lambda: map_readonly(guest, 0, 1),
        lambda: Fiber(guest, Export.MID),
        lambda: fork(guest),
        lambda: take_snapshot(guest),
        guest.refresh,
    ):
        with pytest.raises(RuntimeFailure, match="closed"):
            use()


@pytest.mark.parametrize(
    "code",
    [
        "",
        "(global $stack (mut i32) (i32.const 65536))",
        "(global $n (mut i32) (i32.const -1))",
        "(global $n (mut i64) (i64.const 0x7fffffffffffffff))",
        "(global $n (mut f64) (f64.const -1))",
    ],
)
def test_touch_changes_neither_memory_nor_results(make: Make, code: str) -> None:
    guest = make(code, mid='(func (export "aici_mid_process") (result i32) (i32.load8_u (i32.const 16)))')
    before = (bytes(guest.view), guest.call(Export.MID))
    for address in (0, 16, guest.size - 1, guest.size, 0xFFFFFFFF):
        guest.touch(address)
    assert (bytes(guest.view), guest.call(Export.MID)) == before
    guest.close()
    guest.touch(16)
