from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from aicirt.contract.abi import FuncType
from aicirt.contract.errors import RuntimeFailure
from aicirt.wasm import (
    Export,
    Fiber,
    HostFunction,
    Instance,
    Linker,
    Program,
    Ticker,
    WasmEngine,
    host_functions,
)
from aicirt.wasm.host import HostCallable
from aicirt.wasm.snapshot import fork, take_snapshot
from lab.runners.wat import CALLS, controller

PRE = '(func (export "aici_pre_process") (result i32) {})'
Make = Callable[[HostCallable, str, str, str], Instance]


@pytest.fixture
def make(engine: WasmEngine, ticker: Ticker) -> Iterator[Make]:
    """Returns a function that makes a guest. Its pre_process, `code`, may call the host function $f."""
    opened: list[Instance | Program | Linker] = []

    def make(call: HostCallable, params: str, results: str, code: str, timed: bool = False) -> Instance:
        kind = FuncType(tuple(params.split()), tuple(results.split()))
        linker = Linker(engine, [HostFunction("test", "f", kind, call, (lambda *_: 1) if timed else None)])
        imports = f'(import "test" "f" (func $f (param {params}) (result {results})))'
        program = Program.compile(linker, controller(PRE.format(code), imports=imports))
        guest = Instance(program)
        opened.extend((linker, program, guest))
        return guest

    with ticker:
        yield make
    for item in reversed(opened):
        item.close()


@pytest.mark.parametrize("count", range(9))
def test_host_functions_get_all_arguments_unsigned(make: Make, count: int) -> None:
    seen: list[tuple[object, ...]] = []

    def call(*args: object) -> int:
        seen.append(args)
        return -1

    code = f"(call $f {' '.join(f'(i32.const {-1 - i})' for i in range(count))})"
    guest = make(call, "i32 " * count, "i32", code)
    assert guest.call(Export.PRE) == 0xFFFFFFFF
    assert seen == [(guest, *[0xFFFFFFFF - i for i in range(count)])]


def test_64_bit_values_are_passed_unchanged(make: Make) -> None:
    def call(_guest: Instance, small: int, big: int, last: int) -> int:
        assert (small, big, last) == (7, 0xFEDCBA9876543210, 0xFFFFFFFF)
        return big + 1

    code = (
        "(i32.wrap_i64 (i64.shr_u (call $f (i32.const 7) (i64.const -0x123456789abcdf0) (i32.const -1)) {}))"
    )
    args = "i32 i64 i32"
    assert make(call, args, "i64", code.format("(i64.const 0)")).call(Export.PRE) == 0x76543211
    assert make(call, args, "i64", code.format("(i64.const 32)")).call(Export.PRE) == 0xFEDCBA98


@pytest.mark.parametrize(
    "error", [ValueError("x"), KeyboardInterrupt(), SystemExit(3), GeneratorExit(), MemoryError()]
)
def test_every_exception_reaches_the_caller_unchanged(make: Make, error: BaseException) -> None:
    def call(_guest: Instance) -> int:
        raise error

    for run in (lambda g: g.call(Export.PRE), lambda g: Fiber(g, Export.PRE).run()):
        guest = make(call, "", "i32", "(call $f)")
        with pytest.raises(type(error)) as caught:
            run(guest)
        assert caught.value is error
        with pytest.raises(RuntimeFailure):
            guest.call(Export.MID)


@pytest.mark.parametrize("value", [None, "text", 1.5])
def test_host_function_must_return_an_int(make: Make, value: object) -> None:
    guest = make(lambda _guest: value, "", "i32", "(call $f)")  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError):
        guest.call(Export.PRE)


def test_interleaved_guests_each_get_their_own_exception(make: Make) -> None:
    """wasmtime-py keeps one last exception for all guests, so that guests could get each other's."""

    def call(guest: Instance) -> int:
        if guest.owner[1]:
            raise RuntimeError(guest.owner[0])
        guest.owner[1] = True
        return 0

    spin = """(local.set $i (i32.const 20000000))
      (loop $l (br_if $l (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))"""
    code = f"(local $i i32) {spin} (drop (call $f)) {spin} (call $f)"
    guests = [make(call, "", "i32", code) for _ in range(3)]
    fibers = []
    for number, guest in enumerate(guests):
        guest.owner = [f"guest {number}", False]
        fibers.append(Fiber(guest, Export.PRE, limit_ms=10_000))
    ended: dict[int, str] = {}
    while len(ended) < 3:
        for number, fiber in enumerate(fibers):
            if number not in ended:
                try:
                    assert not fiber.poll()
                except RuntimeError as error:
                    ended[number] = str(error)
    assert ended == {n: f"guest {n}" for n in range(3)}


def test_host_function_cannot_use_guests(make: Make) -> None:
    other, idle = (make(lambda _guest: 0, "", "i32", "(i32.const 1)") for _ in range(2))

    unfinished = Fiber(other, Export.PRE)

    def call(guest: Instance) -> int:
        for use in (
            lambda: take_snapshot(guest),
            lambda: fork(guest),
            lambda: fork(idle),
            lambda: guest.call(Export.MID),
            unfinished.poll,
        ):
            with pytest.raises(RuntimeFailure, match="is running"):
                use()
        return 5

    assert make(call, "", "i32", "(call $f)").call(Export.PRE) == 5
    assert unfinished.run() == idle.call(Export.PRE) == 1


def test_missing_and_unknown_host_functions_are_named() -> None:
    with pytest.raises(RuntimeFailure, match="nonsense, read"):
        host_functions({**{n: c for n, c in CALLS.items() if n != "read"}, "nonsense": lambda _g: 0})
