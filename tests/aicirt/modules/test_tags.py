from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aicirt.contract.errors import ModuleError, NotOwnerError, UnknownModuleError
from aicirt.contract.modules import looks_like_id
from aicirt.modules import Tag, Tags, ownership

ONE, TWO = "1" * 64, "a" * 64


@pytest.fixture
def tags(tmp_path: Path) -> Tags:
    return Tags(tmp_path)


def test_tags_are_set_moved_and_removed(tags: Tags) -> None:
    assert tags.list() == []
    assert tags.set("b", ONE) == Tag("b", ONE, "")
    tags.set("a.b-c_9", TWO, "ann")
    assert tags.list() == [Tag("a.b-c_9", TWO, "ann"), Tag("b", ONE)]
    assert tags.modules() == {"a.b-c_9": TWO, "b": ONE}
    tags.set("b", TWO)
    assert tags.modules()["b"] == TWO
    tags.remove("b")
    assert "b" not in tags.modules()
    with pytest.raises(UnknownModuleError):
        tags.remove("b")


def test_owner_cannot_move_or_remove_another_owners_tag(tags: Tags) -> None:
    tags.set("t", ONE, "ann")
    for act in (
        lambda: tags.set("t", TWO, "bob"),
        lambda: tags.set("t", TWO),
        lambda: tags.remove("t", "bob"),
    ):
        with pytest.raises(NotOwnerError, match="belongs to 'ann'"):
            act()
    assert tags.modules()["t"] == ONE
    tags.set("t", TWO, "ann")
    tags.set("free", ONE)
    tags.set("free", TWO, "bob")
    with pytest.raises(ModuleError):
        tags.set("free", ONE, "ann")


@pytest.mark.parametrize("name", ["", "A", "-a", ".a", "a/b", "../a", "a b", "a\n", "ä", "g" * 65])
def test_bad_names_are_refused(tags: Tags, name: str) -> None:
    with pytest.raises(ModuleError, match="a tag has"):
        tags.set(name, ONE)


@pytest.mark.parametrize("name", ["deadbeef", "20241123", "41d0f2c9aa17", "0" * 63, ONE, TWO])
def test_names_that_could_be_ids_are_refused(tags: Tags, name: str) -> None:
    with pytest.raises(ModuleError, match="could be taken for the id of a module"):
        tags.set(name, ONE)
    tags.set(f"v{name[:40]}", ONE)
    tags.set(name[:7], ONE)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=70) | st.text("af09zA._- é\n", max_size=70))
def test_names_are_accepted_exactly_if_they_match_the_rules(tags: Tags, name: str) -> None:
    valid = re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", name) and not looks_like_id(name)
    with contextlib.nullcontext() if valid else pytest.raises(ModuleError):
        tags.set(name, ONE)
    assert bool(valid) == (name in tags.modules())


def test_concurrent_processes_lose_no_tags(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from aicirt.modules import Tags
tags = Tags(Path(sys.argv[1]))
for i in range(25):
    tags.set(f"{sys.argv[2]}-{i}", "1" * 64)
"""
    root = str(Path(__file__).parents[3])
    workers = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path), name], env={"PYTHONPATH": root})
        for name in ("x", "y", "z")
    ]
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    assert len(Tags(tmp_path).list()) == 75


def test_the_file_is_read_only_when_another_process_has_changed_it(
    tags: Tags, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look-up costs the same with any number of rows."""
    reads: list[Path] = []
    read = ownership.read_regular

    def counted(path: Path, most: int, *, ours: bool = False) -> bytes | None:
        reads.append(path)
        return read(path, most, ours=ours)

    monkeypatch.setattr(ownership, "read_regular", counted)
    other = Tags(tmp_path)
    tags.set("a", ONE)
    reads.clear()
    for _ in range(3):
        assert tags.of(ONE) == ["a"] and tags.of(TWO) == () and tags.modules() == {"a": ONE}
    tags.set("b", ONE)
    assert tags.of(ONE) == ["a", "b"] and not reads
    other.set("c", ONE)
    assert tags.of(ONE) == ["a", "b", "c"] == [tag.name for tag in tags.list()] and len(reads) == 2
