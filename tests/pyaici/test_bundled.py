"""Names of controllers, and errors for unknown names."""

from __future__ import annotations

from pathlib import Path

import pytest

from aicirt.contract.errors import ArgumentError, UnknownControllerError
from pyaici import bundled
from pyaici.bundled import DESCRIPTIONS, SCRIPT_CONTROLLERS, bundled_controllers, find_controller
from pyaici.testing import Playground
from pyaici.toolchain import build_controller
from pyaici.toolchain.controller import controller_folders
from pyaici.toolchain.interpreters import is_interpreter

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, with three bundled controllers."""
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
    with pytest.raises(UnknownControllerError) as caught:
        find_controller(name)
    return str(caught.value)


def test_name_is_a_file_or_a_bundled_controller(here: Path) -> None:
    assert find_controller("regex") == bundled_controllers()["regex"]
    (here / "mine.wasm").touch()
    assert find_controller("mine.wasm") == Path("mine.wasm")
    assert find_controller(str(here / "mine.wasm")) == here / "mine.wasm"
    (here / "regex").touch()
    assert find_controller("regex") == Path("regex")  # a file takes precedence


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
def test_error_suggests_a_similar_name(here: Path, name: str, meant: str) -> None:
    (here / "deep").mkdir()
    for file in ("my_ctrl.wasm", "deep/other.wasm"):
        (here / file).touch()
    assert refusal(name) == (
        f"no file and no bundled controller is called {name!r}: did you mean {meant}? "
        "(bundled: choice, regex, yesno)"
    )


@pytest.mark.parametrize("name", ["quux", "none/such.wasm", "x" * 10_000, "[a-z]+\n"])
def test_error_without_similar_name_lists_bundled_controllers(name: str) -> None:
    message = refusal(name)
    assert message.endswith(f"is called {name!r} (bundled: choice, regex, yesno)")


def test_error_for_sources_says_how_to_build_them(here: Path) -> None:
    (here / "mine").mkdir()
    (here / "one.cpp").touch()
    assert refusal("mine") == "mine is a folder, not a controller; aici build mine makes mine.wasm"
    assert (
        refusal("one.cpp") == "one.cpp is a source file, not a controller; aici build one.cpp makes one.wasm"
    )
    assert refusal(".") == ". is a folder, not a controller; aici build . makes work.wasm"
    (here / "mine.wasm").touch()
    assert refusal("mine/") == "mine is a folder, not a controller: did you mean mine.wasm?"


def test_error_in_an_unbuilt_tree_says_how_to_build_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bundled, "FOLDER", tmp_path / "nowhere")
    assert "(bundled: none, this tree is not built: python -m pyaici.toolchain)" in refusal("regx")


def test_descriptions_are_those_of_the_sources() -> None:
    folders = controller_folders(ROOT)
    assert [folder.name for folder in folders] == sorted(DESCRIPTIONS)
    for folder in folders:
        heads = [" ".join(source.read_text().split()[:40]) for source in folder.iterdir() if source.is_file()]
        summary, _ = DESCRIPTIONS[folder.name]
        assert any(f"{summary}." in head for head in heads), folder.name


def test_list_of_interpreters_is_complete() -> None:
    assert sorted(SCRIPT_CONTROLLERS) == [
        folder.name for folder in controller_folders(ROOT) if is_interpreter(folder)
    ]


def test_example_arguments_are_accepted_and_required(tmp_path: Path) -> None:
    with Playground() as playground:
        runtime = playground.runtime
        for name, (_, example) in DESCRIPTIONS.items():
            wasm = build_controller(ROOT / "controllers" / name, tmp_path / f"{name}.wasm").path
            module = runtime.upload(wasm).id
            runtime.prepare(module, example or "")
            if example:
                with pytest.raises(ArgumentError):
                    runtime.prepare(module, "")
