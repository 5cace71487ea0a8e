"""The shared store, in a folder and in an object store: what many writers do, and what it may have in it."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from aicirt.contract.errors import (
    AiciError,
    ModuleError,
    NotOwnerError,
    OwnerLimitError,
    UnknownControllerError,
)
from aicirt.contract.modules import DESCRIBED_NAMES, ControllerInfo
from aicirt.settings import MIN_UPLOAD
from lab.servers.object_store import BUCKET, running_object_store
from pyaici.server import shared_store
from pyaici.server.shared_store import SharedStore, SharedStoreError

LIMIT = 1000


@pytest.fixture(scope="module")
def object_store() -> Iterator[None]:
    with running_object_store() as variables, pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(params=["folder", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return str(tmp_path / "shared")
    request.getfixturevalue("object_store")
    return f"s3://{BUCKET}/{tmp_path.name}"


@pytest.fixture
def store(url: str) -> SharedStore:
    return SharedStore(url, max_bytes=10_000)


def put(store: SharedStore, content: bytes, owner: str = "ada") -> str:
    info = ControllerInfo(hashlib.sha256(content).hexdigest(), len(content), compiled_size=7)
    store.put(info, content, owner, limit=LIMIT * MIN_UPLOAD)
    return info.id


def test_controllers_are_found_by_all_replicas(store: SharedStore, url: str) -> None:
    first, second = put(store, b"first"), put(store, b"second", "bob")
    put(store, b"first", "bob")
    store.tag("mine", first, "ada", LIMIT)
    other = SharedStore(url, 10_000)
    assert other.content(other.resolve(first)) == other.content(other.resolve("mine")) == b"first"
    assert other.resolve(second[:12]).id == second
    found = other.describe(other.resolve("mine"))
    assert (found.owners, found.tags, found.compiled_size) == (["ada", "bob"], ["mine"], 7)
    assert found.created > 0
    for name in ("other", "0" * 64, second[:8], "../x", "a/b", ""):
        with pytest.raises(UnknownControllerError):
            other.resolve(name)
    both = sorted((first, second))
    assert [info.id for info in other.page("", 10, None)] == both
    assert [info.id for info in other.page(both[0], 10, None)] == both[1:]
    assert [info.id for info in other.page("", 1, "bob")] == both[:1]
    assert [info.id for info in other.page("", 10, "eve")] == [first], "it has a tag"


def test_owners_and_tags_keep_a_controller(store: SharedStore) -> None:
    id = put(store, b"x")
    put(store, b"x", "bob")
    store.tag("one", id, "ada", LIMIT)
    with pytest.raises(NotOwnerError):
        store.remove(id, "eve")
    with pytest.raises(ModuleError, match="still has the tags one"):
        store.remove(id, "ada")
    with pytest.raises(NotOwnerError):
        store.tag("one", id, "bob", LIMIT)
    with pytest.raises(NotOwnerError):
        store.untag("one", "bob")
    assert not store.remove(id, "bob")
    store.untag("one", "ada")
    with pytest.raises(UnknownControllerError):
        store.untag("one", "ada")
    store.tag("one", id, "bob", LIMIT)  # the name is free
    store.untag("one", "root", force=True)
    assert store.remove(id, "ada") and not store.page("", 10, None)
    with pytest.raises(UnknownControllerError):
        store.remove(id, "ada")
    again = put(store, b"x")
    store.tag("one", again, "ada", LIMIT)
    assert store.remove(again, "root", force=True) and store.tagged("one") is None


def test_a_user_has_so_many_tags_at_most(store: SharedStore) -> None:
    id = put(store, b"x")
    for name in ("a", "b", "a"):
        store.tag(name, id, "ada", limit=2)
    with pytest.raises(OwnerLimitError):
        store.tag("c", id, "ada", limit=2)
    assert store.tagged("c") is None
    store.untag("a", "ada")
    store.tag("c", id, "ada", limit=2)
    store.untag("c", "root", force=True)  # what others take away does not count either
    store.tag("d", id, "ada", limit=2)


@pytest.mark.parametrize("seed", range(3))
def test_changes_of_a_tag_at_once_follow_each_other(url: str, seed: int) -> None:
    """Each writer has a store of its own, as replicas do; none may overwrite another one's change."""
    ids = [put(SharedStore(url, 10_000), bytes([number])) for number in range(4)]
    made: list[tuple[int, str]] = []
    rng = random.Random(seed)
    choices = [[rng.choice(ids) for _ in range(8)] for _ in range(4)]

    def write(mine: list[str]) -> None:
        replica = SharedStore(url, 10_000)
        create = replica._create

        def counted(path: str, data: bytes, *, replace: bool = False) -> bool:
            won = create(path, data, replace=replace)
            if won and path.startswith("tags/"):
                made.append((int(path.rpartition("/")[2]), json.loads(data)["module"]))
            return won

        replica._create = counted  # type: ignore[method-assign]
        for id in mine:
            replica.tag("hot", id, "ada", LIMIT)

    writers = [threading.Thread(target=write, args=(mine,)) for mine in choices]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(id for _, id in made) == sorted(id for mine in choices for id in mine)
    replica = SharedStore(url, 10_000)
    assert replica.tagged("hot") == max(made)[1]
    assert len(replica._objects("tags/hot/")) <= shared_store._KEPT + len(writers), "old ones are removed"


def test_what_is_removed_meanwhile_hides_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another replica removes a tag, and with it a folder, while a controller is looked up."""
    store = SharedStore(str(tmp_path), 10_000)
    id = put(store, b"x")
    store.tag("t", id, "ada", LIMIT)
    lstat = Path.lstat

    def after_removal(path: Path) -> os.stat_result:
        shutil.rmtree(tmp_path / "controllers" / id / "tags", ignore_errors=True)
        return lstat(path)

    monkeypatch.setattr(Path, "lstat", after_removal)
    assert store.entry(id).tags == []


def test_what_the_store_has_is_checked(tmp_path: Path) -> None:
    """A program that can write there, or a bad disk, must not decide what an id means, nor fill memory."""
    store = SharedStore(str(tmp_path), max_bytes=10)
    id = put(store, b"x")
    folder = tmp_path / "controllers" / id
    entry = store.entry(id)
    (folder / "module.wasm").write_bytes(b"y")
    with pytest.raises(SharedStoreError, match="is damaged"):
        store.content(entry)
    (folder / "module.wasm").write_bytes(b"x" * 11)
    with pytest.raises(SharedStoreError, match="more than 10 bytes"):
        store.content(entry)
    (folder / "module.wasm").unlink()
    with pytest.raises(UnknownControllerError):
        store.content(entry)
    with pytest.raises(UnknownControllerError):
        store.resolve(id)
    (folder / "info.json").write_text('{"id": 1}')
    with pytest.raises(SharedStoreError, match="description"):
        store.describe(entry)
    for record in ("", "[]", '{"module": "../x", "owner": "ada"}', '{"module": "", "owner": 5}', " " * 2000):
        (tmp_path / "tags" / "bad").mkdir(parents=True, exist_ok=True)
        (tmp_path / "tags" / "bad" / "0000000001").write_text(record)
        with pytest.raises(SharedStoreError):
            store.resolve("bad")
    for name in ("x", "1", "9" * 16, "9" * 200, "\u0661" * 10):  # what is no change is not read
        (tmp_path / "tags" / "other").mkdir(exist_ok=True)
        (tmp_path / "tags" / "other" / name).write_text("")
    with pytest.raises(SharedStoreError, match="damaged"):
        store.tagged("other")
    (tmp_path / "controllers" / "x").mkdir()
    assert store.page("", 10, None) == []


def test_nothing_is_reached_through_links(tmp_path: Path) -> None:
    """Files elsewhere, which the server may use, are not for those who can write to the folder."""
    store, elsewhere = SharedStore(str(tmp_path / "store"), max_bytes=10), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "module.wasm").write_bytes(b"x")
    (elsewhere / "owners").mkdir()
    (elsewhere / "owners" / "ada").write_text("")
    id = hashlib.sha256(b"x").hexdigest()
    other = put(store, b"other")
    (tmp_path / "store" / "controllers" / id).symlink_to(elsewhere)
    (tmp_path / "store" / "tags").mkdir()
    (tmp_path / "store" / "tags" / "mine").symlink_to(elsewhere)
    with pytest.raises(SharedStoreError):
        store.remove(id, "ada", force=True)
    with pytest.raises(SharedStoreError):
        put(store, b"x")
    with pytest.raises(SharedStoreError):
        store.tag("mine", other, "ada", LIMIT)
    assert [info.id for info in store.page("", 10, None)] == [other]
    assert sorted(path.name for path in elsewhere.rglob("*")) == ["ada", "module.wasm", "owners"]


@pytest.mark.parametrize("kind", ["fifo", "zeros", "link"])
def test_only_regular_files_are_opened(tmp_path: Path, kind: str) -> None:
    """A FIFO would hold a thread for ever, and a device fill the memory."""
    store = SharedStore(str(tmp_path), max_bytes=10)
    id = put(store, b"x")
    entry = store.entry(id)
    content = tmp_path / "controllers" / id / "module.wasm"
    content.unlink()
    if kind == "fifo":
        os.mkfifo(content)
    else:
        content.symlink_to("/dev/zero" if kind == "zeros" else "info.json")
    for ask in (store.content, lambda entry: store.entry(entry.id)):
        with pytest.raises(UnknownControllerError):
            ask(entry)


def test_names_that_no_object_has_hide_nothing(tmp_path: Path) -> None:
    store = SharedStore(str(tmp_path), max_bytes=10)
    id, damaged = put(store, b"x"), put(store, b"y")
    folder = tmp_path / "controllers"
    (folder / damaged / "info.json").write_text(json.dumps({"id": damaged, "size": "1" * 1000}))
    (folder / id / "loop").symlink_to(folder)
    (folder / "stray").write_text("")
    (folder / id / "owners" / "a\nb").write_text("")
    (folder / id / os.fsdecode(b"\xff")).write_text("")
    assert [(info.id, info.owners) for info in store.page("", 10, None)] == [(id, ["ada"])]
    for name in ("..", ".", f"../controllers/{id}", f"{id}/owners"):
        with pytest.raises(UnknownControllerError):
            store.entry(name)


def test_what_is_damaged_can_be_uploaded_again(store: SharedStore) -> None:
    id = put(store, b"x")
    for name in ("module.wasm", "info.json"):
        store._create(f"controllers/{id}/{name}", b"[", replace=True)
    with pytest.raises(SharedStoreError):
        store.content(store.entry(id))
    put(store, b"x")
    assert store.content(store.entry(id)) == b"x" and store.describe(store.entry(id)).id == id


def test_tags_leave_nothing_with_the_controllers_that_they_have_left(store: SharedStore) -> None:
    """Each would be looked up whenever anybody lists controllers."""
    first, second = put(store, b"1"), put(store, b"2")
    for name in ("a", "b"):
        store.tag(name, first, "ada", LIMIT)
        store.tag(name, second, "ada", LIMIT)
        store.untag(name, "ada")
    store.tag("mine", first, "ada", LIMIT)
    with pytest.raises(NotOwnerError):
        store.tag("mine", second, "eve", LIMIT)
    assert (store.entry(first).tags, store.entry(second).tags) == (["mine"], [])
    assert store._names("users/eve/tags/") == [] and store._names("users/ada/tags/") == ["mine"]


def test_a_description_looks_up_a_bounded_number_of_tags(tmp_path: Path) -> None:
    store = SharedStore(str(tmp_path), max_bytes=10)
    id = put(store, b"x")
    for number in range(100):
        store._create(f"controllers/{id}/tags/t{number}", b"")
        store._create(f"controllers/{id}/owners/u{number}", b"")
    asked: list[str] = []
    store._newest = asked.append  # type: ignore[assignment]
    info = store.describe(store.entry(id))
    assert len(asked) == len(info.owners) == DESCRIBED_NAMES


def test_a_tag_with_endless_versions_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_store, "_MAX_OBJECTS", 20)
    store = SharedStore(str(tmp_path), max_bytes=10)
    for number in range(21):
        store._create(f"tags/many/x{number}", b"")
    with pytest.raises(SharedStoreError, match="more than 20 objects"):
        store.tagged("many")


def test_uploads_of_a_user_count_together(store: SharedStore, url: str) -> None:
    """At whatever replica, and after its restart."""

    def upload(content: bytes, owner: str = "ada") -> str:
        info = ControllerInfo(hashlib.sha256(content).hexdigest(), len(content))
        SharedStore(url, 10_000).put(info, content, owner, limit=2 * MIN_UPLOAD)
        return info.id

    first, _ = upload(b"1"), upload(b"2")
    upload(b"1")
    with pytest.raises(OwnerLimitError, match="owner_upload_bytes"):
        upload(b"3")
    upload(b"3", "bob")
    store.remove(first, "ada")
    third = upload(b"3")
    store.remove(third, "root", force=True)
    upload(b"4")
    assert len(store._names("users/ada/uploads/")) == 2 and not store._names("users/bob/uploads/")


def test_a_page_reads_no_further_than_it_is_long(store: SharedStore) -> None:
    ids = sorted(put(store, bytes([number])) for number in range(60))
    read: list[str] = []
    list_objects = store._store.listed

    def counted(folder: str, after: str = "") -> Iterator[tuple[str, float]]:
        for path, time in list_objects(folder, after):
            read.append(path)
            yield path, time

    store._store.listed = counted  # type: ignore[method-assign]
    assert [info.id for info in store.page(ids[9], 2, None)] == ids[10:12]
    assert store.resolve(ids[30][:12]).id == ids[30]
    assert len(read) < 60, "all have 180 objects"


def test_a_store_that_cannot_be_used_is_named(tmp_path: Path, object_store: None) -> None:
    (tmp_path / "file").write_text("")
    for url in (f"{tmp_path}/file/x", "s3://no-such-bucket/x", "ftp://host/x", "s3://"):
        with pytest.raises(SharedStoreError, match="cannot be opened"):
            SharedStore(url, 10)
    assert issubclass(SharedStoreError, AiciError)


def test_a_full_store_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tag of a user whose next write fails is what it was. The full disk is a stand-in."""
    store = SharedStore(str(tmp_path), 10)
    first, second = put(store, b"1"), put(store, b"2")
    store.tag("mine", first, "ada", LIMIT)
    put_object = store._store.write_object

    def full(path: str, data: bytes, *, replace: bool) -> bool:
        if path.startswith("tags/"):
            raise OSError(28, "No space left on device")
        return put_object(path, data, replace=replace)

    monkeypatch.setattr(store._store, "write_object", full)
    with pytest.raises(SharedStoreError, match="No space left"):
        store.tag("mine", second, "ada", LIMIT)
    monkeypatch.undo()
    assert store.tagged("mine") == first
    assert store.describe(store.entry(second)).tags == []
