"""Models of Transformers with Python files of their own, on the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from pyaici.engines.hf import program
from tests.pyaici.engines.batching.support import make_model, write_tokenizer

OWN_MODEL = """\
from transformers import LlamaConfig, LlamaForCausalLM


class OwnConfig(LlamaConfig):
    model_type = "own"


class OwnModel(LlamaForCausalLM):
    config_class = OwnConfig


print("the model's file has run")
"""


@pytest.fixture
def own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a model that Transformers loads only with a Python file of the folder."""
    folder = write_tokenizer(tmp_path / "model")
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(folder / "cache"))
    make_model().save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    classes = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    config |= {"model_type": "own", "architectures": ["OwnModel"], "auto_map": classes}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    (folder / "own.py").write_text(OWN_MODEL)
    return folder


@pytest.mark.filterwarnings("ignore")
def test_a_model_with_python_files_needs_the_option(
    own_code: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: object) -> NoReturn:
        raise AssertionError("the program asked on the terminal")

    monkeypatch.setattr("builtins.input", asked)
    argv = ["--controller", "regex", "--arg", "[a-z]{3}", "--prompt", "x", "--max-tokens", "5"]
    argv += ["--model", str(own_code)]
    assert program.main(argv) == 1
    output = capsys.readouterr()
    assert f"loading {own_code} would run Python files of the model: add --trust-remote-code" in output.err
    assert "has run" not in output.out
    assert program.main([*argv, "--trust-remote-code"]) == 0
    assert "the model's file has run" in capsys.readouterr().out


def test_second_models_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = write_tokenizer(tmp_path / "first")
    (first / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    folder = shutil.copytree(first, tmp_path / "small")
    make_model().save_pretrained(first)
    make_model(num_hidden_layers=1).save_pretrained(folder)
    body = 'from aici import mix, sample\n\nasync def main():\n    await mix(None, 0.5, model="small")\n'
    script = tmp_path / "mixed.py"
    script.write_text(f"{body}    await sample()\n")
    argv = ["--controller", str(script), "--prompt", "x", "--max-tokens", "5"]
    argv += ["--model", str(first)]
    assert program.main([*argv, "--second", f"small={folder}"]) == 0
    assert program.main([*argv, "--second", f"large={folder}"]) == 1
    assert "there is no second model 'small'; this engine has 'large'" in capsys.readouterr().out
