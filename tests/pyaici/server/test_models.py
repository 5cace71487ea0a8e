"""The path of the served model, before anything is loaded."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from pyaici.server import models
from pyaici.server.settings import ServerSettings


def load(model: str, **settings: Any) -> None:
    models.load(ServerSettings(model=Path(model), **settings), cast("Any", None), Path())


@pytest.fixture(autouse=True)
def without_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides the packages of the engines for folders."""
    missing = ("torch", "transformers", "vllm", "huggingface_hub")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else find(name))
    for name in missing:
        monkeypatch.setitem(sys.modules, name, cast("Any", None))
    for variable in ("HF_HUB_OFFLINE", "OMP_NUM_THREADS"):
        monkeypatch.setenv(variable, "1")


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        (None, r"Transformers engine is missing: .*scripts/setup\.sh hf "),
        ("vllm", r'this needs vLLM: pip install "pyaici\[vllm\]"'),
    ],
)
def test_model_of_the_hub_without_its_engine_names_what_to_install(engine: str | None, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        load("nope/nope", engine=engine)


@pytest.mark.parametrize("engine", ["hf", "vllm"])
def test_folder_without_its_engine_names_what_to_install(engine: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"setup\.sh hf |scripts/vllm\.sh"):
        load(str(tmp_path), engine=engine)


def test_path_is_checked_before_packages(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no file or folder gpt2; .* Hugging Face Hub \(OWNER/NAME\)"):
        load("gpt2")
    with pytest.raises(ValueError, match=r"has no config\.json"):
        load(str(tmp_path))
