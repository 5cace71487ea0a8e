"""The default model, and errors when it cannot be prepared."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from pyaici.models import ModelError, default, default_gguf_path, default_model_path
from tests.pyaici.models.test_package import make_wheel


def test_default_model_answers_a_question() -> None:
    """Confirms that weights and tokenizer belong together: the model answers correctly."""
    torch.set_num_threads(1)
    folder = default_model_path()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.float32
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id == 2
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    tokens = model.generate(**prompt, max_new_tokens=12, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert tokenizer.decode(tokens) == "The capital of France is Paris.<|im_end|>"


def test_bfloat16_has_the_same_weights() -> None:
    wide = AutoModelForCausalLM.from_pretrained(default_model_path()).state_dict()
    narrow = AutoModelForCausalLM.from_pretrained(default_model_path("bfloat16"), dtype="auto").state_dict()
    assert wide.keys() == narrow.keys()
    for name, weight in wide.items():
        assert narrow[name].dtype == torch.bfloat16
        assert torch.equal(weight.to(torch.bfloat16), narrow[name]), name


def test_model_folder_has_its_license_and_origin() -> None:
    folder = default_model_path()
    assert "Apache License" in (folder / "LICENSE").read_text()
    notice = (folder / "NOTICE").read_text()
    assert "Changed by aici" in notice
    assert "float32" in notice
    assert json.loads((folder / "aici.json").read_text())["sha256"] == default.PACKAGE.sha256


def test_program_prints_only_the_path() -> None:
    done = subprocess.run([sys.executable, "-m", "pyaici.models"], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"{default_model_path()}\n", "")


def test_unknown_dtype_is_refused() -> None:
    with pytest.raises(ModelError, match="float32 or bfloat16"):
        default_model_path("float16")


def test_missing_packages_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(default.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"needs torch, transformers, .*: .*/scripts/setup\.sh hf$"):
        default_model_path()
    with pytest.raises(ModelError, match=r"needs gguf: .*/scripts/setup\.sh llama$"):
        default_gguf_path()


def test_program_reports_errors(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "pyaici.models"],
        capture_output=True,
        text=True,
        env={"XDG_CACHE_HOME": str(tmp_path / "file")},
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("aici: cannot write")


def test_failed_conversion_leaves_nothing(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The converter gets a file that is not GGUF, and its error message reaches the user."""
    package = make_wheel(index, {"tiny/m.gguf": b"GGUF" + bytes(100), "tiny/LICENSE": b"free"})
    monkeypatch.setattr(default, "PACKAGE", package)
    monkeypatch.setattr(default, "_GGUF", "tiny/m.gguf")
    monkeypatch.setattr(default, "_LICENSE", "tiny/LICENSE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    lines: list[str] = []
    with pytest.raises(ModelError, match=r"(?s)converting .* to bfloat16 failed: .*Error"):
        default_model_path("bfloat16", lines.append)
    assert [line.split()[0] for line in lines] == ["fetching", "converting"]
    left = {entry.name for entry in (tmp_path / "aici" / "models").iterdir()}
    assert left == {".SmolLM2-135M-Instruct-bfloat16.lock"}
