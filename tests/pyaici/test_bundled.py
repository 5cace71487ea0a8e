"""How users name controllers, and what they are told when there is none of that name."""

from __future__ import annotations

from pathlib import Path

import pytest

from aicirt.contract.errors import ArgumentError, UnknownModuleError
from pyaici import bundled
from pyaici.build import build_controller
from pyaici.build.interpreters import is_interpreter
from pyaici.build.project import controller_folders
from pyaici.bundled import DESCRIPTIONS, SCRIPT_CONTROLLERS, bundled_controllers, find_controller
from pyaici.testing import Playground

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, and three bundled controllers whatever has been built."""
    shipped = tmp_path / "_wasm"
    shipped.mkdir()
    for name in ("choice", "regex", "yesno"):
        (shipped / f"{name}.wasm").touch()
    monkeypatch.setattr(bundled, "FOLDER", shipped)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def refusal(name: str) -> str:
    with pytest.raises(UnknownModuleError) as caught:
        find_controller(name)
    return str(caught.value)


def test_a_file_or_a_bundled_name(here: Path) -> None:
    assert find_controller("regex") == bundled_controllers()["regex"]
    (here / "mine.wasm").touch()
    assert find_controller("mine.wasm") == Path("mine.wasm")
    assert find_controller(str(here / "mine.wasm")) == here / "mine.wasm"
    (here / "regex").touch()
    assert find_controller("regex") == Path("regex")  # a file of that name goes before


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("my_ctrl", "my_ctrl.wasm"),
        ("my_ctr.wasm", "my_ctrl.wasm"),
        ("my-ctrl", "my_ctrl.wasm"),
        ("deep/ohter.wasm", "deep/other.wasm"),
        ("regx", "regex"),
        ("regex.wasm", "regex"),
        ("choices", "choice"),
    ],
)
def test_what_was_probably_meant(here: Path, name: str, meant: str) -> None:
    (here / "deep").mkdir()
    for file in ("my_ctrl.wasm", "deep/other.wasm"):
        (here / file).touch()
    assert refusal(name) == (
        f"no file and no bundled controller is called {name!r}: did you mean {meant}? "
        "(bundled: choice, regex, yesno)"
    )


@pytest.mark.parametrize("name", ["quux", "none/such.wasm", "x" * 10_000, "[a-z]+\n"])
def test_nothing_is_like_it(name: str) -> None:
    said = refusal(name)
    assert said.endswith(f"is called {name!r} (bundled: choice, regex, yesno)")


def test_sources_are_to_be_built(here: Path) -> None:
    (here / "mine").mkdir()
    (here / "one.cpp").touch()
    assert refusal("mine") == "mine is a folder, not a controller; aici build mine makes mine.wasm"
    assert refusal("one.cpp") == "one.cpp is a source, not a controller; aici build one.cpp makes one.wasm"
    assert refusal(".") == ". is a folder, not a controller; aici build . makes work.wasm"
    (here / "mine.wasm").touch()
    assert refusal("mine/") == "mine is a folder, not a controller: did you mean mine.wasm?"


def test_a_tree_that_is_not_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bundled, "FOLDER", tmp_path / "nowhere")
    assert "(bundled: none, this source tree is not built: python -m pyaici.build)" in refusal("regex")


def test_every_controller_is_described_in_its_own_words() -> None:
    folders = controller_folders(ROOT)
    assert [folder.name for folder in folders] == sorted(DESCRIPTIONS)
    for folder in folders:
        heads = [" ".join(source.read_text().split()[:40]) for source in folder.iterdir() if source.is_file()]
        summary, _ = DESCRIPTIONS[folder.name]
        assert any(f"{summary}." in head for head in heads), folder.name


def test_those_that_run_scripts_are_known() -> None:
    assert sorted(SCRIPT_CONTROLLERS) == [
        folder.name for folder in controller_folders(ROOT) if is_interpreter(folder)
    ]


def test_the_arguments_to_try_are_accepted_and_needed(tmp_path: Path) -> None:
    with Playground() as playground:
        runtime = playground.runtime
        for name, (_, example) in DESCRIPTIONS.items():
            wasm = build_controller(ROOT / "controllers" / name, tmp_path / f"{name}.wasm").path
            module = runtime.upload(wasm).id
            runtime.prepare(module, example or "")
            if example:
                with pytest.raises(ArgumentError):
                    runtime.prepare(module, "")
