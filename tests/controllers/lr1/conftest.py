"""The controller lr1, and a way to walk a text under its masks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from aicirt.contract.abi import CAP_TOKENIZER, SAMPLE, STOP
from aicirt.contract.errors import ControllerFailed
from aicirt.wasm import Program
from lab.runners.host import EVERYTHING, Guest, Vocab
from pyaici.bundled import bundled_grammars
from tests.controllers.lr1.recognizer import Probe, Recognizer, build

#: makes the recognizer of a grammar of the package, by its name
Bundled = Callable[[str], Recognizer]

WORDS = [
    b"foo",
    b"(1",
    b"))",
    b"1 +",
    b" + ",
    b"if",
    b"ifx",
    b" x",
    b'"a',
    b'" "',
    b"*/",
    b"/*",
    b"\n#",
    b"0x",
]
EOS = 256 + len(WORDS)


@dataclass
class State:
    """The state after a text: the allowed bytes, whether the text may end, the allowed tokens."""

    next: bytes
    end: bool
    tokens: list[int]


class Grammar:
    """A grammar; `after` walks along a text byte by byte."""

    def __init__(self, program: Program, vocab: Vocab, text: str | bytes) -> None:
        self._program, self._vocab, self._text = program, vocab, text

    def start(self) -> Guest:
        """A sequence without forced text, so that every step has a mask. Raises ControllerFailed."""
        without = {**EVERYTHING, CAP_TOKENIZER: 0}
        return Guest(self._program, self._vocab, self._text, capabilities=without)

    def state(self, guest: Guest, tokens: list[int]) -> State:
        """After one more step."""
        mid = guest.step(tokens, sampled=bool(tokens)).row
        if mid.verb == STOP:
            return State(b"", True, [])
        assert mid.verb == SAMPLE
        return State(bytes(t for t in mid.allowed if t < 256), EOS in mid.allowed, mid.allowed)

    def after(self, text: bytes) -> State | None:
        """Returns None if a byte of the text is not allowed or the output ends before it."""
        guest = self.start()
        state = self.state(guest, [])
        for byte in text:
            if byte not in state.next:
                return None
            state = self.state(guest, [byte])
        return state

    def accepts(self, text: str | bytes) -> bool:
        """Is it a whole text of the grammar?"""
        state = self.after(text.encode() if isinstance(text, str) else text)
        return state is not None and state.end

    def refusal(self) -> str:
        """Why the grammar is refused."""
        with pytest.raises(ControllerFailed) as caught:
            self.start()
        return caught.value.message

    def log(self) -> str:
        """Returns the log of the grammar at the start."""
        return self.start().take_log()


@pytest.fixture(scope="session")
def vocab() -> Vocab:
    return Vocab([*[bytes([b]) for b in range(256)], *WORDS, b"<eos>"], eos=[EOS])


@pytest.fixture(scope="session")
def grammar(program: Callable[[str], Program], vocab: Vocab) -> Callable[[str], Grammar]:
    """Makes a grammar from a text in the syntax of yacc."""
    return lambda text: Grammar(program("lr1"), vocab, text)


@pytest.fixture(scope="session")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Probe:
    return build(tmp_path_factory.mktemp("lr1"))


@pytest.fixture(scope="session")
def bundled(probe: Probe, vocab: Vocab) -> Bundled:
    return functools.cache(lambda name: Recognizer(probe, vocab, bundled_grammars()[name].read_text()))
