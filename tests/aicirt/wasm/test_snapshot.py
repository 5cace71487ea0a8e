from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aicirt.contract.errors import RuntimeFailure, TrapError
from aicirt.wasm import Export, Instance, Linker, Program, Ticker, WasmEngine
from aicirt.wasm.memory import PAGE, PagemapReader, PageScanner, change_finder, nonzero
from aicirt.wasm.snapshot import _union, fork, fork_bytes, start_from, take_snapshot
from lab.runners.wat import controller

Make = Callable[..., Instance]
COUNTER = """(global $n (mut i32) (i32.const 0)) (global $wide (mut i64) (i64.const -5))
  (global $v (mut v128) (v128.const i64x2 1 2)) (global $f (mut f64) (f64.const 0.5))
  (data (i32.const 5000) "initial")
  (func (export "aici_pre_process") (result i32)
    (global.set $wide (i64.add (global.get $wide) (i64.const 1)))
    (global.set $f (f64.add (global.get $f) (f64.const 0.25)))
    (global.set $v (i64x2.add (global.get $v) (v128.const i64x2 1 1)))
    (i32.add (i32.wrap_i64 (global.get $wide))
      (i32.add (i32.trunc_f64_s (f64.mul (global.get $f) (f64.const 1000)))
        (i32.wrap_i64 (i64x2.extract_lane 1 (global.get $v))))))
  (func (export "aici_init") (param i32) (result i32) (memory.grow (local.get 0)))
  (func (export "aici_post_process") (result i32) (i32.load (i32.const 0x7ffffff0)))"""
COUNT = """(func (export "aici_mid_process") (result i32)
  (global.set $n (i32.add (global.get $n) (i32.const 1))) (global.get $n))"""


@pytest.fixture(params=["scan", "read"])
def counter(request: pytest.FixtureRequest, make: Make, engine: WasmEngine) -> Iterator[Instance]:
    """Returns a guest, once for each way to find changed pages."""
    usual, engine.changes = engine.changes, change_finder(use_scan=request.param == "scan")
    assert isinstance(engine.changes, PageScanner if request.param == "scan" else PagemapReader)
    yield make(COUNTER, mid=COUNT)
    engine.changes.close()
    engine.changes = usual


def test_fork_inherits_the_state_and_then_changes_independently(counter: Instance) -> None:
    counter.call(Export.MID)
    counter.call(Export.PRE)
    counter.write_memory(100, b"parent")
    child = fork(counter)[0]
    assert child.read(100, 6) == b"parent" and child.read(5000, 7) == b"initial"
    assert child.call(Export.MID) == 2 and child.call(Export.MID) == 3
    assert counter.call(Export.MID) == 2
    assert child.call(Export.PRE) == counter.call(Export.PRE)
    child.write_memory(100, b"child!")
    counter.write_memory(40000, b"later")
    assert counter.read(100, 6) == b"parent" and child.read(40000, 5) == bytes(5)
    child.close()


def test_changed_bytes_count_the_pages_that_differ(counter: Instance) -> None:
    scans = isinstance(counter.engine.changes, PageScanner)
    before = counter.changed_bytes()
    for page in range(0, 12, 2):
        counter.write_memory(page * PAGE, b"x")
    assert counter.changed_bytes() == before, "writes of the host count once the guest has run"
    counter.call(Export.MID)
    assert counter.changed_bytes() - before in range(5 * PAGE, 8 * PAGE)
    child = fork(counter)[0]
    assert not scans or child.changed_bytes() == counter.changed_bytes()
    child.close()
    assert child.changed_bytes() == 0
    snapshot = take_snapshot(counter)
    again = start_from(snapshot)
    assert not scans or again.changed_bytes() == 0
    assert snapshot.nbytes >= 6 * PAGE
    again.close()


def test_kept_exceptions_count_as_changed_bytes(make: Make) -> None:
    """Each of 2000 nested frames keeps an exception of 800 bytes, for which wasmtime allocates memory."""
    kinds, values = "i64 " * 100, "(i64.const 1) " * 100
    module = f"""(tag $t (param {kinds}))
      (func $make (result exnref) (local exnref)
        (block $h (result {kinds} exnref)
          (try_table (catch_ref $t $h) {values} (throw $t))
          unreachable)
        (local.set 0) {"drop " * 100} (local.get 0))
      (func $deep (param i32) (result i32) (local exnref)
        (local.set 1 (call $make))
        (if (result i32) (local.get 0)
          (then (i32.add (call $deep (i32.sub (local.get 0) (i32.const 1))) (ref.is_null (local.get 1))))
          (else (i32.const 0))))"""
    guest = make(module, mid='(func (export "aici_mid_process") (result i32) (call $deep (i32.const 2000)))')
    before = guest.changed_bytes()
    guest.call(Export.MID)
    assert guest.changed_bytes() - before in range(2000 * 800, 2000 * 2000)
    child = fork(guest)[0]
    assert child.changed_bytes() <= before + 4 * PAGE
    child.close()


def test_large_tables_count_in_instance_bytes(make: Make) -> None:
    small = make(COUNTER, mid=COUNT)
    large = make("(table 20000 funcref) (table 20000 funcref)" + COUNTER, mid=COUNT)
    for guest in (small, large):
        ctypes.CDLL(None).malloc_trim(0)  # reusing freed memory would cause no page faults
        for child in fork(guest, 5):
            child.close()
    assert large.program.instance_bytes - small.program.instance_bytes > 200_000


def test_fork_bytes_predicts_the_memory_that_forks_take(make: Make) -> None:
    guest = make(COUNTER, mid=COUNT)
    guest.call(Export.INIT, 16)
    guest.write_memory(0, b"x" * (200 << 10))
    assert fork_bytes(guest, 8) in range(8 * (200 << 10), 8 * (220 << 10)), "each child gets a copy"
    guest.write_memory(0, b"x" * (800 << 10))
    nbytes = fork_bytes(guest, 8)
    assert nbytes in range(800 << 10, 820 << 10), "all children share a snapshot"
    children = fork(guest, 8)
    assert guest.base_image is not None and guest.base_image.stored <= nbytes
    for child in children:
        child.close()


def test_forks_of_forks_of_a_snapshot_see_their_ancestors_state(counter: Instance) -> None:
    counter.write_memory(8192, b"base")
    snapshot = take_snapshot(counter)
    counter.write_memory(8192, b"gone")
    guests = [start_from(snapshot)]
    for depth in range(5):
        guests[-1].write_memory(12288 + depth * PAGE, bytes([depth + 1]))
        guests.append(fork(guests[-1])[0])
    assert all(g.read(8192, 4) == b"base" for g in guests)
    for depth, guest in enumerate(guests):
        seen = [guest.read(12288 + i * PAGE, 1)[0] for i in range(5)]
        assert seen == [i + 1 if i < depth or (i == depth and depth < 5) else 0 for i in range(5)]
    for guest in guests[:-1]:
        guest.close()
    assert guests[-1].call(Export.MID) == 1
    guests[-1].close()


def test_data_that_was_zeroed_stays_zero(counter: Instance) -> None:
    counter.write_memory(5000, bytes(7))
    child, again = fork(counter)[0], start_from(take_snapshot(counter))
    assert child.read(5000, 7) == again.read(5000, 7) == bytes(7)
    child.write_memory(5000, b"x" * 7)
    child.write_memory(5000, bytes(7))
    grandchild = fork(child)[0]
    assert grandchild.read(5000, 7) == bytes(7)
    for guest in (child, again, grandchild):
        guest.close()


def test_growth_is_inherited(counter: Instance) -> None:
    counter.call(Export.INIT, 2)
    counter.write_memory(3 * 65536 - 4, b"last")
    child = fork(counter)[0]
    snapshot = take_snapshot(child)
    child.call(Export.INIT, 1)
    fresh = start_from(snapshot)
    assert (counter.size, snapshot.size, fresh.size) == (3 * 65536, 3 * 65536, 3 * 65536)
    assert fork(child)[0].size == 4 * 65536
    assert fresh.read(3 * 65536 - 4, 4) == b"last"
    assert fresh.call(Export.INIT, 1) == 3
    fresh.write_memory(4 * 65536 - 4, b"more")


def test_traps_work_in_a_clone(counter: Instance) -> None:
    for clone in (fork(counter)[0], start_from(take_snapshot(counter))):
        with pytest.raises(TrapError) as caught:
            clone.call(Export.POST)
        assert caught.value.detail["trap"] == "out_of_bounds"
        clone.close()
    assert counter.call(Export.MID) == 1


def test_snapshot_does_not_change_when_its_guests_do(counter: Instance) -> None:
    counter.write_memory(0, b"A" * 65536)
    snapshot = take_snapshot(counter)
    assert snapshot.nbytes == 65536
    counter.write_memory(0, b"B" * 65536)
    one = start_from(snapshot)
    one.write_memory(0, b"C" * 65536)
    counter.close()
    two = start_from(snapshot)
    assert two.read(0, 65536) == b"A" * 65536
    assert one.read(0, 65536) == b"C" * 65536
    one.close()
    two.close()


def test_file_of_a_snapshot_is_sealed(counter: Instance) -> None:
    counter.write_memory(0, b"x")
    image = take_snapshot(counter).image
    assert image is not None
    for change in (
        lambda fd: os.pwrite(fd, b"y", 0),
        lambda fd: os.ftruncate(fd, 0),
        lambda fd: os.ftruncate(fd, 1 << 20),
    ):
        with pytest.raises(PermissionError):
            change(image.file.fd)


def test_forking_a_much_changed_parent_gives_it_a_new_base(counter: Instance) -> None:
    counter.call(Export.INIT, 15)
    assert counter.base_image is None
    few = fork(counter)[0]
    assert counter.base_image is None
    counter.view[: 1 << 20] = bytes(range(1, 129)) * 8192
    child = fork(counter)[0]
    assert counter.base_image is not None and child.base_image is counter.base_image
    assert counter.read(0, 1 << 20) == child.read(0, 1 << 20) == bytes(range(1, 129)) * 8192
    assert counter.engine.changes.changed(counter.base, counter.base + counter.size) == []
    counter.write_memory(700_000, b"parent")
    child.write_memory(700_000, b"child!")
    grandchild = fork(child)[0]
    assert grandchild.base_image is counter.base_image
    assert (counter.read(700_000, 6), grandchild.read(700_000, 6)) == (b"parent", b"child!")
    assert few.read(0, 1 << 20) == bytes(5000) + b"initial" + bytes((1 << 20) - 5007)
    assert counter.call(Export.MID) == child.call(Export.MID) == 1
    for guest in (few, child, grandchild):
        guest.close()


def test_many_children_at_once_are_independent(counter: Instance) -> None:
    counter.write_memory(100, b"same")
    children = fork(counter, 5)
    for number, child in enumerate(children):
        child.write_memory(200, bytes([number]))
        for _ in range(number):
            child.call(Export.MID)
    assert [c.call(Export.MID) for c in children] == [1, 2, 3, 4, 5]
    assert [c.read(200, 1)[0] for c in children] == list(range(5))
    assert all(c.read(100, 4) == b"same" for c in children)
    assert len({c.seed for c in children}) == 5
    for child in children:
        child.close()


def test_forks_inherit_owner_log_and_clock(counter: Instance) -> None:
    counter.owner, counter.clock_ns = object(), 55
    counter.log = lambda fd, data: None
    child = fork(counter)[0]
    assert (child.owner, child.log, child.clock_ns) == (counter.owner, counter.log, 55)
    assert start_from(take_snapshot(counter)).owner is None
    child.close()


def test_a_failed_guest_cannot_be_cloned(counter: Instance) -> None:
    with pytest.raises(TrapError):
        counter.call(Export.POST)
    for clone in (fork, take_snapshot):
        with pytest.raises(RuntimeFailure):
            clone(counter)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["write", "write", "grow", "fork", "snapshot"]),
            st.integers(0, 40 * PAGE - 1),
            st.integers(1, 3 * PAGE),
        ),
        max_size=14,
    )
)
def test_random_histories_give_the_same_memory_as_plain_copies(
    shared: Program, ops: list[tuple[str, int, int]]
) -> None:
    guest, model = Instance(shared), bytearray(65536)
    model[5000:5007] = b"initial"
    left: list[tuple[Instance, bytes]] = []
    for number, (what, at, length) in enumerate(ops):
        if what == "write":
            data = (b"%d," % number * length)[:length]
            if at + length <= len(model):
                guest.write_memory(at, data)
                model[at : at + length] = data
        elif what == "grow":
            guest.grow(1)
            model += bytes(65536)
        else:
            child = fork(guest)[0] if what == "fork" else start_from(take_snapshot(guest))
            left.append((guest, bytes(model)))
            guest = child
    for old, expected in [*left, (guest, bytes(model))]:
        assert old.read(0, old.size) == expected
        old.close()


@pytest.fixture(scope="module")
def shared(linker: Linker, ticker: Ticker) -> Iterator[Program]:
    program = Program.compile(linker, controller('(data (i32.const 5000) "initial")'))
    yield program
    program.close()


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), max_size=8), st.integers(0, 8))
def test_union_merges_overlapping_and_adjacent_runs(pieces: list[tuple[int, int]], split: int) -> None:
    merged = _union(pieces[:split], pieces[split:])
    covered = {p for at, length in pieces for p in range(at, at + length)}
    assert {p for at, length in merged for p in range(at, at + length)} == covered
    assert all(a + n < b for (a, n), (b, _) in itertools.pairwise(merged))


def test_nonzero_pages_are_found(make: Make) -> None:
    guest = make()
    assert nonzero(guest.base, guest.size) == []
    guest.view[0] = guest.view[PAGE + 5] = guest.view[9 * PAGE] = 1
    assert nonzero(guest.base, guest.size) == [(guest.base, 2 * PAGE), (guest.base + 9 * PAGE, PAGE)]


def test_more_changed_runs_than_one_kernel_call_returns(make: Make) -> None:
    guest = make()
    guest.grow(160)
    expected = range(0, guest.size, 2 * PAGE)
    for at in expected:
        guest.view[at] = 1
    for finder in (PageScanner(), PagemapReader()):
        runs = finder.changed(guest.base, guest.base + guest.size)
        assert [(a - guest.base, n) for a, n in runs] == [(at, PAGE) for at in expected]
        finder.close()
    child = fork(guest)[0]
    assert all(child.view[at] == 1 for at in expected)
    child.close()
