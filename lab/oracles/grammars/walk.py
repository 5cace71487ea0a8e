"""Follows a text under the masks of a controller, and compares the masks with an oracle."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from aicirt.contract.abi import CAP_TOKENIZER, SAMPLE, STOP
from aicirt.contract.errors import ControllerFailed
from aicirt.wasm import Program
from lab.oracles.grammars.oracle import Oracle
from lab.runners.host import EVERYTHING, Guest, Vocab


@dataclass
class State:
    """The state after a text: the allowed tokens, and whether the text may end or has ended."""

    tokens: list[int]
    end: bool
    over: bool = False

    @property
    def next(self) -> bytes:
        """The allowed bytes. The first 256 tokens of the vocabulary must be the bytes."""
        return bytes(t for t in self.tokens if t < 256)


class Controller:
    """A controller with a grammar; `after` walks along a text byte by byte."""

    def __init__(self, program: Program, vocab: Vocab, text: str | bytes) -> None:
        self._program, self._vocab, self._text = program, vocab, text
        (self.eos,) = vocab.eos

    def bytes_of(self, token: int) -> bytes:
        return self._vocab.tokens[token]

    def token(self, data: bytes) -> int:
        return self._vocab.tokens.index(data)

    def start(self) -> Guest:
        """Starts a sequence without forced text, so that every step has a mask. Raises ControllerFailed."""
        return Guest(self._program, self._vocab, self._text, capabilities={**EVERYTHING, CAP_TOKENIZER: 0})

    def state(self, guest: Guest, tokens: list[int]) -> State:
        """Runs a step and returns the new state."""
        row = guest.step(tokens, sampled=bool(tokens)).row
        if row.verb == STOP:
            return State([], end=True, over=True)
        assert row.verb == SAMPLE
        return State([t for t in row.allowed if t != self.eos], self.eos in row.allowed)

    def after(self, text: str | bytes) -> State | None:
        """Returns None if a byte of the text is not allowed or the output ends before it."""
        guest = self.start()
        state = self.state(guest, [])
        for byte in text.encode() if isinstance(text, str) else text:
            if byte not in state.tokens:
                return None
            state = self.state(guest, [byte])
        return state

    def run(self, text: str, *, end: bool = True) -> Guest:
        """Returns the guest after a text that it must allow, and after its end."""
        guest = self.start()
        state = self.state(guest, [])
        for byte in text.encode():
            assert byte in state.tokens, (text, byte)
            state = self.state(guest, [byte])
        if end and not state.over:
            assert state.end
            assert self.state(guest, [self.eos]).over
        return guest

    @staticmethod
    def captures(guest: Guest) -> dict[str, list[str]]:
        """Returns the captures that a guest has written to variables, by name."""
        values = {name.decode(): value.decode() for name, (_, value) in guest.variables.items()}
        found = {name: [value] for name, value in values.items() if not name.endswith("]")}
        for name, last in found.items():
            numbered = [values[f"{name}[{i}]"] for i in range(len(values)) if f"{name}[{i}]" in values]
            if numbered:
                assert numbered[-1:] == last and len(numbered) > 1
                found[name] = numbered
        return found

    def accepts(self, text: str | bytes) -> bool:
        """Returns whether the text is a complete text of the grammar."""
        state = self.after(text)
        return state is not None and state.end

    def refusal(self) -> str:
        """Returns why the grammar is refused."""
        with pytest.raises(ControllerFailed) as caught:
            self.start()
        return caught.value.message

    def log(self) -> str:
        """Returns the log of the grammar at the start."""
        return self.start().take_log()

    def compare(self, oracle: Oracle, *, most: int, stops: bool = False) -> int:
        """Compares the masks after `most` texts, shortest first, bit by bit. Returns the number compared.

        `stops`: the text ends with the first token after which it is whole.
        """
        tokens = self._vocab.tokens[: self.eos]
        guest = self.start()
        queue: list[tuple[Guest, bytes, list[int]]] = [(guest, b"", [])]
        for count, (guest, text, last) in enumerate(queue):
            if count == most:
                return count
            assert oracle.push(text)
            state = self.state(guest, last)
            complete = oracle.complete and (bool(text) or not stops)
            expected = oracle.allowed(tokens)
            if stops and complete:
                assert state == State([], end=True, over=True), text
                expected = []
            else:
                assert state.tokens == expected, text
                assert state.end == complete, text
            for token in expected[:: max(1, len(expected) // 4)]:
                queue.append((guest.fork(len(queue) + 2), text + tokens[token], [token]))
            oracle.pop(len(text))
        return len(queue)


def allowed_after(made: Controller, tokens: list[int], eos: int) -> list[int] | None:
    """Returns the allowed tokens after these, with `eos` if the text may end; None if one is not allowed."""
    guest = made.start()
    state = made.state(guest, [])
    for token in tokens:
        if token not in state.tokens:
            return None
        state = made.state(guest, [token])
    return [*state.tokens, *([eos] if state.end else [])]
