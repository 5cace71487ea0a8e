"""The controller substring, and a way to walk a text under its masks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from aicirt.contract.abi import CAP_TOKENIZER, STOP
from aicirt.contract.errors import ControllerFailed
from aicirt.wasm import Program
from lab.oracles.substring import EOS, vocabulary
from lab.runners.host import EVERYTHING, Guest, Mid, Vocab

#: no forced tokens, so that every step has a mask
MASKS_ONLY = {**EVERYTHING, CAP_TOKENIZER: 0}


@pytest.fixture(scope="session")
def vocab() -> Vocab:
    return vocabulary()


@dataclass
class Substring:
    """The controller with one argument."""

    program: Program
    vocab: Vocab
    argument: bytes

    @contextmanager
    def start(self) -> Iterator[Guest]:
        """A sequence. Raises ControllerFailed.

        It is closed here: what is left to the collector may take its time in the step of another.
        """
        guest = Guest(self.program, self.vocab, self.argument, capabilities=MASKS_ONLY)
        yield guest
        guest.instance.close()

    def masks(self, text: bytes) -> list[list[int]]:
        """Returns the allowed tokens at the start and after each byte of an allowed text; [EOS] for Stop."""
        with self.start() as guest:
            rows = [allowed(guest.step().row)]
            for byte in text:
                assert byte in rows[-1], (self.argument, text)
                rows.append(allowed(guest.step([byte], sampled=True).row))
        return rows

    def refusal(self) -> str:
        """Why the argument is refused."""
        with pytest.raises(ControllerFailed) as caught, self.start():
            pass
        return caught.value.message


def allowed(mid: Mid) -> list[int]:
    return [EOS] if mid.verb == STOP else mid.allowed


@pytest.fixture(scope="session")
def substring(program: Callable[[str], Program], vocab: Vocab) -> Callable[[str | bytes], Substring]:
    """Makes a controller from an argument."""
    return lambda argument: Substring(
        program("substring"), vocab, argument.encode() if isinstance(argument, str) else argument
    )
