"""Checkpoints bound the code that runs between two checks of the time limit, and change no results."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wasmtime
from hypothesis import given, settings
from hypothesis import strategies as st

from aicirt.contract.errors import ModuleError
from aicirt.wasm.module import checkpoints as module
from aicirt.wasm.module.checkpoints import CHECKPOINT, MAX_AFTER_CALL, MAX_STRAIGHT, checkpoints
from aicirt.wasm.module.reader import inspect
from aicirt.wasm.module.rewrite import rewrite
from tests.thorough import cases

#: opcodes of control flow are not counted; the instructions that compute their operands are
CONTROL = frozenset({0x02, 0x03, 0x04, 0x05, 0x0B, 0x0C, 0x0D, 0x0E, 0x10})


class Shape:
    """Random structured code without long loops: blocks, conditions, branches, calls, loads."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def code(self, labels: str, room: int) -> str:
        """Returns random instructions inside blocks of these kinds: b(lock) or l(oop), the innermost last."""
        choose, out = self._random, []
        for _ in range(choose.randrange(1, 12)):
            kind = choose.randrange(12 if len(labels) < 6 and room > 0 else 7)
            if kind < 4:
                out.append("(local.set 1 (i32.add (local.get 1) (local.get 0)))" * choose.randrange(1, 6))
            elif kind == 4:
                out.append(f"(br_if {self._target(labels)} {self._condition()})")
            elif kind == 5:
                out.append("(call $leaf)")
            elif kind == 6:
                targets = f"{self._target(labels)} {self._target(labels)}"
                out.append(f"(br_table {targets} {self._condition()})")
                break
            elif kind < 9:
                out.append(f"(block {self.code(labels + 'b', room - 1)})")
            elif kind < 11:
                arms = [f"(then {self.code(labels + 'b', room - 1)})"]
                if choose.randrange(2):
                    arms.append(f"(else {self.code(labels + 'b', room - 1)})")
                out.append(f"(if {self._condition()} {' '.join(arms)})")
            else:
                count = "(local.tee 2 (i32.sub (local.get 2) (i32.const 1)))"
                again = f"(br_if 0 (i32.gt_s {count} (i32.const 0)))"
                out.append(f"(loop {self.code(labels + 'l', room - 1)} {again})")
        return " ".join(out)

    def _target(self, labels: str) -> int:
        """Returns the depth of a random block, but never a loop's: branching back might never end."""
        return self._random.choice([depth for depth, kind in enumerate(reversed(labels)) if kind == "b"])

    def _condition(self) -> str:
        bit = self._random.randrange(31)
        return f"(i32.and (i32.shr_u (local.get 0) (i32.const {bit})) (i32.const 1))"


def _module(seed: int) -> bytes:
    code = Shape(seed).code("b", 6)
    return bytes(
        wasmtime.wat2wasm(
            f"""(module (memory (export "memory") 1) (global $count (mut i32) (i32.const 0))
            (func $leaf (global.set $count (i32.add (global.get $count) (i32.const 1))))
            (func (export "run") (param i32) (result i32) (local i32 i32) (local.set 2 (i32.const 6))
              (block {code}) (i32.add (local.get 1) (global.get $count))))"""
        )
    )


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes checkpoints as dense as possible, so that small functions have many."""
    monkeypatch.setattr(module, "MAX_STRAIGHT", 24)
    monkeypatch.setattr(module, "MAX_AFTER_CALL", 8)
    monkeypatch.setattr(module, "_BEHIND_CALL", 16)
    yield


def _answers(wasm: bytes, arguments: list[int]) -> list[int]:
    store = wasmtime.Store(wasmtime.Engine())
    exports: Any = wasmtime.Instance(store, wasmtime.Module(store.engine, wasm), []).exports(store)
    return [exports["run"](store, argument) for argument in arguments]


class Walk:
    """Takes random paths through the code of "run" and measures the code between two checks of the limit."""

    def __init__(self, wasm: bytes) -> None:
        shape = inspect(wasm)
        self.start, self.end = shape.bodies[1]
        self.code = wasm
        self.ends: dict[int, int] = {}
        self.elses: dict[int, int] = {}
        self.at: list[tuple[int, int, list[int]]] = []  # offset, opcode, immediates
        self._decode()

    def _decode(self) -> None:
        at = self.start
        groups = self.code[at]
        at += 1 + 2 * groups
        opened = [-1]
        while at < self.end:
            start, opcode = at, self.code[at]
            at += 1
            immediates: list[int] = []
            if opcode in (0x0C, 0x0D, 0x10, 0x20, 0x21, 0x22, 0x23, 0x24, 0x02, 0x03, 0x04):
                immediates, at = [self.code[at]], at + 1
            elif opcode == 0x41:
                at += 1
            elif opcode == 0x0E:
                count = self.code[at]
                immediates, at = list(self.code[at + 1 : at + 2 + count]), at + 2 + count
            self.at.append((start, opcode, immediates))
            number = len(self.at) - 1
            if opcode in (0x02, 0x03, 0x04):
                opened.append(number)
            elif opcode == 0x05:
                self.elses[opened[-1]] = number
            elif opcode == 0x0B:
                self.ends[opened.pop()] = number

    def longest(self, choose: random.Random) -> int:
        """Returns the maximum of bytes between two checks on one random path."""
        ran = worst = 0
        stack = [-1]
        number = steps = 0
        while number < len(self.at) and steps < 5000:
            steps += 1
            start, opcode, immediates = self.at[number]
            following = self.at[number + 1][0] if number + 1 < len(self.at) else self.end
            if opcode == 0x03:
                ran = 0
            elif opcode not in CONTROL:
                ran += following - start
            worst = max(worst, ran)
            target = -1
            if opcode in (0x02, 0x03, 0x04):
                stack.append(number)
                if opcode == 0x04 and choose.randrange(2):
                    if number in self.elses:
                        number = self.elses[number]
                    else:
                        number = self.ends[number] - 1
            elif opcode == 0x05:
                number = self.ends[stack[-1]] - 1
            elif opcode == 0x0B:
                stack.pop()
            elif opcode == 0x10:
                ran = module.MAX_STRAIGHT - module.MAX_AFTER_CALL
            elif opcode == 0x0D and choose.randrange(2):
                target = immediates[0]
            elif opcode == 0x0E:
                target = choose.choice(immediates)
            if target >= 0:
                block = stack[-1 - target]
                if self.at[block][1] == 0x03 and block >= 0:
                    del stack[len(stack) - target :]
                    number, ran = block, 0
                else:
                    del stack[len(stack) - 1 - target :]
                    if block < 0:
                        return worst
                    number = self.ends[block]
            number += 1
        return worst


@settings(deadline=None, max_examples=cases(20, 60))
@given(st.integers(0, 2**32))
def test_rewritten_code_gives_the_same_answers(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_STRAIGHT", 24)
        patch.setattr(module, "_BEHIND_CALL", 16)
        wasm = _module(seed)
        arguments = [random.Random(seed + n).randrange(2**31) for n in range(8)]
        assert _answers(rewrite(wasm), arguments) == _answers(wasm, arguments)


def test_no_path_without_a_check_is_longer_than_the_limit(tight: None) -> None:
    inserted = 0
    for seed in range(150):
        wasm = _module(seed)
        places = list(checkpoints(wasm, inspect(wasm)))
        inserted += len(places)
        out = rewrite(wasm)
        walk = Walk(out)
        choose = random.Random(seed)
        longest = max(walk.longest(choose) for _ in range(60))
        assert longest <= module.MAX_STRAIGHT, seed
    assert inserted > 500


def test_walk_finds_long_paths_in_code_without_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    found = 0
    for seed in range(150):
        walk = Walk(_module(seed))
        choose = random.Random(seed)
        found = max(found, *(walk.longest(choose) for _ in range(20)))
    assert found > 100


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("(nop)" * 4000, 0),
        ("(nop)" * 9000, 2),
        ("(loop (nop))" * 2000, 0),
        ("(block (br 0) " + "(nop)" * 9000 + ")", 2),
        (f"(if (local.get 0) (then {'(nop)' * 3000}) (else {'(nop)' * 3000})) {'(nop)' * 3000}", 1),
        ("(call $f (i32.const 1))" + "(nop)" * (MAX_AFTER_CALL + 1), 1),
        ("(call $f (i32.const 1))" * 100, 0),
        ("(call $host)" + "(nop)" * 3000, 0),
    ],
)
def test_checkpoints_are_inserted_only_where_needed(code: str, count: int) -> None:
    text = f'(module (import "m" "f" (func $host)) (func $f (param i32) {code}))'
    wasm = bytes(wasmtime.wat2wasm(text))
    places = list(checkpoints(wasm, inspect(wasm)))
    assert len(places) == count and all(function == 1 for function, _ in places)
    out = rewrite(wasm)
    wasmtime.Module.validate(wasmtime.Engine(), out)
    assert out.count(CHECKPOINT) == count


def test_branches_and_handlers_of_every_kind_are_followed() -> None:
    long = "(nop)" * (MAX_STRAIGHT - 10)
    code = f"""(block $b (block $c (br_table $b $c (local.get 0))) {long})
      (block $n (drop (br_on_null $n (ref.null func))) {long})
      (block $h (try_table (catch $t $h) (catch_all $h) (call $thrower)))
      (block $r (result exnref) (try_table (catch_all_ref $r) {long}) (ref.null exn)) drop
      (drop (select (result funcref) (ref.null func) (ref.null func) (local.get 0))) {long}"""
    text = f"""(module (tag $t) (func $thrower (throw $t)) (func $tail (return_call $thrower))
      (func (export "run") (param i32) {code}))"""
    wasm = bytes(wasmtime.wat2wasm(text))
    out = rewrite(wasm)
    config = wasmtime.Config()
    config.wasm_exceptions = True
    wasmtime.Module.validate(wasmtime.Engine(config), out)
    assert len(list(checkpoints(wasm, inspect(wasm)))) >= 4


@pytest.mark.parametrize("size", range(24, 60))
def test_code_is_scanned_alike_in_pieces_of_every_size(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece may end inside an instruction; its beginning alone can be another instruction."""
    code = """(block (result funcref) (ref.null func)) drop (loop (result i32) (i32.const 123456789)) drop
      (drop (v128.const i64x2 1 2)) (drop (memory.grow (i32.const 1))) (drop (f64.const 1.5)) (call 0)
      (drop (block (result (ref 0)) (ref.func 0))) (drop (i32.load offset=70000 (i32.const 300)))"""
    text = f'(module (memory 1) (func $f (export "f") {code * 3}))'
    wasm = bytes(wasmtime.wat2wasm(text))
    whole = list(module.scan(wasm, inspect(wasm)))
    assert len(whole) == 3
    monkeypatch.setattr(module, "_PIECE", size)
    assert list(module.scan(wasm, inspect(wasm))) == whole


@pytest.mark.parametrize("body", [b"\x0c\x05\x0b", b"\x0b\x0b\x0b", b"\x02\x40\x0d\x7f\x0b\x0b"])
def test_malformed_code_is_an_error(body: bytes) -> None:
    body = b"\x00" + b"\x01" * 40 + body
    section = b"\x01" + bytes([len(body)]) + body
    wasm = b"\0asm\1\0\0\0\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x0a" + bytes([len(section)]) + section
    with pytest.raises(ModuleError):
        list(checkpoints(wasm, inspect(wasm)))


@pytest.mark.parametrize(
    "code",
    [
        "(call $tick) {long}",
        "(block (br_if 0 (call $zero)) (call $tick) {long})",
        "(call $tick) (if (call $one) (then (nop)) (else {long})) {long}",
        "(call $deep (i32.const 3)) {short}",
        "(call $tick) (loop (br_if 0 (call $zero)))",
    ],
)
def test_straight_code_checks_the_time_limit(code: str) -> None:
    """A host function lets the limit pass; the code after it must be interrupted before its end."""
    parts = {"long": "(nop)" * (MAX_STRAIGHT + 1), "short": "(nop)" * (MAX_AFTER_CALL + 1)}
    text = f"""(module (import "m" "tick" (func $tick)) (import "m" "zero" (func $zero (result i32)))
      (import "m" "one" (func $one (result i32)))
      (func $deep (param i32) (if (local.get 0)
        (then (call $deep (i32.sub (local.get 0) (i32.const 1)))) (else (call $tick))))
      (func (export "run") {code.format(**parts)}))"""
    wasm = bytes(wasmtime.wat2wasm(text))
    assert _is_interrupted(rewrite(wasm))
    assert "loop" in code or not _is_interrupted(wasm), (
        "wasmtime checks the limit here without checkpoints: the test proves nothing"
    )


def _is_interrupted(wasm: bytes) -> bool:
    """Returns whether "run" is interrupted when the epoch advances."""
    config = wasmtime.Config()
    config.epoch_interruption = True
    engine = wasmtime.Engine(config)
    store, linker = wasmtime.Store(engine), wasmtime.Linker(engine)
    store.set_epoch_deadline(1)
    linker.define_func("m", "tick", wasmtime.FuncType([], []), engine.increment_epoch)
    for name, value in (("zero", 0), ("one", 1)):
        kind = wasmtime.FuncType([], [wasmtime.ValType.i32()])
        linker.define_func("m", name, kind, lambda value=value: value)
    run: Any = linker.instantiate(store, wasmtime.Module(engine, wasm)).exports(store)["run"]
    try:
        run(store)
    except wasmtime.Trap as trap:
        assert trap.trap_code == wasmtime.TrapCode.INTERRUPT
        return True
    return False


@pytest.mark.parametrize("name", ["pyctrl", "jsctrl", "json_schema"])
def test_real_controllers_get_few_checkpoints(name: str) -> None:
    """Limits the bytes that checkpoints add, so that real controllers do not run slower."""
    wasm = (Path(module.__file__).parents[3] / "pyaici" / "_wasm" / f"{name}.wasm").read_bytes()
    shape = inspect(wasm)
    code = shape.section(10)
    assert code is not None
    added = len(list(checkpoints(wasm, shape))) * len(CHECKPOINT)
    assert 0 < added < 0.05 * (code.end - code.start)
