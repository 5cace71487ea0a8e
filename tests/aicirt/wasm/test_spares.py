"""A guest that starts in the place of an ended one has the state of a new guest."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aicirt.contract.errors import TrapError
from aicirt.settings import WASM_PAGE
from aicirt.system.files import SEALS
from aicirt.wasm import Export, Fiber, Instance, WasmEngine
from aicirt.wasm.image import Shell
from aicirt.wasm.memory import PAGE, PageScanner, change_finder, page_faults
from aicirt.wasm.program import Snapshot
from aicirt.wasm.snapshot import fork, map_readonly, start_from, take_snapshot
from aicirt.wasm.spares import _MAX_CHANGED, _MAX_COPIED

Make = Callable[..., Instance]
#: `aici_pre_process` counts in a global, `aici_post_process` traps, `aici_init` grows the memory
BODY = """(global $n (mut i32) (i32.const 5))
  (data (i32.const 5000) "initial")
  (func (export "aici_pre_process") (result i32)
    (global.set $n (i32.add (global.get $n) (i32.const 1))) (global.get $n))
  (func (export "aici_post_process") (result i32) unreachable)
  (func (export "aici_init") (param i32) (result i32) (memory.grow (local.get 0)))"""
WORDS = bytes(range(256)) * 200
#: pages of `snapshot_of`, and then the vocabulary
OWN_PAGES = 21
DATA = 9 * WASM_PAGE


@pytest.fixture(autouse=True, params=["scan", "read"])
def spares(request: pytest.FixtureRequest, engine: WasmEngine) -> Iterator[None]:
    """Keeps up to two spare guests; once for each way to find changed pages."""
    usual, engine.changes = engine.changes, change_finder(use_scan=request.param == "scan")
    engine.spares.limit = 2
    yield
    engine.spares.limit = 0
    engine.changes.close()
    engine.changes = usual


@pytest.fixture
def words() -> Iterator[int]:
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.write(fd, WORDS)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    yield fd
    os.close(fd)


@pytest.fixture
def base(make: Make, words: int) -> Snapshot:
    """Returns the snapshot of a guest with data of its own, memory that it has not used, and a vocabulary."""
    guest = make(BODY)
    guest.call(Export.INIT, OWN_PAGES - 1)
    guest.write_memory(DATA, b"from init")
    map_readonly(guest, words, len(WORDS))
    return take_snapshot(guest)


def live(state: Snapshot) -> list[Shell]:
    return [shell for shell in state.program.spares if shell.store]


def contents(guest: Instance) -> bytes:
    return guest.read(0, guest.size)


def test_next_guest_has_the_state_of_a_new_one(base: Snapshot) -> None:
    new, ended = start_from(base), start_from(base)
    store, (vocabulary,) = ended.store, base.mappings
    ended.owner, ended.clock_ns, ended.forks = object(), 7, 3
    assert ended.call(Export.PRE) == 6
    for address in (0, 5000, 3 * WASM_PAGE, DATA, OWN_PAGES * WASM_PAGE - 1, vocabulary.address + PAGE):
        ended.write_memory(address, b"x")
    ended.close()
    assert ended.store == 0 and len(ended.view) == 0
    again = start_from(base)
    assert again.store == store
    assert contents(again) == contents(new) and WORDS in contents(again)
    if isinstance(
        again.engine.changes, PageScanner
    ):  # nothing was copied, as the vocabulary had changed, too
        assert again.changed_bytes() == 0
    assert (again.owner, again.clock_ns, again.forks) == (None, 0, 0)
    assert again.call(Export.PRE) == new.call(Export.PRE) == 6
    child = fork(again)[0]
    assert child.call(Export.PRE) == 7 and child.read(DATA, 9) == b"from init"
    for guest in (child, new, again):
        guest.close()


@pytest.mark.parametrize(("pages", "copied"), [(_MAX_COPIED // PAGE, True), (_MAX_COPIED // PAGE + 1, False)])
def test_few_pages_are_copied_so_that_the_next_guest_can_change_them_without_faults(
    base: Snapshot, pages: int, copied: bool
) -> None:
    new, ended = start_from(base), start_from(base)
    assert base.image is not None
    first = (base.image.nbytes // PAGE - 2) * PAGE  # some pages of the image, and some after it
    for number in range(pages):
        ended.write_memory(first + number * PAGE, b"x")
    ended.close()
    again = start_from(base)
    assert contents(again) == contents(new)
    faults = page_faults()
    for number in range(pages):
        again.write_memory(first + number * PAGE, b"y")
    assert (page_faults() - faults < pages / 2) == copied
    for guest in (new, again):
        guest.close()


def test_a_spare_guest_has_all_of_the_vocabulary_mapped(base: Snapshot, engine: WasmEngine) -> None:
    """Also if the guests before it have not touched it."""

    def faults(guest: Instance) -> int:
        view, at = guest.view, guest.mappings[0].address
        before = page_faults()
        assert view[at] == WORDS[0]
        return page_faults() - before

    new = start_from(base)
    assert faults(new) == 1
    new.close()
    engine.spares.clear()
    start_from(base).close()
    again = start_from(base)
    assert faults(again) == 0
    again.close()


def test_a_snapshot_of_a_spare_guest_has_no_pages_that_only_earlier_guests_used(base: Snapshot) -> None:
    """Arguments are compiled one after the other in the same memory, more of which is kept than usually."""
    sizes = []
    for pages in (100, 1, 1):
        guest = start_from(base)
        for number in range(pages):
            guest.write_memory((OWN_PAGES - 8) * WASM_PAGE + number * PAGE, b"x")
        taken = take_snapshot(guest)
        sizes.append(taken.nbytes)
        again = start_from(taken)
        assert contents(again) == contents(guest)
        again.close()
        guest.close(reserved=True)
    assert sizes[1] == sizes[2] and sizes[0] == sizes[1] + 99 * PAGE


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, OWN_PAGES * WASM_PAGE + len(WORDS) - 1), st.binary(max_size=40))))
def test_no_write_of_the_ended_guest_is_seen(base: Snapshot, writes: list[tuple[int, bytes]]) -> None:
    ended = start_from(base)
    before, store = contents(ended), ended.store
    for address, data in writes:
        ended.write_memory(address, data)
    ended.close()
    again = start_from(base)
    assert again.store == store and contents(again) == before
    again.close()


def grows(guest: Instance) -> None:
    guest.call(Export.INIT, 1)


def traps(guest: Instance) -> None:
    with pytest.raises(TrapError):
        guest.call(Export.POST)


def is_cancelled(guest: Instance) -> None:
    Fiber(guest, Export.PRE)


def changes_much(guest: Instance) -> None:
    for address in range(0, _MAX_CHANGED + 1, PAGE):
        guest.write_memory(address, b"x")


@pytest.mark.parametrize("do", [grows, traps, is_cancelled, changes_much])
def test_guest_that_cannot_have_this_state_again_is_freed(base: Snapshot, do: Callable[..., None]) -> None:
    guest = start_from(base)
    do(guest)
    guest.close()
    assert not live(base)


def test_guest_with_a_mapping_or_a_base_of_its_own_is_freed(make: Make, words: int) -> None:
    guest = make(BODY)
    guest.write_memory(DATA % WASM_PAGE, b"x")
    base = take_snapshot(guest)
    mapped, forked = start_from(base), start_from(base)
    map_readonly(mapped, words, len(WORDS))
    mapped.close()
    assert not live(base)
    forked.base_image = take_snapshot(guest).image
    forked.close()
    assert not live(base)


PASSIVE = """(data $d "passive")
  (func (export "aici_post_process") (result i32)
    (memory.init $d (i32.const 300) (i32.const 0) (i32.const 7)) (data.drop $d) (i32.const 0))"""
#: `aici_post_process` throws an exception and keeps it in a local
THROWS = """(tag $t (param i64))
  (func (export "aici_post_process") (result i32) (local exnref)
    (block $h (result i64 exnref)
      (try_table (catch_ref $t $h) (i64.const 1) (throw $t)) unreachable)
    (local.set 0) (drop) (ref.is_null (local.get 0)))"""


@pytest.mark.parametrize("module", [PASSIVE, THROWS])
def test_guest_with_state_besides_memory_and_globals_is_freed(make: Make, module: str) -> None:
    guest = make(module)
    guest.write_memory(0, b"x")
    base = take_snapshot(guest)
    for _ in range(2):
        ended = start_from(base)
        assert ended.call(Export.POST) == 0
        ended.close()
        assert not live(base)


def test_number_of_spare_guests_is_limited(base: Snapshot, make: Make) -> None:
    other = make(BODY)
    other.write_memory(0, b"x")
    second = take_snapshot(other)
    for snapshot in (base, second, second):
        guests = [start_from(snapshot) for _ in range(2)]
        for guest in guests:
            guest.close()
    assert len(live(base)) + len(live(second)) <= 2
    assert start_from(second).read(0, 1) == b"x"
    assert start_from(base).read(DATA, 9) == b"from init", "its spare guests have been freed"


def test_none_are_kept_without_a_limit(base: Snapshot, engine: WasmEngine) -> None:
    engine.spares.limit = 0
    start_from(base).close()
    assert not live(base)


@pytest.fixture
def state(make: Make, words: int) -> Callable[..., Snapshot]:
    """Returns a function that makes snapshots of one program, with writes and pages after the vocabulary."""
    program = make(BODY).program

    def snapshot_of(
        writes: Sequence[tuple[int, bytes]], *, more: int = 0, own: int = 1, fd: int = words
    ) -> Snapshot:
        guest = Instance(program)
        guest.start()
        guest.call(Export.INIT, own)
        map_readonly(guest, fd, len(WORDS))
        guest.call(Export.INIT, more)
        for address, data in writes:
            if not OWN <= address % (OWN + VOCABULARY + WASM_PAGE) < OWN + VOCABULARY:
                guest.write_memory(address % (guest.size - len(data)), data)
        return take_snapshot(guest)

    return snapshot_of


#: bytes of the pages before the vocabulary in `state`, and of its pages
OWN, VOCABULARY = 2 * WASM_PAGE, -(-len(WORDS) // WASM_PAGE) * WASM_PAGE
WRITES = st.lists(
    st.tuples(st.integers(0, OWN + VOCABULARY + 3 * WASM_PAGE), st.binary(max_size=40)), max_size=8
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(WRITES, WRITES, WRITES, st.integers(0, 2), st.integers(0, 2), st.booleans())
def test_spare_guest_of_another_snapshot_gets_its_state(
    state: Callable[..., Snapshot],
    engine: WasmEngine,
    first: list[tuple[int, bytes]],
    second: list[tuple[int, bytes]],
    later: list[tuple[int, bytes]],
    size: int,
    growth: int,
    forget: bool,
) -> None:
    """Also if the other snapshot is gone: a spare guest does not keep its memory."""
    engine.spares.clear()
    other, wanted = state([(0, b"x"), *first], more=size), state([(1, b"y"), *second], more=size + growth)
    new, ended = start_from(wanted), start_from(other)
    store = ended.store
    for address, data in later:
        ended.write_memory(address % (ended.size - len(data)), data)
    ended.close()
    if forget:
        del other, ended
        assert [shell.image for shell in live(wanted)] == [None]
    again = start_from(wanted)
    assert again.store == store
    assert contents(again) == contents(new)
    assert again.call(Export.PRE) == 6
    child = fork(again)[0]
    assert contents(child) == contents(new) and child.call(Export.PRE) == 7
    assert contents(start_from(take_snapshot(again))) == contents(new)
    for guest in (again, child, new):
        guest.close()
    assert [shell.image for shell in live(wanted)].count(wanted.image) > 0


def test_spare_guest_of_another_program_vocabulary_or_size_is_not_used(
    state: Callable[..., Snapshot], make: Make
) -> None:
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.write(fd, WORDS)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    other = make(BODY)
    other.write_memory(0, b"x")
    kept = state([(0, b"x")], more=1)
    start_from(kept).close()
    for wanted in (
        take_snapshot(other),
        state([(0, b"x")], own=2),
        state([(0, b"x")]),
        state([(0, b"x")], more=1, fd=fd),
    ):
        guest = start_from(wanted)
        assert [shell.image for shell in live(kept)] == [kept.image]
        guest._free()
    os.close(fd)
