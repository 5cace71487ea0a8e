"""The command lines of both engines: options, errors, and whole runs of the default model."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import NoReturn
from unittest.mock import patch

import pytest

from lab.system.forked import CLI, TORCH, run_forked
from lab.system.waiting import PATIENCE
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime
from pyaici.engines.engine import Request, Sampling
from pyaici.engines.options import read_request
from pyaici.tokens import Vocabulary
from pyaici.tokens.gguf import vocabulary_from_gguf
from pyaici.toolchain import build_controller
from tests.pyaici.engines.batching.support import make_model, write_tokenizer
from tests.pyaici.engines.llama.tiny_gguf import write_gguf
from tests.thorough import thorough

ROOT = Path(__file__).resolve().parents[4]
GUEST = ROOT / "tests" / "guests" / "guest.c"


#: an engine's packages of Python, without which its options still work
PACKAGES = {"hf": ("torch", "transformers"), "llama": ("jinja2", "tokenizers")}
#: what loads an engine's model, and what fetches the default one
LOADERS = {
    "hf": ("pyaici.engines.hf.program.load_model", "pyaici.engines.hf.program.default_model_path"),
    "llama": ("pyaici.engines.llama.model.LlamaModel", "pyaici.engines.llama.program.default_gguf_path"),
}


@pytest.fixture(params=LOADERS)
def name(request: pytest.FixtureRequest) -> str:
    """The engine."""
    return str(request.param)


@pytest.fixture
def program(name: str) -> ModuleType:
    return importlib.import_module(f"pyaici.engines.{name}.program")


def run(name: str, *argv: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    imports = (*CLI, *TORCH) if name == "hf" else CLI
    return run_forked(str(ROOT / "harness" / f"run_{name}.py"), *argv, imports=imports, env=env)


def run_python(code: str, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *argv]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_the_options_work_without_the_packages_of_the_engine(name: str) -> None:
    done = run_python(
        f"import sys; sys.modules.update(dict.fromkeys({PACKAGES[name]}))\n"
        f"from pyaici.engines.{name} import program\n"
        "program.main(['--controller', 'none', '--prompt', 'x'])"
    )
    assert f"scripts/setup.sh {name}" in done.stderr


def test_a_request_from_options(tmp_path: Path, program: ModuleType) -> None:
    def options(*argv: str) -> argparse.Namespace:
        parser = argparse.ArgumentParser()
        parser.add_argument("--controller")
        program.add_options(parser)
        return parser.parse_args(argv)

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
def unloaded(tmp_path: Path, name: str) -> Path:
    """A model whose tokenizer can be read."""
    if name == "llama":
        return write_gguf(make_model(), tmp_path / "tiny.gguf")
    return write_tokenizer(tmp_path / "model")


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """The daemon that the commands of `refused` connect to."""
    with Daemon(workers=1) as daemon:
        yield daemon


@pytest.fixture
def refused(
    name: str,
    daemon: Daemon,
    program: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., str]:
    """Runs a command that must fail before a model is loaded or fetched. Returns its stderr."""

    def run(*argv: str) -> str:
        def loaded(*_: object) -> NoReturn:
            raise AssertionError("the program tried to load a model")

        monkeypatch.setenv("AICI_SOCKET", str(daemon.socket_path))
        for loader in LOADERS[name]:
            monkeypatch.setattr(loader, loaded)
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
    tmp_path: Path, unloaded: Path, refused: Callable[..., str]
) -> None:
    guest = str(build_controller(GUEST, tmp_path / "guest.wasm").path)
    socket = str(tmp_path / "none.sock")
    stderr = refused("--controller", guest, "--prompt", "x", "--socket", socket)
    assert f"no aicirt listens on {socket}" in stderr
    text = tmp_path / "text.wasm"
    text.write_text("text")
    assert "not WebAssembly" in refused("--controller", str(text), "--prompt", "x")
    model = ["--model", str(unloaded)]
    stderr = refused("--controller", guest, "--arg", "init_fail", "--prompt", "x", *model)
    assert "no such luck" in stderr and "--arg" not in stderr


def test_a_missing_argument_is_an_error_that_names_the_option(
    tmp_path: Path, unloaded: Path, refused: Callable[..., str]
) -> None:
    regex = str(build_controller(ROOT / "controllers" / "regex", tmp_path / "regex.wasm").path)
    stderr = refused("--controller", regex, "--prompt", "x", "--model", str(unloaded))
    assert "the pattern is empty: regex needs one as its argument" in stderr
    assert "give one with --arg TEXT or --arg @FILE" in stderr


def test_a_refused_argument_does_not_import_torch(tmp_path: Path, name: str, unloaded: Path) -> None:
    """Importing torch and transformers takes seconds."""
    guest = build_controller(GUEST, tmp_path / "guest.wasm").path
    code = (
        f"import sys; from pyaici.engines.{name} import program\n"
        "status = program.main(sys.argv[1:])\n"
        "print(status, {'torch', 'transformers'} & sys.modules.keys())"
    )
    arguments = ("--controller", str(guest), "--arg", "init_fail", "--prompt", "x", "--model", str(unloaded))
    done = run_python(code, *arguments)
    assert done.stdout == "1 set()\n" and "no such luck" in done.stderr


def test_the_vocabulary_of_a_gguf_file_is_read_once(tmp_path: Path) -> None:
    """Reading that of a model with 150 000 tokens takes a second."""
    path = write_gguf(make_model(), tmp_path / "tiny.gguf")
    argv = ["--controller", "yesno", "--prompt", "x", "--model", str(path), "--max-tokens", "2"]
    with patch("pyaici.tokens.load.vocabulary_from_gguf", wraps=vocabulary_from_gguf) as read:
        assert importlib.import_module("pyaici.engines.llama.program").main(argv) == 0
    assert read.call_count == 1


@pytest.mark.slow
def test_llama_registers_the_vocabulary_of_the_engine_before_it_loads_the_model(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another one would have aicirt build another image, and run `aici_init` of the controller again."""
    registered: list[bytes | str] = []
    register = Runtime.register

    def note(runtime: Runtime, vocabulary: Vocabulary) -> None:
        registered.append(vocabulary.fingerprint)
        register(runtime, vocabulary)

    monkeypatch.setattr(Runtime, "register", note)
    program = importlib.import_module("pyaici.engines.llama.program")
    assert program.main(["--controller", "yesno", "--prompt", "Yes?", "--max-tokens", "3"]) == 0, (
        capsys.readouterr()
    )
    assert len(registered) == 2 and len(set(registered)) == 1


@pytest.mark.slow
def test_a_controlled_run_from_end_to_end(tmp_path: Path, name: str) -> None:
    guest = build_controller(GUEST, tmp_path / "guest.wasm").path
    done = run(name, "--controller", str(guest), "--arg", "splice 1", "--prompt", "Hi", "--max-tokens", "4")
    assert done.returncode == 0, done.stderr
    assert "#0 (ended: length)" in done.stdout
    assert "1 token sampled, 6 forced, 3 backtracked, 0 forks" in done.stdout
    assert re.sub(r"llama\.cpp uses \d+ threads?\n", "", done.stderr) == ""
    if name == "hf" and not thorough():  # the same code follows
        return
    failed = run(name, "--controller", str(guest), "--arg", "mid_trap", "--prompt", "Hi", "--no-chat")
    assert failed.returncode == 1 and "error: " in failed.stdout and "Traceback" not in failed.stderr


@pytest.mark.slow
def test_the_model_answers_without_control(name: str) -> None:
    done = run(name, "--prompt", "Name the capital of France.", "--max-tokens", "20")
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout and "#0 (ended: eos)" in done.stdout
