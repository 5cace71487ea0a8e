"""Claims, tags, and to which owner the bytes of a stored module are charged."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from aicirt.contract.errors import (
    AiciError,
    ModuleError,
    NotOwnerError,
    OwnerLimitError,
    RuntimeFailure,
    UnknownControllerError,
)
from aicirt.contract.modules import StoredScript, looks_like_id
from aicirt.modules import ownership
from aicirt.modules.files import ModuleFiles
from aicirt.modules.ownership import Claim, Ownership, Tag
from aicirt.modules.store import ModuleStore
from aicirt.settings import MIN_UPLOAD
from tests.aicirt.modules.wat import small_module

ONE, TWO, SCRIPT = "1" * 64, "a" * 64, StoredScript("1" * 64, "python", "s", "# x")
OWNERS = ("ann", "bob", "cleo")


@pytest.fixture
def store(tmp_path: Path) -> ModuleStore:
    return ModuleStore(tmp_path / "store")


@pytest.fixture
def owned(tmp_path: Path) -> Ownership:
    """Returns an ownership whose files `ONE` and `TWO` are stored."""
    return made(tmp_path)


def made(root: Path) -> Ownership:
    (root / "files").mkdir(exist_ok=True)
    files = ModuleFiles(root / "files", 1000)
    for module in (ONE, TWO):
        files.keep_wasm(module, b"wasm")
    return Ownership(root, files)


def accounts(store: ModuleStore) -> dict[str, int]:
    """Returns the charge of each owner, in units of MIN_UPLOAD, the minimum charge of a module."""
    return {name: store.ownership.bytes_of(name) // MIN_UPLOAD for name in OWNERS}


# -- charges -------------------------------------------------------------------------------------


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
    assert store.remove(module, "ann") == []
    assert accounts(store) == {"ann": 0, "bob": 1, "cleo": 1}
    assert store.untag("t", "bob") == []
    assert accounts(store) == {"ann": 0, "bob": 0, "cleo": 2}
    assert store.remove(script, "cleo") == [script, module] and store.count() == 0
    assert accounts(store) == {"ann": 0, "bob": 0, "cleo": 0}


def test_large_files_are_charged_by_size(store: ModuleStore) -> None:
    wasm = small_module() + b"\0" + b"\x83\x80\x08" + b"\x02xx" + bytes(131072)
    store.add(wasm, "ann")
    assert store.ownership.bytes_of("ann") == len(wasm)
    assert ModuleStore(store.code.parent).ownership.bytes_of("ann") == len(wasm), "another process sees it"


def test_module_that_another_machine_has_removed_can_be_given_up(store: ModuleStore) -> None:
    module = store.add(small_module(1), "ann").id
    store.files.discard(module)
    assert accounts(store)["ann"] == 1
    with pytest.raises(UnknownControllerError):
        store.remove(module, "ann")
    assert accounts(store)["ann"] == 0


class Model:
    """The same rules over plain rows, each question answered by looking at all of them."""

    def __init__(self) -> None:
        self.stored = {ONE, TWO}
        #: owners in the order of their uploads, by module that has ever been uploaded
        self.claims: dict[str, list[str]] = {}
        self.tags: dict[str, tuple[str, str]] = {}

    def payer(self, module: str) -> str:
        if self.claims.get(module):
            return self.claims[module][0]
        for _, (tagged, owner) in sorted(self.tags.items()):
            if tagged == module:
                return owner
        return self.payer(SCRIPT.id) if module == SCRIPT.interpreter and SCRIPT.id in self.stored else ""

    def sweep(self) -> None:
        """Removes what nothing needs; a script before its interpreter."""
        for module in (SCRIPT.id, ONE, TWO):
            needed = module == SCRIPT.interpreter and SCRIPT.id in self.stored
            tagged = any(found == module for found, _ in self.tags.values())
            if module in self.claims and not self.claims[module] and not tagged and not needed:
                del self.claims[module]
                self.stored.discard(module)

    def apply(self, verb: str, module: str, owner: str, tag: str) -> bool:
        """Returns whether the change is allowed."""
        if verb == "upload":
            self.stored.add(module)
            if owner not in self.claims.setdefault(module, []):
                self.claims[module].append(owner)
            return True
        if verb == "untag":
            if tag not in self.tags or self.tags[tag][1] != owner:
                return False
            del self.tags[tag]
        elif verb == "tag":
            if module not in self.stored or (tag in self.tags and self.tags[tag][1] != owner):
                return False
            self.tags[tag] = module, owner
        else:
            mine = [name for name, row in self.tags.items() if row == (module, owner)]
            if module not in self.stored or owner not in self.claims.get(module, []) or mine:
                return False
            self.claims[module].remove(owner)
        self.sweep()
        return True


CHANGES = st.tuples(
    st.sampled_from(["upload", "tag", "untag", "remove"]),
    st.sampled_from([ONE, TWO, SCRIPT.id]),
    st.sampled_from(OWNERS),
    st.sampled_from(["t", "u"]),
)


#: the second owner of a script then pays for its interpreter, too
PAYERS = ("upload", "ann"), ("upload", "bob"), ("remove", "ann")


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(CHANGES, max_size=25))
@example(changes=[(verb, SCRIPT.id, owner, "t") for verb, owner in PAYERS])
def test_any_changes_leave_what_plain_rows_say(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, str, str, str]]
) -> None:
    root = tmp_path_factory.mktemp("owned")
    owned, model = made(root), Model()
    files = ModuleFiles(root / "files", 1000)
    for verb, module, owner, tag in changes:
        if verb == "upload" and module == SCRIPT.id and ONE not in model.stored:
            continue  # the store requires the interpreter
        allowed = True
        try:
            if verb == "upload":
                with owned.claiming(module, owner):
                    files.keep_script(SCRIPT) if module == SCRIPT.id else files.keep_wasm(module, b"wasm")
            elif verb == "tag":
                owned.tag(tag, module, owner)
            elif verb == "untag":
                owned.untag(tag, owner)
            else:
                owned.remove(module, owner)
        except (ModuleError, UnknownControllerError):
            allowed = False
        assert allowed == model.apply(verb, module, owner, tag), (verb, module, owner, tag)
        assert set(files.ids()) == model.stored
        for each in (ONE, TWO, SCRIPT.id):
            assert set(owned.claims(each).owners) == set(model.claims.get(each, ()))
        assert {row.name: (row.module, row.owner) for row in owned.tags()} == model.tags
        for name in OWNERS:
            paid = [each for each in model.stored if model.payer(each) == name]
            assert owned.bytes_of(name) == len(paid) * MIN_UPLOAD, (name, paid)


# -- claims --------------------------------------------------------------------------------------


def test_claims_keep_the_time_of_the_first_upload(owned: Ownership) -> None:
    assert owned.claims(ONE) == Claim()
    begin = time.time()
    assert owned.claim(ONE, "ann") and owned.claim(ONE, "bob") and not owned.claim("b" * 64, "ann")
    found = owned.claims(ONE)
    assert sorted(found.owners) == ["ann", "bob"]
    assert begin <= found.created == found.owners["ann"] <= found.owners["bob"] <= time.time()
    assert owned.claim(ONE, "ann") and owned.claims(ONE) == found
    assert owned.finds("ann", ONE) and not owned.finds("cleo", ONE)
    owned.tag("t", ONE, "ann")
    assert owned.finds("cleo", ONE)


def test_failed_change_leaves_the_rows_as_they_were(owned: Ownership) -> None:
    owned.claim(ONE, "ann")
    before = owned.claims(ONE)
    with pytest.raises(
        NotOwnerError, match=f"owner 'bob' has not uploaded module {ONE}; 1 other owners have"
    ):
        owned.remove(ONE, "bob")
    with pytest.raises(OSError, match="disk"), owned.claiming(TWO, "ann"):
        raise OSError("disk")
    assert owned.claims(ONE) == before and owned.claims(TWO) == Claim()


# -- tags ----------------------------------------------------------------------------------------


def test_refused_changes_use_one_connection(owned: Ownership) -> None:
    for _ in range(3):
        with pytest.raises(ModuleError):
            owned.tag("not a tag", ONE)
        with pytest.raises(UnknownControllerError):
            owned.untag("none")
    assert len(owned._idle) == 1


def test_tags_are_set_moved_and_removed(owned: Ownership) -> None:
    assert owned.tags() == [] and owned.tagged("b") is None
    owned.tag("b", ONE)
    owned.tag("a.b-c_9", TWO, "ann")
    assert owned.tags() == [Tag("a.b-c_9", TWO, "ann"), Tag("b", ONE)]
    assert owned.tagged("b") == ONE
    owned.tag("b", TWO)
    assert owned.tagged("b") == TWO and owned.tags_of(TWO) == ["a.b-c_9", "b"]
    owned.untag("b")
    assert owned.tagged("b") is None
    with pytest.raises(UnknownControllerError):
        owned.untag("b")


def test_owner_cannot_move_or_remove_another_owners_tag(owned: Ownership) -> None:
    owned.tag("t", ONE, "ann")
    for act in (
        lambda: owned.tag("t", TWO, "bob"),
        lambda: owned.tag("t", TWO),
        lambda: owned.untag("t", "bob"),
    ):
        with pytest.raises(NotOwnerError, match="belongs to 'ann'"):
            act()
    assert owned.tagged("t") == ONE
    owned.tag("t", TWO, "ann")
    owned.tag("free", ONE)
    owned.tag("free", TWO, "bob")
    with pytest.raises(ModuleError):
        owned.tag("free", ONE, "ann")


def test_tags_of_an_owner_are_limited(owned: Ownership) -> None:
    for name in ("t", "u"):
        owned.tag(name, ONE, "ann", 2)
    with pytest.raises(OwnerLimitError, match="owner 'ann' has 2 tags; the limit is 2"):
        owned.tag("v", ONE, "ann", 2)
    owned.tag("u", TWO, "ann", 2)
    owned.tag("v", ONE, "bob", 2)


@pytest.mark.parametrize("name", ["", "A", "-a", ".a", "a/b", "../a", "a b", "a\n", "ä", "g" * 65])
def test_bad_names_are_refused(owned: Ownership, name: str) -> None:
    with pytest.raises(ModuleError, match="a tag has"):
        owned.tag(name, ONE)


@pytest.mark.parametrize("name", ["deadbeef", "20241123", "41d0f2c9aa17", "0" * 63, ONE, TWO])
def test_names_that_could_be_ids_are_refused(owned: Ownership, name: str) -> None:
    with pytest.raises(ModuleError, match="could be taken for the id of a module"):
        owned.tag(name, ONE)
    owned.tag(f"v{name[:40]}", ONE)
    owned.tag(name[:7], ONE)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=70) | st.text("af09zA._- é\n", max_size=70))
def test_names_are_accepted_exactly_if_they_match_the_rules(owned: Ownership, name: str) -> None:
    valid = re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", name) and not looks_like_id(name)
    with contextlib.nullcontext() if valid else pytest.raises(ModuleError):
        owned.tag(name, ONE)
    assert bool(valid) == (owned.tagged(name) == ONE)


# -- the file ------------------------------------------------------------------------------------


def test_concurrent_processes_and_threads_lose_nothing(tmp_path: Path) -> None:
    owned = made(tmp_path)
    code = """
import sys
from pathlib import Path
from aicirt.modules.files import ModuleFiles
from aicirt.modules.ownership import Ownership
root = Path(sys.argv[1])
owned = Ownership(root, ModuleFiles(root / "files", 1000))
for number in range(20):
    owned.tag(f"{sys.argv[2]}-{number}", "1" * 64)
    owned.claim("1" * 64, f"{sys.argv[2]}-{number}")
"""
    running = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), name]) for name in ("x", "y")]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: owned.claim(ONE, f"here-{number}"), range(20)))
    assert [process.wait() for process in running] == [0, 0]
    assert len(owned.tags()) == 40 and len(owned.claims(ONE).owners) == 60


def test_a_change_by_a_process_that_dies_has_not_happened(tmp_path: Path) -> None:
    owned = made(tmp_path)
    owned.tag("t", ONE)
    code = """
import os, sys
from pathlib import Path
from aicirt.modules.files import ModuleFiles
from aicirt.modules.ownership import Ownership
root = Path(sys.argv[1])
owned = Ownership(root, ModuleFiles(root / "files", 1000))
with owned._changing() as db:
    db.execute("PRAGMA cache_size = 1")  # so that rows reach the file before the end
    db.executemany("INSERT INTO tags VALUES (?, ?, ?)", [(f"u{n}", "1" * 64, "x" * 900) for n in range(500)])
    os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == -9
    assert [tag.name for tag in owned.tags()] == ["t"]
    owned.tag("u", ONE)


def test_errors_of_the_file_have_a_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "LOCK_SECONDS", 0.05)
    owned, other = made(tmp_path), made(tmp_path)
    owned.tag("t", ONE)
    with owned.claiming(ONE, "ann"), pytest.raises(RuntimeFailure, match="locked: another process has been"):
        other.tag("u", ONE)
    path = tmp_path / "owners" / "owners.sqlite"
    path.write_bytes(b"nothing" * 1000)
    with pytest.raises(RuntimeFailure, match=f"{path}: .*: it is damaged: restore or remove it"):
        made(tmp_path).tags()
    path.unlink()
    made(tmp_path).tag("t", ONE)


def test_questions_cost_the_same_with_any_number_of_rows(tmp_path: Path) -> None:
    """Counts the steps of SQLite's machine, for one row of an owner and for many of others."""

    def steps(root: Path, others: int) -> list[int]:
        owned = made(root)
        owned.claim(ONE, "ann")
        owned.tag("t", ONE, "ann")
        with owned._changing() as db:
            many = range(others)
            db.executemany("INSERT INTO claims VALUES (?, 'bob', 1)", [(f"m{n}",) for n in many])
            db.executemany("INSERT INTO tags VALUES (?, ?, 'bob')", [(f"n{n}", f"m{n}") for n in many])
            db.executemany("INSERT INTO modules VALUES (?, 1, '', 'bob', 1)", [(f"m{n}",) for n in many])
        counts = []
        for ask in (
            lambda: owned.tagged("t"),
            lambda: owned.tags_of(ONE),
            lambda: owned.claims(ONE),
            lambda: owned.bytes_of("ann"),
            lambda: owned.tag("t", ONE, "ann", 10),
            lambda: owned.claim(ONE, "cleo"),
            lambda: owned.remove(ONE, "cleo"),
        ):
            count = [0]

            def step(count: list[int] = count) -> None:
                count[0] += 1

            (db,) = owned._idle
            db.set_progress_handler(step, 1)
            with contextlib.suppress(AiciError):
                ask()
            db.set_progress_handler(None, 0)
            counts.append(count[0])
        return counts

    (tmp_path / "few").mkdir()
    (tmp_path / "many").mkdir()
    few, many = steps(tmp_path / "few", 4), steps(tmp_path / "many", 4000)
    assert all(few) and few == many


def test_the_file_is_private(owned: Ownership, tmp_path: Path) -> None:
    owned.tag("t", ONE)
    assert (tmp_path / "owners").stat().st_mode & 0o777 == 0o700
    assert sqlite3.connect(tmp_path / "owners" / "owners.sqlite").execute(
        "PRAGMA integrity_check"
    ).fetchone() == ("ok",)
    (tmp_path / "owners").chmod(0o755)
    with pytest.raises(RuntimeFailure, match="is open to other users"):
        made(tmp_path)
