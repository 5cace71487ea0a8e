"""The crate for controllers in Rust: the same interface as the C++ SDK's, and the same sets of tokens."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicirt.contract.abi import CONTINUE, STOP
from aicirt.contract.errors import ControllerFailed, MemoryLimitError
from aicirt.vocab import build_image
from aicirt.wasm import Export, Program
from lab.runners.host import BITMASK, Guest, Vocab
from pyaici.recording.vocabulary import small_vocabulary
from pyaici.toolchain import MissingToolchain, find_sdk
from pyaici.toolchain.controller import GET_RUST
from tests.controllers.sdk.recognizer.automata import Automaton, allowed, automata, vocabularies
from tests.controllers.sdk.test_interface import (
    TOKENS,
    test_flags,
    test_host_functions,
    test_looks_drafts_and_followers,
    test_prompt_and_argument,
    test_rows,
    test_step_argument,
    test_the_name_of_a_second_model_and_a_look_at_the_own_logits,
    test_variables,
    test_verbs_of_pre_and_post,
    test_waits,
)
from tests.languages import compiler_or_skip
from tests.thorough import cases

__all__ = [  # tests of the C++ SDK that run again, with the `start` of this module
    "test_flags",
    "test_host_functions",
    "test_looks_drafts_and_followers",
    "test_prompt_and_argument",
    "test_rows",
    "test_step_argument",
    "test_the_name_of_a_second_model_and_a_look_at_the_own_logits",
    "test_variables",
    "test_verbs_of_pre_and_post",
    "test_waits",
]

#: guests/rust/table
STACK, SIGNATURES, PLAIN, RECOGNIZER = range(4)


@pytest.fixture
def start(program: Callable[[str], Program]) -> Callable[..., Guest]:
    """Starts guests/rust/script with lines to obey."""
    vocab = Vocab(TOKENS, special=[4], eos=[6, 5], bos=4, vocab_size=9)

    def start(*lines: str, prompt: tuple[int, ...] = ()) -> Guest:
        return Guest(program("rust/script"), vocab, "\n".join(lines), prompt=prompt, seq_id=7)

    return start


def test_failures(start: Callable[..., Guest]) -> None:
    with pytest.raises(ControllerFailed, match="because"):
        start("pre go", "mid fail because").step()
    with pytest.raises(MemoryLimitError, match="over the limit of 67108864"):
        start("pre go", "mid exhaust").step()


def test_a_panic_reports_message_and_location(start: Callable[..., Guest]) -> None:
    with pytest.raises(ControllerFailed, match=r"panicked at src/lib\.rs:\d+:\d+:\nalas"):
        start("pre go", "mid panic alas").step()


def test_defaults_and_names(program: Callable[[str], Program]) -> None:
    """`export!` with names exports those alone; without names it exports all."""
    assert all(program("rust/script").has[e] for e in (Export.INIT_PROMPT, Export.PRE, Export.POST))
    assert not any(program("rust/table").has[e] for e in (Export.INIT_PROMPT, Export.PRE, Export.POST))


def test_forks_are_independent(start: Callable[..., Guest]) -> None:
    guest = start("pre fork 2", "mid force 1", "post go", "pre go", "mid set 3", "post stop")
    first = guest.step(children=(8,))
    (child,) = first.children
    assert (first.row.token, child.mid().token) == (1, 1)
    assert guest.step([1]).row.allowed == [3]
    assert guest.step([3]).post == STOP
    answer = child.step([1])
    assert answer.pre == (CONTINUE, 1) and answer.row.allowed == [3]


@given(automata(), vocabularies(), st.sampled_from([STACK, SIGNATURES, PLAIN]), st.data())
@settings(max_examples=cases(100, 300), deadline=None)
def test_walks(
    program: Callable[[str], Program], automaton: Automaton, vocab: Vocab, way: int, data: st.DataObject
) -> None:
    """Every walk allows what a look at each token allows, in each state that a text leads to."""
    guest = Guest(program("rust/table"), vocab, automaton.argument(way))
    state, tokens = 1, []
    for _ in range(4):
        expected = allowed(automaton, vocab, state)
        assert guest.step(tokens).row.allowed == expected
        text = [token for token in expected if token not in vocab.special]
        if not text:
            break
        tokens = [data.draw(st.sampled_from(text))]
        state = automaton.run(vocab.tokens[tokens[0]], state)
    guest.instance.close()


@given(automata(), vocabularies(), st.data())
@settings(max_examples=cases(70, 200), deadline=None)
def test_recognizer_controller(
    program: Callable[[str], Program], automaton: Automaton, vocab: Vocab, data: st.DataObject
) -> None:
    guest = Guest(program("rust/table"), vocab, automaton.argument(RECOGNIZER))
    state, tokens = 1, []
    for _ in range(6):
        expected = allowed(automaton, vocab, state)
        text = [token for token in expected if token not in vocab.special]
        may_end = automaton.flags[state] & 1
        if not expected and not may_end:
            with pytest.raises(ControllerFailed, match="allows no token here"):
                guest.step(tokens)
            break
        mid = guest.step(tokens).row
        if may_end and not text:
            assert mid.verb == STOP
            break
        assert mid.kind == BITMASK and mid.allowed == expected
        if not text:
            break
        tokens = [data.draw(st.sampled_from(text))]
        state = automaton.run(vocab.tokens[tokens[0]], state)
    guest.instance.close()


def test_tokens_that_do_not_fit(program: Callable[[str], Program]) -> None:
    rows = [[0] * 256, [0] * 256, [0] * 256]
    rows[1][ord("a")] = 2
    rows[2][ord("a")] = 1
    automaton = Automaton(rows, [0, 0, 0b0011])  # in state 2 eos and bos are allowed
    vocab = Vocab([b"a", b"b", b"<eos>", b"<s>", b"<pad>"], eos=[2], bos=3, pad=4, special=[3, 4])
    argument = automaton.argument(RECOGNIZER)
    for tokens, message in (([1], '"b" was appended'), ([2], "<eos>"), ([3], "<s>"), ([0, 4], "<pad>")):
        with pytest.raises(ControllerFailed, match=message):
            Guest(program("rust/table"), vocab, argument).step(tokens)
    guest = Guest(program("rust/table"), vocab, argument)
    assert guest.step([0]).row.allowed == [0, 2, 3]
    assert guest.step([3]).row.allowed == [0, 2, 3], "bos changes nothing"
    with pytest.raises(ControllerFailed, match="tokens were backtracked"):
        Guest(program("rust/table"), vocab, argument).step([0], backtrack=1)
    assert guest.step([2]).row.verb == STOP
    with pytest.raises(ControllerFailed):
        guest.step([0])


def test_without_webassembly(tmp_path: Path) -> None:
    """`cargo test` in the crate: recognizers, and the walk on a vocabulary that it is given."""
    cargo = shutil.which("cargo")
    if cargo is None:
        with compiler_or_skip():
            raise MissingToolchain(f"there is no cargo: {GET_RUST}")
    vocabulary = small_vocabulary()
    image = build_image(vocabulary.tokens, special=vocabulary.special, eos=vocabulary.eos)
    (tmp_path / "vocabulary").write_bytes(image)
    done = subprocess.run(
        [cargo, "test", "--offline", "--", "--include-ignored"],
        cwd=find_sdk().rust_crate,
        env={
            **os.environ,
            "AICI_VOCABULARY": str(tmp_path / "vocabulary"),
            "CARGO_TARGET_DIR": str(tmp_path / "target"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.findall(r"(\d+) passed; 0 failed; 0 ignored", done.stdout)
    assert sum(map(int, passed)) == 6, done.stdout
