"""Scripts in the store: they are found and kept like modules, and an interpreter, a module, runs them."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aicirt.contract.errors import ModuleError, NotOwnerError, RuntimeFailure
from aicirt.contract.modules import StoredScript
from aicirt.modules.ownership import Claim
from aicirt.modules.store import ModuleStore
from tests.aicirt.modules.wat import small_module


@pytest.fixture
def store(tmp_path: Path) -> ModuleStore:
    return ModuleStore(tmp_path / "cache")


@pytest.fixture
def script(store: ModuleStore) -> StoredScript:
    return StoredScript(store.add(small_module(), "ann").id, "python", "story.py", "x = 1\n")


def test_script_has_a_description_derived_from_its_interpreter(
    store: ModuleStore, script: StoredScript
) -> None:
    info = store.add_script(script, "bob")
    interpreter = store.get(script.interpreter)
    own = {"id": script.id, "size": 6, "compiled_size": 0, "compiled_sha256": "", "owners": ["bob"]}
    about = {"language": "python", "script": "story.py", "interpreter": interpreter.id}
    assert info == replace(interpreter, **own, **about, created=info.created) and info.created > 0
    assert store.add_script(script, "bob") == info == asyncio.run(store.describe_async(script.id))
    assert store.list() == sorted([info, interpreter], key=lambda module: module.id)
    store.tag("story", script.id, "bob")
    assert store.resolve("story") == store.resolve(script.id[:12]) == script.id
    assert asyncio.run(store.describe_async("story")).tags == ["story"]


def test_removing_a_module_reads_no_script_whose_owner_is_known(
    store: ModuleStore, script: StoredScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = store.add(small_module(1), "ann").id
    owned = [replace(script, source=f"x = {number}") for number in range(5)]
    for each in owned:
        store.add_script(each, "ann")
    stored = ModuleStore(tmp_path / "another machine").add(small_module(), "ann")
    foreign = replace(script, source="from elsewhere", interpreter=stored.id)
    store.files.keep_script(foreign)  # as another machine does that shares the folder

    later, read = ModuleStore(tmp_path / "cache"), list[str]()
    script_of = later.files.script

    def reading(module_id: str) -> StoredScript | None:
        read.append(module_id)
        return script_of(module_id)

    monkeypatch.setattr(later.files, "script", reading)
    assert later.remove(other, "ann") == [other] and set(read) <= {foreign.id}
    assert later.remove(script.interpreter, "ann") == [] and later.has(script.interpreter)


def test_find_call_returns_the_interpreter_and_its_argument(store: ModuleStore, script: StoredScript) -> None:
    store.tag("story", store.add_script(script, "bob").id, "bob")
    module, argument = store.find_call("story", b'{"n": 3}')
    assert module == script.interpreter
    assert json.loads(argument) == {"script": "x = 1\n", "name": "story.py", "arg": {"n": 3}}
    assert store.find_call(script.interpreter, b"as it is") == (script.interpreter, b"as it is")


def test_script_without_its_interpreter_cannot_be_added_or_run(
    store: ModuleStore, script: StoredScript
) -> None:
    stored = store.add_script(script, "bob").id
    for interpreter in ("c3" * 32, stored):
        with pytest.raises(ModuleError, match="needs its interpreter"):
            store.add_script(replace(script, interpreter=interpreter), "bob")
    assert store.remove(script.interpreter, "root", force=True)
    with pytest.raises(ModuleError, match=r"'story\.py' needs its .*: upload the script again"):
        store.find_call(stored, b"")
    (left,) = store.list()
    assert (left.id, left.script, left.abi_version) == (stored, "story.py", 0)


def test_interpreter_stays_while_a_script_needs_it(store: ModuleStore, script: StoredScript) -> None:
    other = replace(script, source="x = 2\n")
    for one in (script, other):
        store.add_script(one, "bob")
    assert not store.remove(script.interpreter, "ann"), "scripts need it"
    with pytest.raises(NotOwnerError):
        store.remove(script.id, "ann")
    assert store.remove(script.id, "bob") == [script.id]
    store.tag("story", other.id, "cleo")
    assert not store.remove(other.id, "bob"), "another owner's tag names it"
    assert store.has(script.interpreter)
    assert store.untag("story", "cleo") == [other.id, script.interpreter] and store.list() == []
    assert list(store.code.glob("*.compiled")) == []
    assert store.ownership.claims(script.interpreter) == store.ownership.claims(other.id) == Claim()


def test_claimed_interpreter_stays_when_its_last_script_is_removed(
    store: ModuleStore, script: StoredScript
) -> None:
    store.add_script(script, "bob")
    assert store.remove(script.id, "bob")
    assert [info.id for info in store.list()] == [script.interpreter]


def test_invalid_script_is_not_stored(store: ModuleStore, script: StoredScript) -> None:
    with pytest.raises(ModuleError):
        store.add_script(replace(script, source=""), "bob")
    assert [info.id for info in store.list()] == [script.interpreter]


def test_a_damaged_script_is_not_run(store: ModuleStore, script: StoredScript, tmp_path: Path) -> None:
    store.add_script(script, "bob")
    file = tmp_path / "cache" / "modules" / f"{script.id}.script"
    file.write_bytes(replace(script, source="evil").pack())
    with pytest.raises(ModuleError, match=r"damaged \(the file was changed\): upload it again"):
        store.find_call(script.id, b"")
    again = ModuleStore(tmp_path / "cache")
    assert [info.id for info in again.list()] == [script.interpreter]
    with pytest.raises(ModuleError, match="damaged"):
        asyncio.run(again.describe_async(script.id))
    store.add_script(script, "bob")
    assert store.find_call(script.id, b"")[0] == script.interpreter
    file.write_bytes(b"")
    assert store.remove(script.id, "bob") and not file.exists(), "a damaged script can be removed"


def test_invalid_script_files_in_the_folder_are_ignored(store: ModuleStore, tmp_path: Path) -> None:
    """The files have correct names, and contents that are not valid scripts."""
    interpreter = store.add(small_module(), "ann").id
    good = {"interpreter": interpreter, "language": "python", "name": "a.py", "source": "x = 1"}
    for change in ({"source": "\ud800"}, {"name": "\ud800"}, {"interpreter": "../../x"}, {"source": 7}, None):
        data = b"x" * (9 << 20) if change is None else json.dumps({**good, **change}).encode()
        name = hashlib.sha256(data).hexdigest()
        (tmp_path / "cache" / "modules" / f"{name}.script").write_bytes(data)
        with pytest.raises(ModuleError, match="damaged"):
            store.find_call(name, b"")
    assert [info.id for info in store.list()] == [interpreter]
    assert store.remove(interpreter, "ann"), "no invalid file counts as a script that needs it"


def test_nothing_is_removed_while_scripts_cannot_be_read(
    store: ModuleStore, script: StoredScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add_script(script)  # without an owner, so that only the file says what it needs
    again = ModuleStore(tmp_path / "cache")  # which has not read the script
    opened = os.open

    def short(path: Path, *arguments: Any, **options: Any) -> int:
        if str(path).endswith(".script"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return opened(path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", short)
        with pytest.raises(RuntimeFailure, match="may open no more files"):
            again.remove(script.interpreter, "ann")
        assert [info.id for info in again.list()] == [script.interpreter]
        assert again.find_call(script.interpreter, b"x") == (script.interpreter, b"x"), (
            "a module: script files are not opened"
        )
    assert again.has(script.interpreter)
    assert again.ownership.claims(script.interpreter).owners.keys() == {"ann"}, "nothing has changed"
    assert not again.remove(script.interpreter, "ann")


def test_lists_do_not_read_scripts_again(
    store: ModuleStore, script: StoredScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add_script(script, "bob")
    again = ModuleStore(tmp_path / "cache")
    assert len(again.list()) == 2
    monkeypatch.setattr(StoredScript, "unpack", None)
    for one in (store, again):
        assert len(one.list()) == 2 and asyncio.run(one.describe_async(script.id)).script == "story.py"
    assert store.remove(script.id, "bob") and len(again.list()) == 1


def test_full_disk_is_reported_and_nothing_is_stored(
    store: ModuleStore, script: StoredScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr("aicirt.modules.files.write_whole", full)
        with pytest.raises(RuntimeFailure, match=r"modules cannot be stored in .*No space left"):
            store.add_script(script, "bob")
    assert not store.has(script.id) and store.ownership.claims(script.id) == Claim()
