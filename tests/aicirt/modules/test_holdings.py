"""On whose account what is stored counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from aicirt.contract.modules import StoredScript
from aicirt.modules import ModuleStore
from aicirt.settings import LEAST_UPLOAD
from tests.aicirt.modules.wat import small_module


@pytest.fixture
def store(tmp_path: Path) -> ModuleStore:
    return ModuleStore(tmp_path / "store")


def accounts(store: ModuleStore) -> dict[str, int]:
    """In units of the least that anything counts."""
    return {name: store.ownership.bytes_of(name) // LEAST_UPLOAD for name in ("ann", "bob", "cleo")}


def test_the_first_to_upload_has_it_on_their_account(store: ModuleStore) -> None:
    one, two = store.add(small_module(1), "ann").id, store.add(small_module(2), "bob").id
    store.add(small_module(1), "bob")
    assert accounts(store) == {"ann": 1, "bob": 1, "cleo": 0}
    store.remove(one, "ann")
    assert accounts(store) == {"ann": 0, "bob": 2, "cleo": 0}
    for module in (one, two):
        store.remove(module, "bob")
    assert accounts(store) == {"ann": 0, "bob": 0, "cleo": 0}


def test_what_is_kept_counts_for_who_keeps_it(store: ModuleStore) -> None:
    """Nobody stores more by having others name it."""
    module = store.add(small_module(1), "ann").id
    script = store.add_script(StoredScript(module, "python", "s", "# x"), "cleo").id
    store.tag("t", module, "bob")
    assert not store.remove(module, "ann")
    assert accounts(store) == {"ann": 0, "bob": 1, "cleo": 1}
    assert store.untag("t", "bob") is None
    assert accounts(store) == {"ann": 0, "bob": 0, "cleo": 2}
    assert store.remove(script, "cleo") and store.count() == 0


def test_large_files_count_as_they_are(store: ModuleStore) -> None:
    wasm = small_module() + b"\0" + b"\x83\x80\x08" + b"\x02xx" + bytes(131072)
    store.add(wasm, "ann")
    assert store.ownership.bytes_of("ann") == len(wasm)
    assert ModuleStore(store.code.parent).ownership.bytes_of("ann") == len(wasm), "another process sees it"
