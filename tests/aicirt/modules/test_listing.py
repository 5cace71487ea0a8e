"""Lists of stored modules: bounded descriptions and pages."""

from __future__ import annotations

import json
from pathlib import Path

import msgpack
import pytest
from wasmtime import wat2wasm

from aicirt.contract.modules import DESCRIBED_CHARACTERS, DESCRIBED_NAMES, StoredScript
from aicirt.modules.store import ModuleStore
from aicirt.settings import LIST_PAGE_BYTES, MAX_DESCRIPTION
from tests.aicirt.modules.wat import small_module


@pytest.fixture
def store(tmp_path: Path) -> ModuleStore:
    return ModuleStore(tmp_path / "store")


def with_exports(count: int, length: int) -> bytes:
    """Returns a controller with `count` more exports, whose names have `length` characters."""
    more = "".join(f'(export "{number:0{length}d}" (func 0))' for number in range(count))
    return bytes(
        wat2wasm(
            f"""(module (func (export "aici_abi_v1")) {more} (memory (export "memory") 1)
            (func (export "aici_arg") (result i32) (i32.const 16))
            (func (export "aici_mid_process") (result i32) (i32.const 1)))"""
        )
    )


def stored_scripts(store: ModuleStore, count: int, owner: str = "ann") -> list[str]:
    interpreter = store.add(small_module(), owner).id
    scripts = [StoredScript(interpreter, "python", "s", f"# {owner} {n}") for n in range(count)]
    return sorted([interpreter, *(store.add_script(script, owner).id for script in scripts)])


def test_descriptions_are_bounded(store: ModuleStore) -> None:
    info = store.add(with_exports(490, 130), "ann")
    assert len(info.exports) == DESCRIBED_NAMES and info.more_exports == 494 - DESCRIBED_NAMES
    assert {"aici_abi_v1", "aici_arg", "aici_mid_process", "memory"} < set(info.exports)
    assert max(map(len, info.exports)) == DESCRIBED_CHARACTERS
    assert info.exports[-1].endswith("... (130 characters)")
    assert len(msgpack.packb(info.to_wire())) < 20_000
    assert [found.id for found in store.list()] == [info.id]
    plain = store.add(with_exports(2, 5), "ann")
    assert plain.exports[:3] == ["aici_abi_v1", "00000", "00001"] and plain.more_exports == 0


def test_oversized_description_is_ignored_and_made_again(store: ModuleStore) -> None:
    info = store.add(small_module())
    path = store.artifact_path(info.id).with_suffix(".json")
    wire = {**info.to_wire(), "exports": ["x" * MAX_DESCRIPTION]}
    path.write_text(json.dumps(wire))
    assert store.list() == []
    assert store.get(info.id).exports == info.exports and store.list() == [info]


def test_pages_contain_every_module_once(store: ModuleStore) -> None:
    ids = stored_scripts(store, 30)
    found: list[str] = []
    while page := store.page(found[-1] if found else "", 7):
        assert len(page) <= 7
        found += [info.id for info in page]
    assert found == ids == [info.id for info in store.list()] and store.count() == 31
    assert store.page("f" * 64) == [] and store.page("zz") == []
    assert [info.id for info in store.page("", 3)] == ids[:3]


def test_pages_are_bounded_in_bytes(store: ModuleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = stored_scripts(store, 10)
    assert len(store.page()) == 11 and LIST_PAGE_BYTES >= 1 << 20
    monkeypatch.setattr("aicirt.modules.store.LIST_PAGE_BYTES", 4000)
    assert [info.id for info in store.page()] == ids[:4]
    monkeypatch.setattr("aicirt.modules.store.LIST_PAGE_BYTES", 1)
    assert len(store.page()) == 1, "a page has at least one entry, so that listing ends"


def test_owner_finds_own_and_tagged_modules(store: ModuleStore) -> None:
    mine = stored_scripts(store, 3)
    theirs = StoredScript(store.add(small_module(1), "bob").id, "python", "s", "# bob")
    shown = store.add_script(theirs, "bob").id
    assert [info.id for info in store.page(found_by="ann")] == mine
    store.tag("shown", shown, "bob")
    assert [info.id for info in store.page(found_by="ann")] == sorted([*mine, shown])
    assert [info.id for info in store.page(found_by="eve")] == [shown]
    assert len(store.page()) == 6
