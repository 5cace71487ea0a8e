from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgpack
import pytest

from aicirt.contract.errors import (
    CompileLimitError,
    ModuleError,
    NotOwnerError,
    ProtocolError,
    RuntimeFailure,
    UnknownControllerError,
)
from aicirt.contract.modules import ControllerInfo, StoredScript
from aicirt.modules import store as store_module
from aicirt.modules.compile import CompileLimits
from aicirt.modules.ownership import Claim
from aicirt.modules.store import ModuleStore, default_directory
from aicirt.system.files import is_private_file, let_read, private_directory, write_whole
from aicirt.wasm import Limits, Linker, Program, WasmEngine
from tests.aicirt.modules.wat import small_module as _module


@pytest.fixture
def store(tmp_path: Path) -> ModuleStore:
    return ModuleStore(tmp_path / "cache")


def test_a_module_is_compiled_once(
    store: ModuleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wasm = _module()
    info = store.add(wasm)
    assert info.id == hashlib.sha256(wasm).hexdigest()
    assert (info.size, info.abi_version, info.imports) == (len(wasm), 1, ["aici.stop"])
    assert "aici_mid_process" in info.exports and info.compiled_size > len(wasm)

    def fail(*_args: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(store_module, "compile_in_child", fail)
    assert store.add(wasm) == info
    assert ModuleStore(tmp_path / "cache").get(info.id) == info
    assert store.wasm(info.id) == wasm
    assert store.list() == [info]


def test_stores_with_other_limits_check_modules_again(
    store: ModuleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = store.add(_module())
    strict = ModuleStore(tmp_path / "cache", limits=Limits(memory_bytes=0))
    with pytest.raises(ModuleError, match="more than the limit of 0"):
        strict.add(_module())
    with pytest.raises(ModuleError, match="more than the limit of 0"):
        strict.get(info.id)
    assert strict.list() == [] and store.list() == [info]
    wide = ModuleStore(tmp_path / "cache", limits=Limits(items=10_000))
    assert wide.add(_module()) == info
    for path in (wide, store):
        assert is_private_file(path.artifact_path(info.id))

    def fail(*_args: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(store_module, "compile_in_child", fail)
    assert ModuleStore(tmp_path / "cache", limits=Limits(mid_ms=5)).add(_module()) == info


def test_stored_artifact_needs_the_host_functions_it_imports(store: ModuleStore) -> None:
    info = store.add(_module())
    engine = WasmEngine()
    program_linker = Linker(engine, [])
    with pytest.raises(ModuleError, match="linked"):  # it needs aici.stop
        Program.from_file(program_linker, store.artifact_path(info.id))
    program_linker.close()
    engine.close()


def test_refused_module_leaves_no_files(store: ModuleStore, tmp_path: Path) -> None:
    with pytest.raises(ModuleError):
        store.add(b"\0asm\1\0\0\0")
    with pytest.raises(ModuleError, match="more than the limit"):
        ModuleStore(tmp_path / "cache", limits=Limits(module_bytes=10)).add(_module())
    with pytest.raises(CompileLimitError):
        ModuleStore(tmp_path / "cache", cost=CompileLimits(memory_bytes=0)).add(_module())
    files = [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]
    assert files == []


@pytest.mark.parametrize(
    "damage", ["artifact", "truncated", "info", "no info", "no artifact", "writable", "link"]
)
def test_damaged_or_foreign_artifacts_are_compiled_again(
    store: ModuleStore, tmp_path: Path, damage: str
) -> None:
    info = store.add(_module())
    artifact = store.artifact_path(info.id)
    description = artifact.with_suffix(".json")
    good = artifact.read_bytes()
    if damage == "artifact":
        artifact.write_bytes(good[:-100] + bytes(100))
    elif damage == "truncated":
        artifact.write_bytes(good[:1000])
    elif damage == "info":
        description.write_text("{")
    elif damage == "no info":
        description.unlink()
    elif damage == "no artifact":
        artifact.unlink()
    elif damage == "writable":
        artifact.chmod(0o666)
    elif damage == "link":
        elsewhere = tmp_path / "elsewhere"
        artifact.rename(elsewhere)
        artifact.symlink_to(elsewhere)
    if damage in ("info", "no info"):
        assert store.list() == []
    again = store.get(info.id)
    assert again.id == info.id
    assert is_private_file(artifact)
    assert hashlib.sha256(artifact.read_bytes()).hexdigest() == again.compiled_sha256
    assert len(artifact.read_bytes()) == len(good)


def test_artifact_belongs_to_one_version_of_the_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ModuleStore(tmp_path / "cache")
    info = first.add(_module())
    monkeypatch.setattr(store_module, "REWRITER_VERSION", 999)
    second = ModuleStore(tmp_path / "cache")
    assert second.artifact_path(info.id) != first.artifact_path(info.id)
    assert second.list() == []
    second.get(info.id)
    assert second.artifact_path(info.id).exists() and first.artifact_path(info.id).exists()


def test_a_damaged_module_in_a_shared_store_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    info = ModuleStore(tmp_path / "one", modules=shared).add(_module())
    other = ModuleStore(tmp_path / "two", modules=shared)
    assert other.get(info.id).id == info.id
    third = ModuleStore(tmp_path / "three", modules=shared)
    (shared / f"{info.id}.wasm").write_bytes(_module(1))
    with pytest.raises(UnknownControllerError, match="damaged"):
        third.get(info.id)


def test_directories_that_other_users_can_change_are_refused(tmp_path: Path) -> None:
    ModuleStore(tmp_path / "cache")
    compiled = tmp_path / "cache" / "compiled"
    assert compiled.stat().st_mode & 0o777 == 0o700
    compiled.chmod(0o750)
    with pytest.raises(RuntimeFailure, match="chmod 700"):
        ModuleStore(tmp_path / "cache")
    compiled.chmod(0o700)
    let_read(compiled, os.getgid())
    assert compiled.stat().st_mode & 0o777 == 0o710
    ModuleStore(tmp_path / "cache")  # a group may search the folder, but can read nothing in it
    (tmp_path / "cache").chmod(0o777)
    with pytest.raises(RuntimeFailure, match="can be changed by other users"):
        ModuleStore(tmp_path / "cache")
    (tmp_path / "cache").chmod(0o755)
    ModuleStore(tmp_path / "cache")
    compiled.rename(tmp_path / "moved")
    compiled.symlink_to(tmp_path / "moved")
    with pytest.raises(RuntimeFailure, match="not a link"):
        ModuleStore(tmp_path / "cache")


def test_directories_that_belong_to_others_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs").mkdir(mode=0o700)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(RuntimeFailure, match=f"belongs to user {owner}, not to 12345"):
        private_directory(tmp_path / "theirs")
    assert not is_private_file(Path(__file__))


def test_errors_name_the_unknown_module(store: ModuleStore) -> None:
    for ask in (store.get, store.wasm, store.remove):
        with pytest.raises(UnknownControllerError, match="nothing"):
            ask("nothing")
        with pytest.raises(UnknownControllerError, match="0" * 64):
            ask("0" * 64)


def test_modules_are_found_by_a_prefix_of_their_id(store: ModuleStore, tmp_path: Path) -> None:
    info = store.add(_module())
    assert store.get(info.id[:12]).id == info.id == store.resolve(info.id[:63])
    for name in (info.id[:11], "0" * 12 if info.id[0] != "0" else "1" * 12, info.id[:12].upper(), "*" * 12):
        with pytest.raises(UnknownControllerError, match="no controller"):
            store.resolve(name)
    (tmp_path / "cache" / "modules" / f"{info.id[:12]}{'0' * 52}.wasm").touch()
    with pytest.raises(UnknownControllerError, match="2 modules begin with"):
        store.resolve(info.id[:12])
    with pytest.raises(ModuleError, match="could be taken for the id"):
        store.tag(info.id[:12], info.id)


def test_modules_are_found_by_tag_and_removed(store: ModuleStore) -> None:
    one, two = store.add(_module(1)), store.add(_module(2), "ann")
    store.tag("best", two.id, "ann")
    assert store.get("best").tags == ["best"] and store.get("best").id == two.id
    assert store.wasm("best") == _module(2)
    assert [info.id for info in store.list()] == sorted([one.id, two.id])
    with pytest.raises(ModuleError, match="still has the tags best"):
        store.remove(two.id, "ann")
    store.untag("best", "ann")
    assert store.remove(two.id, "ann")
    assert [info.id for info in store.list()] == [one.id]
    assert not store.artifact_path(two.id).exists()


def test_module_stays_while_an_owner_claims_or_tags_it(store: ModuleStore) -> None:
    begin = time.time()
    wasm = _module(4)
    first = store.add(wasm, "ann")
    assert first.owners == ["ann"] and begin <= first.created <= time.time()
    again = asyncio.run(store.add_async(wasm, "bob"))
    assert again.owners == ["ann", "bob"] and again.created == first.created
    assert store.add(wasm, "ann") == again == asyncio.run(store.describe_async(first.id)) == store.list()[0]
    store.tag("hers", first.id, "cleo")
    with pytest.raises(ModuleError, match=r"owner 'cleo' has not uploaded module .*; 2 other owners have"):
        store.remove(first.id, "cleo")
    assert not store.remove("hers", "ann")
    with pytest.raises(ModuleError, match=r"owner 'ann' has not .*; 1 other owners have"):
        store.remove(first.id, "ann")
    assert not store.remove(first.id, "bob"), "another owner's tag names it"
    assert store.get("hers").owners == [] and store.get("hers").created == first.created
    with pytest.raises(ModuleError, match="no owner is recorded"):
        store.remove(first.id, "bob")
    assert store.add(wasm, "bob").owners == ["bob"]
    store.untag("hers", "cleo")
    assert store.remove(first.id, "bob")
    assert store.list() == [] and not store.has(first.id)
    for ask in (store.get, store.remove):
        with pytest.raises(UnknownControllerError):
            ask(first.id)
    with pytest.raises(UnknownControllerError):
        asyncio.run(store.describe_async(first.id))
    assert store.add(wasm, "cleo").owners == ["cleo"], "nothing is left of earlier claims"


def test_module_kept_only_by_a_tag_is_removed_with_the_tag(store: ModuleStore) -> None:
    kept, other = store.add(_module(8), "ann"), store.add(_module(9), "ann")
    unclaimed = store.add(_module(10))
    for tag, owner in (("a", "bob"), ("b", "cleo")):
        assert store.tag(tag, kept.id, owner) == []
    assert not store.remove(kept.id, "ann")
    assert store.untag("a", "bob") == [] and store.has(kept.id)
    with pytest.raises(NotOwnerError):
        store.tag("b", other.id, "bob")
    assert store.tag("b", other.id, "cleo") == [kept.id], "the last tag of the module has moved"
    assert not store.has(kept.id) and store.ownership.claims(kept.id) == Claim()
    assert not store.artifact_path(kept.id).exists()
    assert store.untag("b", "cleo") == [] and store.has(other.id), "ann still claims it"
    assert store.tag("c", unclaimed.id) == store.untag("c") == []
    assert store.has(unclaimed.id), "a module without any claim stays when its last tag is removed"
    with pytest.raises(UnknownControllerError):
        store.tag("d", kept.id)


def test_force_removes_a_module_with_claims_and_tags_of_others(store: ModuleStore) -> None:
    info, kept = store.add(_module(5), "ann"), store.add(_module(6), "ann")
    for tag, module, owner in (("a", info.id, "ann"), ("b", info.id, "bob"), ("c", kept.id, "bob")):
        store.tag(tag, module, owner)
    with pytest.raises(ModuleError, match="belongs to 'bob'"):
        store.untag("c", "ann")
    assert store.remove("a", "anyone", force=True)
    assert [tag.name for tag in store.ownership.tags()] == ["c"]
    assert [module.id for module in store.list()] == [kept.id] and store.ownership.claims(info.id) == Claim()
    old = store.add(_module(7))  # as if stored before claims existed
    assert (old.owners, old.created) == ([], 0.0)
    assert store.remove(old.id, "ann", force=True)


def test_refused_module_has_no_claims(store: ModuleStore) -> None:
    for add in (store.add, lambda wasm, owner: asyncio.run(store.add_async(wasm, owner))):
        with pytest.raises(ModuleError):
            add(b"\0asm\1\0\0\0", "ann")
    assert store.ownership.claims(hashlib.sha256(b"\0asm\1\0\0\0").hexdigest()) == Claim()


def test_module_uploaded_while_another_owner_removes_it_stays(store: ModuleStore) -> None:
    """Uploads and removes at once, several times: a module whose upload succeeded is stored afterwards."""
    wasm = _module(8)
    module = store.add(wasm, "ann").id
    other = ModuleStore(store.code.parent)
    with ThreadPoolExecutor() as threads:
        for _ in range(5):
            removed = threads.submit(store.remove, module, "ann")
            added = other.add(wasm, "bob")
            removed.result()
            assert store.get(module).owners == added.owners or added.owners == ["ann", "bob"]
            assert store.get(module).owners == ["bob"] and store.wasm(module) == wasm
            store.add(wasm, "ann")
            assert not store.remove(module, "bob")


def test_async_methods_add_and_find_modules(store: ModuleStore) -> None:
    async def both() -> tuple[ControllerInfo, ControllerInfo]:
        return await asyncio.gather(store.add_async(_module(3)), store.add_async(_module(3)))

    one, two = asyncio.run(both())
    assert one == two == asyncio.run(store.get_async(one.id))
    store.artifact_path(one.id).unlink()
    assert asyncio.run(store.get_async(one.id)).id == one.id


def test_descriptions_survive_msgpack_and_json(store: ModuleStore) -> None:
    info = store.add(_module())
    for packed in (msgpack.unpackb(msgpack.packb(info.to_wire())), json.loads(json.dumps(info.to_wire()))):
        assert ControllerInfo.from_wire(packed | {"later": 1}) == info
    with pytest.raises(ProtocolError):
        ControllerInfo.from_wire({"id": "x"})


def test_files_are_written_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_whole(tmp_path / "file", b"old")
    monkeypatch.setattr(os, "fsync", lambda _fd: (_ for _ in ()).throw(OSError("disk")))
    with pytest.raises(OSError, match="disk"):
        write_whole(tmp_path / "file", b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


def test_default_directory_is_in_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AICI_STORE", "/my/own")
    assert default_directory() == Path("/my/own")
    monkeypatch.delenv("AICI_STORE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_directory() == Path("/somewhere/aici/store")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert default_directory() == Path("/home/me/.cache/aici/store")


def test_default_directory_that_cannot_be_written_is_an_error_with_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AICI_STORE")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(RuntimeFailure, match=r"cannot be stored in .*file/aici/store.*; set XDG_CACHE_HOME"):
        ModuleStore()


def test_full_disk_is_an_error_and_leaves_no_files(
    store: ModuleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the last file finds no room: files written before it would stay for ever."""
    write = store_module.write_whole

    def full(path: Path, data: bytes, mode: int = 0o600) -> None:
        if path.suffix == ".json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write(path, data, mode)

    monkeypatch.setattr(store_module, "write_whole", full)
    for add in (store.add, lambda wasm: asyncio.run(store.add_async(wasm))):
        with pytest.raises(RuntimeFailure, match=r"stored in .*cache: .*No space left.*: make room there"):
            add(_module())
        assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    monkeypatch.setattr(store_module, "write_whole", write)
    info = store.add(_module())
    # for a module that is stored already, only the artifact is made again
    for path in store.code.glob(f"{info.id}*"):
        path.unlink()
    monkeypatch.setattr(store_module, "write_whole", full)
    with pytest.raises(RuntimeFailure, match="make room"):
        store.get(info.id)
    assert store.wasm(info.id) == _module()


@pytest.mark.parametrize("kind", [PermissionError, FileNotFoundError])
def test_a_folder_that_has_been_changed_is_an_error_that_says_so(
    store: ModuleStore, monkeypatch: pytest.MonkeyPatch, kind: type[OSError]
) -> None:
    info = store.add(_module(), "ann")

    def refuse(*_: object, **__: object) -> None:
        raise kind(errno.EACCES, "not allowed")

    monkeypatch.setattr(store_module.tempfile, "mkstemp", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    monkeypatch.setattr("aicirt.modules.files.write_whole", refuse)
    script = StoredScript(info.id, "python", "a.py", "async def main(): pass")
    for change in (
        lambda: store.add(_module("7")),
        lambda: store.add_script(script, "ann"),
        lambda: store.remove(info.id, "ann"),
    ):
        with pytest.raises(
            RuntimeFailure, match=r"not allowed: make its folders as they were, with the right"
        ):
            change()
    monkeypatch.undo()
    assert store.remove(info.id, "ann") == [info.id]


def test_a_folder_that_is_missing_is_an_error_that_says_so(store: ModuleStore) -> None:
    folder = store.files._folder
    folder.rename(folder.with_name("away"))
    with pytest.raises(RuntimeFailure, match=r"the folder of modules .* is missing: restore it"):
        store.list()


def test_module_that_cannot_be_opened_is_not_reported_as_unknown(
    store: ModuleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = store.add(_module())

    def too_many(path: Path, *_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    monkeypatch.setattr(os, "open", too_many)
    with pytest.raises(RuntimeFailure, match=r"cannot be read: .*ulimit -n"):
        store.wasm(info.id)
