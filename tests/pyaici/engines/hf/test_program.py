"""The command line: options, errors, and whole runs of the default model."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import tokenizers

from pyaici.build import build_controller
from pyaici.engines.engine import Request, Sampling
from pyaici.engines.hf import program
from pyaici.engines.hf.program import add_options
from pyaici.engines.options import read_request
from tests.pyaici.engines.batching.support import make_model

ROOT = Path(__file__).resolve().parents[4]
GUEST = ROOT / "tests" / "guests" / "guest.c"


def options(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--controller")
    add_options(parser)
    return parser.parse_args(argv)


def run(*argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "harness" / "run_hf.py"), *argv]
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=300, check=False, **options
    )


def test_the_options_work_without_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from pyaici.engines.hf import program\n"
        "program.main(['--controller', 'none', '--prompt', 'x'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert 'pip install "pyaici[hf]"' in done.stderr


def test_a_request_from_options(tmp_path: Path) -> None:
    question = tmp_path / "question.txt"
    question.write_text("Who?\nYou?\n")
    arguments = options(
        *("--prompt", f"@{question}", "--arg", "a+", "--n", "2", "--temperature", "0.5", "--top-p", "0.9"),
        *("--top-k", "7", "--seed", "3", "--max-tokens", "9"),
    )
    request = read_request(arguments)
    assert request == Request("Who?\nYou?", arg="a+", sampling=Sampling(0.5, 0.9, 7, 3), n=2, max_tokens=9)
    assert read_request(options("--prompt", "x")) == Request("x", arg="")
    assert read_request(options("--prompt", "x", "--beams", "3")).beams == 3


@pytest.fixture
def tokenizer_only(tmp_path: Path) -> Path:
    """A model folder without weights."""
    folder = tmp_path / "model"
    folder.mkdir()
    letters = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    bpe = tokenizers.models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[])
    tokenizer = tokenizers.Tokenizer(bpe)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text('{"model_type": "llama", "vocab_size": 256, "eos_token_id": 0}')
    return folder


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command that must fail before a model is loaded or fetched. Returns its stderr."""

    def run(*argv: str) -> str:
        def loaded(*_: object) -> NoReturn:
            raise AssertionError("the program tried to load a model")

        monkeypatch.setattr(program, "load_model", loaded)
        monkeypatch.setattr(program, "default_model_path", loaded)
        assert program.main(list(argv)) == 1
        return capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--controller", "yesno"], "--prompt"),
        (["--controller", "no such thing", "--prompt", "x"], "no such thing"),
        (["--controller", "none", "--prompt", "x", "--model", "/nowhere"], "/nowhere"),
        (["--controller", "none", "--prompt", "x", "--arg", "y"], "--arg needs a controller"),
        (["--prompt", "@/no/file"], "--prompt: cannot read '/no/file', the file after @: No such file"),
        (["--prompt", "@"], "--prompt: cannot read ''"),
        (["--controller", "yesno", "--prompt", "x", "--arg", "@/"], "--arg: cannot read '/'"),
        (["--prompt", f"@{sys.executable}"], "is not UTF-8"),
        (["--prompt", "caf\udce9"], "--prompt: this text is not UTF-8"),
        (["--prompt", "x", "--temperature", "-1"], "temperature is -1"),
        (["--prompt", "x", "--temperature", "nan"], "temperature is nan"),
        (["--prompt", "x", "--top-p", "1.5"], "top_p is 1.5"),
        (["--prompt", "x", "--top-k", "-1"], "top_k is -1"),
        (["--prompt", "x", "--n", "0"], "n is 0"),
        (["--prompt", "x", "--beams", "0"], "beams is 0"),
        (["--prompt", "x", "--beams", "2", "--n", "3"], "n is 3; with 2 beams it must be at most 2"),
        (["--prompt", "x", "--max-tokens", "0"], "max_tokens is 0"),
    ],
)
def test_invalid_options_are_refused_before_a_model_is_loaded(
    argv: list[str], words: str, refused: Callable[..., str]
) -> None:
    assert words in refused(*argv)


def test_errors_of_the_runtime_are_reported_before_a_model_is_loaded(
    tmp_path: Path, tokenizer_only: Path, refused: Callable[..., str]
) -> None:
    guest = str(build_controller(GUEST, tmp_path / "guest.wasm").path)
    socket = str(tmp_path / "none.sock")
    stderr = refused("--controller", guest, "--prompt", "x", "--socket", socket)
    assert f"no aicirt listens on {socket}" in stderr
    text = tmp_path / "text.wasm"
    text.write_text("text")
    assert "not WebAssembly" in refused("--controller", str(text), "--prompt", "x")
    model = ["--model", str(tokenizer_only)]
    stderr = refused("--controller", guest, "--arg", "init_fail", "--prompt", "x", *model)
    assert "no such luck" in stderr and "--arg" not in stderr


def test_a_missing_argument_is_an_error_that_names_the_option(
    tmp_path: Path, tokenizer_only: Path, refused: Callable[..., str]
) -> None:
    regex = str(build_controller(ROOT / "controllers" / "regex", tmp_path / "regex.wasm").path)
    stderr = refused("--controller", regex, "--prompt", "x", "--model", str(tokenizer_only))
    assert "the pattern is empty: regex needs one as its argument" in stderr
    assert "give one with --arg TEXT or --arg @FILE" in stderr


OWN_MODEL = """\
from transformers import LlamaConfig, LlamaForCausalLM


class OwnConfig(LlamaConfig):
    model_type = "own"


class OwnModel(LlamaForCausalLM):
    config_class = OwnConfig


print("the model's file has run")
"""


@pytest.fixture
def own_code(tokenizer_only: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a model that Transformers loads only with a Python file of the folder."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tokenizer_only / "cache"))
    make_model().save_pretrained(tokenizer_only)
    config = json.loads((tokenizer_only / "config.json").read_text())
    classes = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    config |= {"model_type": "own", "architectures": ["OwnModel"], "auto_map": classes}
    (tokenizer_only / "config.json").write_text(json.dumps(config))
    (tokenizer_only / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    (tokenizer_only / "own.py").write_text(OWN_MODEL)
    return tokenizer_only


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


def test_a_refused_argument_does_not_import_torch(tmp_path: Path, tokenizer_only: Path) -> None:
    """Importing torch and transformers takes seconds."""
    guest = build_controller(GUEST, tmp_path / "guest.wasm").path
    code = (
        "import sys; from pyaici.engines.hf import program\n"
        "status = program.main(sys.argv[1:])\n"
        "print(status, {'torch', 'transformers'} & sys.modules.keys())"
    )
    command = [sys.executable, "-c", code, "--controller", str(guest), "--arg", "init_fail"]
    command += ["--prompt", "x", "--model", str(tokenizer_only)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "1 set()\n" and "no such luck" in done.stderr


@pytest.mark.slow
def test_a_controlled_run_from_end_to_end(tmp_path: Path) -> None:
    guest = build_controller(GUEST, tmp_path / "guest.wasm").path
    done = run("--controller", str(guest), "--arg", "splice 1", "--prompt", "Hi", "--max-tokens", "4")
    assert done.returncode == 0, done.stderr
    assert "#0 (ended: length)" in done.stdout
    assert "1 tokens sampled, 6 forced, 3 removed, 0 forks" in done.stdout
    assert done.stderr == ""
    failed = run("--controller", str(guest), "--arg", "mid_trap", "--prompt", "Hi", "--no-chat")
    assert failed.returncode == 1 and "error: " in failed.stdout and "Traceback" not in failed.stderr


@pytest.mark.slow
def test_the_model_answers_without_control() -> None:
    done = run("--prompt", "What is the capital of France?", "--max-tokens", "20")
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout and "#0 (ended: eos)" in done.stdout
