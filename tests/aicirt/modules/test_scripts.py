"""Scripts in the store: found as modules are, held as modules are, and run by one."""

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
from aicirt.modules import ModuleStore
from tests.aicirt.modules.wat import small_module


@pytest.fixture
def store(tmp_path: Path) -> ModuleStore:
    return ModuleStore(tmp_path / "cache")


@pytest.fixture
def script(store: ModuleStore) -> StoredScript:
    return StoredScript(store.add(small_module(), "ann").id, "python", "story.py", "x = 1\n")


def test_a_script_is_found_and_described_as_its_interpreter(store: ModuleStore, script: StoredScript) -> None:
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


def test_its_interpreter_runs_with_it_as_the_argument(store: ModuleStore, script: StoredScript) -> None:
    store.tag("story", store.add_script(script, "bob").id, "bob")
    module, argument = store.find_call("story", b'{"n": 3}')
    assert module == script.interpreter
    assert json.loads(argument) == {"script": "x = 1\n", "name": "story.py", "arg": {"n": 3}}
    assert store.find_call(script.interpreter, b"as it is") == (script.interpreter, b"as it is")


def test_without_its_interpreter_there_is_none(store: ModuleStore, script: StoredScript) -> None:
    stored = store.add_script(script, "bob").id
    for interpreter in ("c3" * 32, stored):
        with pytest.raises(ModuleError, match="needs its interpreter"):
            store.add_script(replace(script, interpreter=interpreter), "bob")
    assert store.remove(script.interpreter, "root", force=True)
    with pytest.raises(ModuleError, match=r"'story\.py' needs its .*: upload the script again"):
        store.find_call(stored, b"")
    (left,) = store.list()
    assert (left.id, left.script, left.abi_version) == (stored, "story.py", 0)


def test_an_interpreter_stays_as_long_as_a_script_needs_it(store: ModuleStore, script: StoredScript) -> None:
    gone: list[str] = []
    store.on_gone = gone.append
    other = replace(script, source="x = 2\n")
    for one in (script, other):
        store.add_script(one, "bob")
    assert not store.remove(script.interpreter, "ann"), "scripts need it"
    with pytest.raises(NotOwnerError):
        store.remove(script.id, "ann")
    assert store.remove(script.id, "bob") and gone == [script.id]
    store.tag("story", other.id, "cleo")
    assert not store.remove(other.id, "bob"), "another's tag names it"
    assert gone == [script.id] and store.has(script.interpreter)
    assert store.untag("story", "cleo") == other.id
    assert gone == [script.id, other.id, script.interpreter] and store.list() == []
    assert list(store.code.glob("*.compiled")) == [] and store.claims.read() == {}


def test_an_interpreter_that_somebody_wants_stays(store: ModuleStore, script: StoredScript) -> None:
    store.add_script(script, "bob")
    assert store.remove(script.id, "bob")
    assert [info.id for info in store.list()] == [script.interpreter]


def test_what_is_no_script_is_not_kept(store: ModuleStore, script: StoredScript) -> None:
    with pytest.raises(ModuleError):
        store.add_script(replace(script, source=""), "bob")
    assert [info.id for info in store.list()] == [script.interpreter]


def test_a_damaged_script_is_not_run(store: ModuleStore, script: StoredScript, tmp_path: Path) -> None:
    store.add_script(script, "bob")
    file = tmp_path / "cache" / "modules" / f"{script.id}.script"
    file.write_bytes(replace(script, source="evil").pack())
    with pytest.raises(ModuleError, match=r"damaged \(its file has been changed\): upload it again"):
        store.find_call(script.id, b"")
    again = ModuleStore(tmp_path / "cache")
    assert [info.id for info in again.list()] == [script.interpreter]
    with pytest.raises(ModuleError, match="damaged"):
        asyncio.run(again.describe_async(script.id))
    store.add_script(script, "bob")
    assert store.find_call(script.id, b"")[0] == script.interpreter
    file.write_bytes(b"")
    assert store.remove(script.id, "bob") and not file.exists(), "it can be removed all the same"


def test_what_others_put_into_the_folder_harms_nobody(store: ModuleStore, tmp_path: Path) -> None:
    """Files whose names are right, and whose content is no script."""
    interpreter = store.add(small_module(), "ann").id
    good = {"interpreter": interpreter, "language": "python", "name": "a.py", "source": "x = 1"}
    for change in ({"source": "\ud800"}, {"name": "\ud800"}, {"interpreter": "../../x"}, {"source": 7}, None):
        data = b"x" * (9 << 20) if change is None else json.dumps({**good, **change}).encode()
        name = hashlib.sha256(data).hexdigest()
        (tmp_path / "cache" / "modules" / f"{name}.script").write_bytes(data)
        with pytest.raises(ModuleError, match="damaged"):
            store.find_call(name, b"")
    assert [info.id for info in store.list()] == [interpreter]
    assert store.remove(interpreter, "ann"), "none of them is a script that needs it"


def test_nothing_goes_while_nobody_knows_what_needs_it(
    store: ModuleStore, script: StoredScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add_script(script, "bob")
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
            "no script: not opened"
        )
    assert again.has(script.interpreter)
    assert again.claims.read()[script.interpreter].owners.keys() == {"ann"}, "nothing has changed"
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


def test_a_full_disk_is_told(
    store: ModuleStore, script: StoredScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr("aicirt.modules.files.write_whole", full)
        with pytest.raises(RuntimeFailure, match=r"no module can be kept in .*No space left"):
            store.add_script(script, "bob")
    assert not store.has(script.id) and script.id not in store.claims.read()
