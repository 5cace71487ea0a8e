"""From `aici new` to a controlled text: the starters of all languages behave alike."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from aicirt.contract.errors import ArgumentError
from pyaici.cli.__main__ import main
from pyaici.cli.new import LANGUAGES
from pyaici.testing import Playground
from pyaici.toolchain import build_controller
from tests.languages import compiler_or_skip
from tests.thorough import thorough


@pytest.fixture(scope="module")
def playground() -> Iterator[Playground]:
    with Playground() as playground:
        yield playground


@pytest.mark.parametrize("language", LANGUAGES if thorough() else ["c"])
def test_starter_builds_and_controls_a_text(
    language: str,
    playground: Playground,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "my_ctrl", "--lang", language]) == 0
    assert "aici build my_ctrl && aici run my_ctrl.wasm" in capsys.readouterr().out
    with compiler_or_skip():
        build_controller("my_ctrl", "first.wasm")
    assert main(["build", "my_ctrl"]) == 0
    assert re.fullmatch(r"my_ctrl\.wasm: accepted, ABI version 1, \d+\.\d kB\n", capsys.readouterr().out)
    assert main(["check", "my_ctrl.wasm"]) == 0
    report = capsys.readouterr().out
    assert re.search(r"^  steps    no pre or post: all its work runs beside the forward pass$", report, re.M)
    assert "limits   memory 64 MiB" in report
    assert Path("my_ctrl.wasm").stat().st_size < 40_000

    size = playground.vocabulary.vocab_size
    plain = playground.play("my_ctrl.wasm", "Tell the secret, Eve.")
    assert (plain.text, plain.finish_reason, plain.error) == ("Tll th scrt, v.", "eos", None)
    assert plain.log == f"{allowed(playground, b'e')} of {size} tokens are allowed\n"
    other = playground.play("my_ctrl.wasm", "Tell the secret, Eve.", arg="Ts")
    assert (other.text, other.finish_reason, other.error) == ("ell he ecre, Eve.", "eos", None)
    assert other.log == f"{allowed(playground, b'ts')} of {size} tokens are allowed\n"
    with pytest.raises(ArgumentError, match="no token is left without these letters"):
        playground.play("my_ctrl.wasm", arg=bytes(range(256)))


def allowed(playground: Playground, letters: bytes) -> int:
    """Returns the number of text tokens without these letters, in either case, and of eos tokens."""
    vocabulary = playground.vocabulary
    return len(vocabulary.eos) + sum(
        token not in vocabulary.special and bool(text) and not set(text.lower()) & set(letters)
        for token, text in enumerate(vocabulary.tokens)
    )
