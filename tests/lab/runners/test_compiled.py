"""Stores of one run share the code of bundled controllers, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aicirt.modules import store
from aicirt.modules.store import ModuleStore
from lab.runners import compiled
from pyaici.bundled import bundled_controllers
from tests.aicirt.modules.wat import small_module


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of another run."""
    monkeypatch.setattr(compiled, "_common", None)
    monkeypatch.setattr(compiled, "_stores", [])
    monkeypatch.setattr(compiled, "_seen", {})
    with compiled.common_code(tmp_path / "common"):
        yield tmp_path


def test_the_code_of_bundled_controllers_is_shared(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (ModuleStore(compiled.share(run / name)) for name in ("one", "other"))
    wasm = bundled_controllers()["yesno"].read_bytes()
    bundled, own = one.add(wasm, "ann"), one.add(small_module())
    assert not other.has(bundled.id)
    compiled.exchange()
    third = ModuleStore(compiled.share(run / "third"))
    monkeypatch.setattr(store, "compile_in_child", lambda *_: pytest.fail("it is compiled again"))
    for taker in (other, third):
        assert [info.id for info in taker.list()] == [bundled.id] and not taker.has(own.id)
        assert taker.ownership.claims(bundled.id).owners == {}
        assert taker.add(wasm).compiled_sha256 == bundled.compiled_sha256


def test_a_removal_concerns_one_store(run: Path) -> None:
    one, other = (ModuleStore(compiled.share(run / name)) for name in ("one", "other"))
    module = one.add(bundled_controllers()["yesno"].read_bytes()).id
    compiled.exchange()
    one.remove(module, force=True)
    assert other.get(module).id == module
    assert not ModuleStore(run / "not shared").has(module)
