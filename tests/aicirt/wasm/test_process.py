"""Events that could kill a process that runs guests, and the protection against them."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import wasmtime

from aicirt.contract.errors import ModuleError, RuntimeFailure
from aicirt.wasm import Export, Fiber, Instance, Limits, Linker, Program, Ticker, WasmEngine
from aicirt.wasm import fiber as ticker_module
from aicirt.wasm import snapshot as snapshot_module
from aicirt.wasm.engine import stack_size
from aicirt.wasm.module.rewrite import rewrite
from aicirt.wasm.program import compile_module
from aicirt.wasm.snapshot import fork, start_from, take_snapshot
from lab.runners.wat import controller
from lab.system.processes import open_files
from lab.system.waiting import PATIENCE
from tests.thorough import cases

Make = Callable[..., Instance]

PRELUDE = """
import ctypes, faulthandler, os, resource, signal, sys, threading
from wasmtime import wat2wasm
from aicirt.contract.errors import AiciError, RuntimeFailure, TimeLimitError, TrapError
from aicirt.wasm import *
WASM = bytes(wat2wasm('''(module (memory (export "memory") 1) (func (export "aici_abi_v1"))
  (func (export "aici_arg") (result i32) (i32.const 0))
  (func (export "aici_pre_process") (result i32) (i32.load (i32.const -4)))
  (func (export "aici_post_process") (result i32) (loop $l (br $l)) (i32.const 0))
  (func (export "aici_init") (param i32) (result i32) (loop $l (br $l)) (i32.const 0))
  (func $deep (export "aici_mid_process") (result i32) (i32.add (call $deep) (i32.const 1))))'''))
def guest(engine):
    return Instance(Program.compile(Linker(engine, []), WASM))
def trap(guest, export):
    try:
        guest.call(export)
    except TrapError as error:
        return error.detail["trap"]
"""


def _run(code: str) -> str:
    """Runs code in a new process and returns its output. The process must succeed and print no errors."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout.strip()


def test_repeated_traps_do_not_kill_the_process() -> None:
    code = """
    engine = WasmEngine()
    print([trap(guest(engine), e) for e in (Export.PRE, Export.MID, Export.PRE, Export.MID)])
    """
    assert _run(code) == "['out_of_bounds', 'stack_overflow', 'out_of_bounds', 'stack_overflow']"


def test_fault_handler_enabled_too_late_is_detected() -> None:
    code = """
    faulthandler.enable()
    engine = WasmEngine()
    print(trap(guest(engine), Export.PRE))
    faulthandler.disable()
    faulthandler.enable()
    try:
        guest(engine)
    except RuntimeFailure as error:
        print("faulthandler" in error.message)
    """
    assert _run(code) == "out_of_bounds\nTrue"


@pytest.mark.parametrize("kib", [256, 384, 512, 700])
def test_threads_with_a_small_stack_are_refused(kib: int) -> None:
    """On a small stack, a stack overflow of a guest would be a segmentation fault."""
    code = f"""
    def run():
        try:
            WasmEngine()
        except RuntimeFailure as error:
            print("stack_size" in error.message)
    threading.stack_size({kib} << 10)
    thread = threading.Thread(target=run)
    thread.start()
    threading.stack_size(8 << 20)  # a thread keeps the size that it was created with
    thread.join()
    """
    assert _run(code) == "True"


def test_smallest_accepted_stack_is_sufficient() -> None:
    code = """
    from aicirt.settings import STACK_MARGIN, WASM_STACK
    def run():
        engine = WasmEngine()
        print([trap(guest(engine), Export.MID) for _ in range(3)])
    threading.stack_size(WASM_STACK + STACK_MARGIN + (64 << 10))
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    """
    assert _run(code) == "['stack_overflow', 'stack_overflow', 'stack_overflow']"


def test_stack_size_is_that_of_the_current_thread() -> None:
    sizes: list[int] = []
    before = threading.stack_size(1 << 20)
    thread = threading.Thread(target=lambda: sizes.append(stack_size()))
    thread.start()
    thread.join()
    threading.stack_size(before)
    assert abs(sizes[0] - (1 << 20)) <= 16384


def test_guests_stay_on_the_thread_of_their_engine(engine: WasmEngine, linker: Linker) -> None:
    program = Program.compile(linker, controller())
    caught: list[RuntimeFailure] = []

    def run() -> None:
        try:
            Instance(program)
        except RuntimeFailure as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert "only on the thread" in caught[0].message
    program.close()


def test_process_can_exit_with_all_parts_open() -> None:
    code = """
    engine = WasmEngine()
    ticker = Ticker(engine)
    ticker.arm()
    first, second = guest(engine), guest(engine)
    fiber = Fiber(first, Export.POST, limit_ms=10_000)
    print([fiber.poll(), fiber.poll()])
    children = fork(second, 3)
    snapshot = take_snapshot(second)
    """
    assert _run(code) == "[False, False]"


@pytest.mark.parametrize("call", ["g.call(Export.INIT)", "Fiber(g, Export.INIT, (0,)).run()"])
def test_ctrl_c_ends_the_guest_and_raises_keyboard_interrupt(call: str) -> None:
    """An exception raised by a signal handler at the start of a callback would crash the process."""
    code = f"""
    engine = WasmEngine(Limits(init_ms=60_000))
    ticker = Ticker(engine)
    program = guest(engine).program
    caught = 0
    signal.signal(signal.SIGALRM, engine._on_interrupt)
    for turn in range(100):
        g = Instance(program)
        try:
            with ticker:
                signal.setitimer(signal.ITIMER_REAL, 0.002 + turn * 2e-5)
                {call}
        except KeyboardInterrupt:
            caught += 1
        assert Fiber(Instance(program), Export.ARG).run() == 0
    print(caught, signal.getsignal(signal.SIGINT) == engine._on_interrupt)
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        print("at once")
    engine.close()
    print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
    """
    assert _run(code) == "100 True\nat once\nTrue"


def test_ticker_refuses_to_arm_after_a_process_fork() -> None:
    code = """
    engine = WasmEngine()
    ticker = Ticker(engine)
    child = os.fork()
    if child == 0:
        try:
            ticker.arm()
        except RuntimeFailure:
            os._exit(7)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert _run(code) == "7"


def test_ticker_without_a_timer_is_an_error() -> None:
    code = """
    resource.setrlimit(resource.RLIMIT_SIGPENDING, (0, 0))
    try:
        Ticker(WasmEngine())
    except RuntimeFailure as error:
        print(error.message)
    """
    assert _run(code).startswith("the ticker of time limits cannot start")


def test_ticker_that_does_not_tick_is_an_error_at_the_start(
    engine: WasmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    libc = ctypes.CDLL(None)
    nothing = ctypes.cast(libc.getpid, ctypes.c_void_p).value
    monkeypatch.setattr(ticker_module.raw, "address_of", lambda _name: nothing)
    monkeypatch.setattr(ticker_module, "_FIRST_TICK_PAUSES", 50)
    with pytest.raises(RuntimeFailure, match="does not run"):
        Ticker(engine)


def test_clones_work_in_a_process_made_undumpable() -> None:
    code = """
    engine = WasmEngine()
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
    parent = guest(engine)
    parent.write_memory(100, b"state")
    print(fork(parent)[0].read(100, 5))
    """
    assert _run(code) == "b'state'"


def test_huge_pages_are_off(engine: WasmEngine) -> None:
    assert ctypes.CDLL(None).prctl(42, 0, 0, 0, 0) == 1  # PR_GET_THP_DISABLE


def test_lack_of_descriptors_is_an_error_of_one_guest() -> None:
    code = """
    engine = WasmEngine()
    parent = guest(engine)
    parent.write_memory(100, b"state")
    kept = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))
    try:
        while True:
            kept.append(take_snapshot(parent))
    except RuntimeFailure as error:
        print(len(kept) > 5, error.message.partition(":")[0])
    kept.clear()
    print(start_from(take_snapshot(parent)).read(100, 5))
    """
    assert _run(code) == "True a memory file of 4096 bytes cannot be created\nb'state'"


def test_lack_of_address_space_is_an_error_of_one_guest() -> None:
    code = """
    engine = WasmEngine()
    parent = guest(engine)
    size = int(open("/proc/self/statm").read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (size + (20 << 30), size + (20 << 30)))
    kept = []
    try:
        while True:
            kept.append(fork(parent)[0])
    except RuntimeFailure as error:
        print(2 <= len(kept) <= 5)
    kept.pop().close()
    print(fork(parent)[0].read(0, 1))
    """
    assert _run(code) == "True\nb'\\x00'"


@pytest.mark.parametrize(
    "module",
    [
        "(module (memory i64 1))",
        "(module (memory i64 10000000))",
        "(module (memory 1 1 shared))",
        "(module (memory 1) (memory 1))",
        "(module (type (struct (field i32))))",
        "(module (memory 1 1 shared) (func (drop (i32.atomic.load (i32.const 0)))))",
        "(component)",
    ],
)
def test_engine_refuses_unsupported_features(engine: WasmEngine, module: str) -> None:
    with pytest.raises(ModuleError):
        compile_module(engine, bytes(wasmtime.wat2wasm(module)))


@pytest.mark.parametrize(
    "code",
    [
        "(elem (i32.const 0) func 1)",
        "(func (drop (ref.func 2))) (elem declare func 2)",
        "(func (drop (call 2 (i32.const 1))))",
        "(func (global.set 1 (i32.const 1)))",
    ],
)
def test_modules_cannot_refer_to_what_rewriting_adds(engine: WasmEngine, code: str) -> None:
    """Rewriting adds a function for memory.grow and the global that it writes."""
    grow = "(func (drop (memory.grow (i32.const 1)))) (global (mut i32) (i32.const 0))"
    wasm = bytes(wasmtime.wat2wasm(f"(module (memory 1) (table 1 funcref) {grow} {code})"))
    # the module is valid after rewriting, so it must be validated before
    wasmtime.Module.validate(engine.wasmtime, rewrite(wasm))
    with pytest.raises(ModuleError, match="unknown"):
        compile_module(engine, wasm)


def test_engine_supports_setjmp_and_vectors(engine: WasmEngine) -> None:
    """LLVM compiles setjmp to exceptions of the final standard; vectors are v128."""
    module = """(module (tag $t (param i32)) (func (result i32)
      (block $h (result i32) (try_table (catch $t $h) (throw $t (i32.const 1))) (i32.const 2)))
      (func (result v128) (f32x4.relaxed_madd (v128.const i64x2 0 0) (v128.const i64x2 0 0)
        (v128.const i64x2 0 0))))"""
    compile_module(engine, bytes(wasmtime.wat2wasm(module))).close()


# -- leaks ------------------------------------------------------------------------------------


def _used() -> tuple[int, int]:
    """Returns the numbers of open descriptors and of mappings of this process."""
    with open("/proc/self/maps", encoding="ascii") as maps:
        return open_files(), sum(1 for _ in maps)


def _leaves_nothing(work: Callable[[], object]) -> bool:
    """Tells whether work leaves no descriptors and mappings in at least one of several rounds.

    What else the process does, such as its heap, also makes mappings; a leak shows in every round.
    """
    for _ in range(5):
        gc.collect()
        before = _used()
        work()
        gc.collect()
        after = _used()
        if after[0] == before[0] and abs(after[1] - before[1]) <= 8:
            return True
    return False


def test_hundreds_of_guests_leave_no_descriptors_or_mappings(make: Make) -> None:
    parent = make('(data (i32.const 0) "x") (func (export "aici_pre_process") (result i32) unreachable)')
    parent.write_memory(5000, b"state")

    def churn(rounds: int) -> None:
        for _ in range(rounds):
            snapshot = take_snapshot(parent)
            guests = [start_from(snapshot), *fork(parent, 2), Instance(parent.program)]
            guests.append(fork(guests[0])[0])
            fiber_guest = guests.pop()
            fiber = Fiber(fiber_guest, Export.MID)
            fiber.poll()
            fiber_guest.close()
            for number, guest in enumerate(guests):
                if number:
                    guest.close()
            del guests, guest, snapshot  # guests[0] is not closed, but garbage-collected

    churn(50)
    assert _leaves_nothing(lambda: churn(cases(100, 500)))


def test_failed_forks_leave_no_descriptors_or_mappings(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = make()
    parent.write_memory(5000, b"state")
    fork(parent)[0].close()
    calls = 0

    def fail(*_args: object) -> None:
        nonlocal calls
        calls += 1
        if calls % 3 == 0:
            raise OSError("no more mappings")

    monkeypatch.setattr(snapshot_module, "copy_runs", fail)

    def fork_in_vain() -> None:
        for _ in range(cases(10, 30)):
            with pytest.raises(OSError, match="no more mappings"):
                fork(parent, 5)

    assert _leaves_nothing(fork_in_vain)
    monkeypatch.undo()
    fork(parent)[0].close()


def test_closing_parts_in_the_wrong_order_does_not_crash() -> None:
    code = """
    engine = WasmEngine()
    linker = Linker(engine, [])
    program = Program.compile(linker, WASM)
    first, second = Instance(program), Instance(program)
    snapshot = take_snapshot(first)
    linker.close()
    print(first.call(Export.ARG))
    program.close()
    print(first.call(Export.ARG), trap(second, Export.PRE))
    for make in (lambda: start_from(snapshot), lambda: fork(first), lambda: Program.compile(linker, WASM)):
        try:
            make()
        except (RuntimeFailure, ValueError) as error:
            print("closed" in str(error))
    engine.close()
    print(first.call(Export.ARG))
    try:
        Instance(program)
    except RuntimeFailure as error:
        print(error.message)
    first.close()
    """
    assert _run(code).splitlines() == [
        "0",
        "0 out_of_bounds",
        "True",
        "True",
        "True",
        "0",
        "the engine is closed",
    ]


def test_files_that_are_not_artifacts_are_refused(linker: Linker, tmp_path: Path) -> None:
    for content in (b"", b"\x7fELF" + bytes(1000), controller(), os.urandom(5000)):
        (tmp_path / "artifact").write_bytes(content)
        with pytest.raises(ModuleError, match="cannot be loaded"):
            Program.from_file(linker, tmp_path / "artifact")
    with pytest.raises(ModuleError, match="cannot be loaded"):
        Program.from_file(linker, tmp_path / "missing")


def test_closed_engines_leave_no_descriptors() -> None:
    before = _used()[0]
    for _ in range(10):
        engine = WasmEngine(Limits(memory_bytes=1 << 20))
        linker = Linker(engine, [])
        program = Program.compile(linker, controller())
        guest = Instance(program)
        guest.start()
        guest.close()
        program.close()
        linker.close()
        engine.close()
    assert _used()[0] == before
