"""Modules do once, for all arguments, the work that comes before the argument."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from wasmtime import wat2wasm

from aicirt.contract.errors import AiciError
from aicirt.wasm.instance import Instance
from aicirt.wasm.program import Program
from aicirt.wasm.snapshot import start_from
from aicirt.worker.hostapi import LoadedVocabulary
from aicirt.worker.templates import _MAX_STARTED, Template
from lab.measurement.local_worker import LocalWorker, load_for_guests
from tests.pyaici.client.conftest import VOCABULARY

#: writes `mark` at 64, and behind it what `begin` has left there; the argument is read to 128
WAT = """(module
  (import "aici" "vocabulary" (func $vocabulary (result i32)))
  (import "aici" "read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "aici" "capability" (func $capability (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 40) (global $calls (mut i32) (i32.const 0)) (func (export "aici_abi_v1"))
  (data (i32.const 32) "\\28\\00\\00\\00\\02\\00\\00\\00hi")
  (func (export "_initialize") (global.set $calls (i32.add (global.get $calls) (i32.const 1))) %s)
  (func (export "aici_arg") (result i32) (i32.const 1024))
  (func (export "aici_init") (param $size i32) (result i32)
    (i32.store (i32.const 64) (i32.add (i32.load (i32.const 64)) (i32.const 1)))
    (i32.store (i32.const 68) (global.get $calls))
    (drop (call $read (i32.const 0) (i32.const 0) (i32.const 128) (local.get $size)))
    (drop (call $vocabulary)) (i32.const 0))
  (func (export "aici_mid_process") (result i32) unreachable)
  (data (i32.const 1024) "\\a8"))"""

MARK = "(i32.store (i32.const 64) (i32.const 6))"
WITH_CAPABILITY = MARK + "(i32.store (i32.const 256) (call $capability (i32.const 2)))"
WITH_VOCABULARY = MARK + "(drop (call $vocabulary))"
ASKING = {
    "argument": "(drop (call $read (i32.const 0) (i32.const 0) (i32.const 256) (i32.const 8)))",
    "random": "(drop (call $random (i32.const 256) (i32.const 8)))",
    "output": "(drop (call $write (i32.const 1) (i32.const 32) (i32.const 1) (i32.const 512)))",
    "much memory": f"(memory.fill (i32.const 4096) (i32.const 1) (i32.const {_MAX_STARTED}))",
}


@pytest.fixture(scope="module")
def worker() -> Iterator[LocalWorker]:
    with LocalWorker(load_for_guests(VOCABULARY)) as worker:
        yield worker


def loaded(worker: LocalWorker, folder: Path, begin: str) -> Program:
    (folder / "module.wasm").write_bytes(wat2wasm(WAT % begin))
    return worker.program(folder / "module.wasm")


@contextmanager
def begun(template: Template) -> Iterator[Instance]:
    guest = start_from(template.snapshot)
    try:
        yield guest
    finally:
        guest.close()


def contents(template: Template) -> bytes:
    with begun(template) as guest:
        return guest.read(0, guest.size)


@pytest.mark.parametrize("begin", [MARK, WITH_VOCABULARY], ids=["memory", "vocabulary"])
def test_initialize_runs_once(worker: LocalWorker, tmp_path: Path, begin: str) -> None:
    program = loaded(worker, tmp_path, begin)
    first = worker.template(program, "first")
    assert program.started is not None and program.started[0] is worker.vocabulary
    made = program.num_instances
    later = [worker.template(program, arg) for arg in ("second", "1st", "first")]
    # with the vocabulary, a guest has the same size at the end as at the start, so the next build can use it
    assert program.num_instances - made == (1 if begin == WITH_VOCABULARY else 3)
    for template, arg in zip([first, *later], (b"first", b"second", b"1st", b"first"), strict=True):
        with begun(template) as guest:
            assert guest.read(64, 8) == bytes([7, 0, 0, 0, 1, 0, 0, 0])
            assert guest.read(128, 8) == arg.ljust(8, b"\0"), "nothing is left of another argument"
    assert contents(first) == contents(later[-1])


@pytest.mark.parametrize("begin", ASKING.values(), ids=ASKING.keys())
def test_what_depends_on_the_request_is_done_each_time(
    worker: LocalWorker, tmp_path: Path, begin: str
) -> None:
    program = loaded(worker, tmp_path, MARK + begin)
    first, second = worker.template(program, "first"), worker.template(program, "second")
    assert program.started is None
    assert first.log == second.log == (b"hi" if "$write" in begin else b"")
    if "i32.const 256) (i32.const 8)))" in begin and "$read" in begin:
        for template, arg in ((first, b"first"), (second, b"second")):
            with begun(template) as guest:
                assert guest.read(256, 8) == arg.ljust(8, b"\0")


def test_each_vocabulary_has_its_own_state(worker: LocalWorker, tmp_path: Path) -> None:
    program = loaded(worker, tmp_path, WITH_VOCABULARY)
    own, other = worker.vocabulary, load_for_guests(VOCABULARY)
    try:
        seen: list[LoadedVocabulary] = []
        for vocabulary in (own, other, other, own):
            worker.vocabulary = vocabulary
            template = worker.template(program, "a")
            assert program.started is not None
            seen.append(program.started[0])  # type: ignore[arg-type]
            assert template.vocabulary is vocabulary
    finally:
        worker.vocabulary = own
    assert seen == [own, other, other, own]


def test_each_set_of_capabilities_has_its_own_state(
    worker: LocalWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = loaded(worker, tmp_path, WITH_CAPABILITY)
    found: list[int] = []
    for value in (5, 5, 7, 5):
        monkeypatch.setattr(worker.worker, "guest_capabilities", lambda *_, value=value: {2: value})
        with begun(worker.template(program, "a")) as guest:
            found.append(guest.read(256, 1)[0])
        assert program.started is not None and program.started[1] == {2: value}
    assert found == [5, 5, 7, 5]


def test_a_failed_start_is_reported_each_time(worker: LocalWorker, tmp_path: Path) -> None:
    program = loaded(worker, tmp_path, "unreachable")
    for _ in range(2):
        with pytest.raises(AiciError, match="_initialize"):
            worker.template(program, "a")
    assert program.started is None
