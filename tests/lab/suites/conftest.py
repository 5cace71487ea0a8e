"""Fixtures: stand-ins for the default model, and for servers that run it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from wasmtime import wat2wasm

from lab.__main__ import main
from lab.report import Report
from lab.servers.llama_cpp import llama_cpp_server
from tests.lab.suites.figures import Figures
from tests.pyaici.engines.batching.support import make_model
from tests.pyaici.engines.llama.tiny_gguf import write_gguf

_ANY = r"""(module (memory (export "memory") 1) (func (export "aici_abi_v1"))
  (data (i32.const 16) "\a8") (func (export "aici_arg") (result i32) (i32.const 16))
  (data (i32.const 512) "\30\00\00\00\04") (func (export "aici_mid_process") (result i32) (i32.const 512)))"""


@pytest.fixture
def figures(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Figures:
    """Runs a suite; returns the figures of its last lines of output, after comparing them with the JSON.

    Draws no plot, which takes a second of a processor: tests/lab/test_report.py has one.
    """

    def run(suite: str, *options: str, quick: bool = True) -> dict[str, float]:
        words = [suite, *(["--quick"] if quick else []), *options]
        folder = tmp_path / "out"
        with monkeypatch.context() as patch:
            patch.setattr(Report, "write", lambda report, folder: (report.write_data(folder),))
            assert main([*words, "--out", str(folder)]) == 0
        lines = [line.split() for line in capsys.readouterr().out.splitlines()]
        found = {name: float(value) for name, value, _ in lines}
        data = json.loads((folder / f"{suite}.json").read_text())
        assert [figure["name"] for figure in data["figures"]] == [name for name, _, _ in lines]
        assert data["command"] == shlex.join(["./scripts/bench.sh", *words])
        return found

    return run


@pytest.fixture(scope="session")
def any_token(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A controller that allows all tokens. It is compiled in milliseconds."""
    path = tmp_path_factory.mktemp("any") / "any.wasm"
    path.write_bytes(wat2wasm(_ANY))
    return path


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights and a context of 8192 tokens, which are bytes, and with a chat template."""
    model = make_model(max_position_embeddings=8192)
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    return write_gguf(model, tmp_path_factory.mktemp("tiny") / "tiny.gguf", template)


@pytest.fixture(scope="session")
def tiny_server(tiny_gguf: Path) -> Iterator[str]:
    """The address of llama.cpp's own server with this model. It starts five times as fast as `aici serve`."""
    with llama_cpp_server(tiny_gguf, 8, 1024) as address:
        yield address
