"""Second models of `open_engine`, and its errors for models that cannot be loaded."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import pyaici.models
from pyaici import EngineOptions, Request, open_engine
from pyaici.engines.options import EngineKind
from tests.pyaici.engines.batching.support import BOS, make_model, script
from tests.pyaici.engines.llama.tiny_gguf import write_gguf


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Returns a folder with an empty folder, one without a configuration, and one with two GGUF files."""
    for name in ("empty/", "other/weights.bin", "two/a.gguf", "two/b.gguf"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir(exist_ok=True)
        else:
            path.touch()
    return tmp_path


@pytest.mark.parametrize(
    ("engine", "model", "words"),
    [
        ("llama", "none.gguf", "there is no file .*none.gguf; name the GGUF file of a model"),
        ("llama", "empty", "no GGUF file; for a Transformers model, choose the engine hf"),
        ("llama", "two", "a folder with 2 GGUF files .*; name one of them"),
        (None, "none", "there is no file or folder .*none; give a GGUF file"),
        ("hf", "other", "it has no config.json"),
    ],
)
def test_errors_name_no_options_of_commands(
    engine: EngineKind | None, model: str, words: str, models: Path
) -> None:
    with pytest.raises(ValueError, match=words) as caught, open_engine(models / model, engine=engine):
        pass
    assert " --" not in f" {caught.value}"


@pytest.mark.parametrize(
    ("engine", "model", "extra"), [("hf", "owner/name", "hf"), ("llama", None, "llama"), ("hf", None, "hf")]
)
def test_missing_packages_are_reported_before_a_model_is_fetched(
    engine: EngineKind, model: str | None, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "rich" else real(name))
    for fetch in ("default_gguf_path", "default_model_path"):
        monkeypatch.setattr(pyaici.models, fetch, pytest.fail)
    with pytest.raises(ValueError, match=rf"{extra}.*missing: rich"), open_engine(model, engine=engine):
        pass


def test_second_models_are_loaded_beside_the_first(tmp_path: Path) -> None:
    first = write_gguf(make_model(), tmp_path / "first.gguf")
    small = write_gguf(make_model(num_hidden_layers=1), tmp_path / "small.gguf")
    options = EngineOptions(second={"small": small}, cache_tokens=1024)
    body = script('await mix(None, 0.5, model="small")\nawait sample()\nstop()')
    with open_engine(first, options=options) as engine:
        results = engine.run([Request([BOS, 72], **body)])
        assert [result.error for result in results] == [None, None]


def test_vllm_takes_no_second_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    options = EngineOptions(second={"small": tmp_path})
    with (
        pytest.raises(ValueError, match="vLLM runs one model"),
        open_engine(tmp_path, engine="vllm", options=options),
    ):
        pass
