"""Accounting: to which owner the bytes of a stored module are charged."""

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
    """Returns the charge of each owner, in units of LEAST_UPLOAD, the minimum charge of a module."""
    return {name: store.ownership.bytes_of(name) // LEAST_UPLOAD for name in ("ann", "bob", "cleo")}


def test_first_uploader_is_charged_until_they_remove_the_module(store: ModuleStore) -> None:
    one, two = store.add(small_module(1), "ann").id, store.add(small_module(2), "bob").id
    store.add(small_module(1), "bob")
    assert accounts(store) == {"ann": 1, "bob": 1, "cleo": 0}
    store.remove(one, "ann")
    assert accounts(store) == {"ann": 0, "bob": 2, "cleo": 0}
    for module in (one, two):
        store.remove(module, "bob")
    assert accounts(store) == {"ann": 0, "bob": 0, "cleo": 0}


def test_owner_of_a_tag_or_script_is_charged_for_the_module_it_keeps(store: ModuleStore) -> None:
    """A module is charged to an owner as long as it is stored."""
    module = store.add(small_module(1), "ann").id
    script = store.add_script(StoredScript(module, "python", "s", "# x"), "cleo").id
    store.tag("t", module, "bob")
    assert not store.remove(module, "ann")
    assert accounts(store) == {"ann": 0, "bob": 1, "cleo": 1}
    assert store.untag("t", "bob") is None
    assert accounts(store) == {"ann": 0, "bob": 0, "cleo": 2}
    assert store.remove(script, "cleo") and store.count() == 0


def test_large_files_are_charged_by_size(store: ModuleStore) -> None:
    wasm = small_module() + b"\0" + b"\x83\x80\x08" + b"\x02xx" + bytes(131072)
    store.add(wasm, "ann")
    assert store.ownership.bytes_of("ann") == len(wasm)
    assert ModuleStore(store.code.parent).ownership.bytes_of("ann") == len(wasm), "another process sees it"
