"""Finds which texts a controller lets a model write, byte by byte, without a model."""

from __future__ import annotations

import random
import time
import weakref
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aicirt.contract.abi import Verb
from aicirt.contract.errors import AiciError, ControllerFailed
from aicirt.contract.messages import StepInput
from aicirt.system.files import Closing
from pyaici.bundled import find_controller
from pyaici.client.arguments import MASK_ONLY
from pyaici.client.masks import apply_row
from pyaici.client.results import MidResult, Row
from pyaici.client.runtime import Runtime
from pyaici.tokens import Vocabulary

_END = 256
#: tokens that are reported in one step
_AT_ONCE = 4096


def byte_vocabulary() -> Vocabulary:
    """Returns a vocabulary with a token for each byte, and one that ends the text."""
    tokens = [*(bytes([byte]) for byte in range(256)), b""]
    return Vocabulary(tokens, {_END: "</s>"}, eos=(_END,), name="bytes")


@dataclass(frozen=True, slots=True)
class Place:
    """The state after a text: the bytes that may follow (none after its end), and whether it may end."""

    next: bytes
    may_end: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a text. Its first `good` bytes begin an accepted text; `place` is after them."""

    accepted: bool
    good: int
    place: Place


class Texts(Closing):
    """A controller with its argument in a real aicirt. Use as a context manager.

    ::

        with Texts("kbnf", "start ::= 'a'+ '.';") as texts:
            assert texts.judge(b"aa.").accepted

    The constructor and every method raise the error that the controller ends with, for example ArgumentError
    if it refuses the argument.
    """

    def __init__(self, controller: str | Path, arg: str | bytes) -> None:
        self._arg = arg
        self._runtime = Runtime(workers=1)
        self._end = weakref.finalize(self, self._runtime.close)
        try:
            self._runtime.register(byte_vocabulary())
            self._module = self._runtime.upload(find_controller(controller)).id
            began = time.perf_counter()
            self._runtime.prepare(self._module, arg, capabilities=MASK_ONLY)
            #: seconds that the controller took to read its argument; `first`: for the first mask
            self.prepared = time.perf_counter() - began
            began = time.perf_counter()
            walk = Walk(self, 1)
            self.first = time.perf_counter() - began
            #: output of the controller while it read its argument
            self.log = walk.log
            #: the place before the first byte
            self.start = walk.places[0]
            walk.close()
        except BaseException:
            self.close()
            raise

    def judge(self, text: bytes) -> Verdict:
        """Returns whether the controller accepts the text as a whole, and how much of it."""
        if (place := self.after(text)) is not None:
            return Verdict(place.may_end, len(text), place)
        good, bad = 0, len(text)  # the first `good` bytes begin a text, the first `bad` bytes do not
        best = self.start
        while bad - good > 1:
            middle = (good + bad) // 2
            if (place := self.after(text[:middle])) is not None:
                good, best = middle, place
            else:
                bad = middle
        return Verdict(False, good, best)

    def after(self, text: bytes) -> Place | None:
        """Returns the place after a text; None if no accepted text begins with it."""
        walk = Walk(self, 1)
        try:
            for at in range(0, len(text), _AT_ONCE):
                if not walk.places[0].next:
                    return None
                walk.append_bytes([(0, text[at : at + _AT_ONCE])])
            return walk.places[0]
        except ControllerFailed as error:
            if "does not allow it here" in error.message:
                return None
            raise
        finally:
            walk.close()

    def walk(self, count: int) -> Walk:
        """Starts `count` texts, which are written side by side."""
        return Walk(self, count)

    def close(self) -> None:
        """Ends the runtime."""
        self._end()

    def _begin(self, count: int) -> list[int]:
        return [
            self._runtime.instantiate(self._module, self._arg, capabilities=MASK_ONLY, seed=1)
            for _ in range(count)
        ]

    def _step(self, inputs: Iterable[StepInput]) -> tuple[dict[int, MidResult], str]:
        """Runs steps until every sequence has answered; returns the answers and the output."""
        answers: dict[int, MidResult] = {}
        log = ""
        left = list(inputs)
        while left:
            result = self._runtime.begin_step(left).wait()
            log += "".join(result.logs.values())
            late = [seq for seq, answer in result.mid.items() if answer.verb == Verb.LATE]
            answers |= {seq: answer for seq, answer in result.mid.items() if answer.verb != Verb.LATE}
            left = [StepInput(seq) for seq in late]
        return answers, log


class Walk:
    """Texts that are written side by side, each in a sequence of its own."""

    def __init__(self, texts: Texts, count: int) -> None:
        self._texts = texts
        self._seqs = texts._begin(count)
        #: the place after each text
        self.places: list[Place] = [Place(b"", False)] * count
        self.log = self._report([(i, b"") for i in range(count)])

    def append_bytes(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        """Appends bytes to texts, by their numbers. Raises ControllerFailed if they are not allowed there."""
        self._report(pieces)

    def close(self) -> None:
        self._texts._runtime.free(self._seqs)

    def _report(self, pieces: Sequence[tuple[int, bytes]]) -> str:
        inputs = [StepInput(self._seqs[i], list(text), 0, len(text) == 1) for i, text in pieces]
        answers, log = self._texts._step(inputs)
        for i, _ in pieces:
            self.places[i] = _place(answers[self._seqs[i]])
        return log


def _place(answer: MidResult) -> Place:
    if answer.verb == Verb.STOP:
        return Place(b"", True)
    if answer.verb == Verb.ERROR:
        assert answer.error is not None
        raise answer.error
    if answer.verb != Verb.SAMPLE or answer.row is None:
        raise AiciError(
            "the controller does more than restrict the text, so its texts cannot be tested or listed"
        )
    allowed = _allowed(answer.row)
    return Place(bytes(allowed[allowed < _END].astype(np.uint8)), bool((allowed == _END).any()))


def _allowed(row: Row) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    logits = np.zeros(_END + 1)
    apply_row(logits, row)
    return np.flatnonzero(np.isfinite(logits))


#: the probability that a non-empty text ends where it may, before it is long enough
_ENDING = 0.1
#: bytes by rank: when a text is long enough, those that close brackets and quotes are preferred
_CLOSING = [b"}])>", b"\"'", b";.\n", b"", b" \t,=:+-*/&|", b"([{<"]
#: the probability of a random byte nevertheless, to escape from cycles
_STRAYING = 0.2
#: the most attempts to complete `count` texts
_ATTEMPTS = 20


def sample_texts(texts: Texts, count: int, *, length: int, seed: int) -> list[bytes]:
    """Returns `count` random texts, some of them equal; fewer if too few come to an end.

    A text goes on at random for up to `length` bytes. Then it is steered to its end, for up to five times as
    many bytes; a text that has not ended by then is dropped.
    """
    rng, found = random.Random(seed), list[bytes]()
    for _ in range(_ATTEMPTS):
        found += _attempt(texts, count - len(found), length, rng)
        if len(found) == count:
            break
    return found


def _attempt(texts: Texts, count: int, length: int, rng: random.Random) -> list[bytes]:
    written = [b""] * count
    ended: list[bytes] = []
    walk = texts.walk(count)
    live = list(range(count))
    try:
        while live:
            pieces = []
            for i in live:
                if (byte := _next(walk.places[i], len(written[i]), length, rng)) is None:
                    ended.append(written[i])
                elif len(written[i]) < 6 * length:
                    pieces.append((i, bytes([byte])))
                    written[i] += bytes([byte])
            live = [i for i, _ in pieces]
            walk.append_bytes(pieces)
    finally:
        walk.close()
    return ended


def _next(place: Place, size: int, length: int, rng: random.Random) -> int | None:
    """Returns the next byte of a text, or None if the text ends here."""
    if not place.next or (place.may_end and (size >= length or (size and rng.random() < _ENDING))):
        return None
    if size < length or rng.random() < _STRAYING:
        return _at_random(place.next, rng)
    rank = min(map(_rank, place.next))
    return rng.choice([byte for byte in place.next if _rank(byte) == rank])


def _rank(byte: int) -> int:
    return next((rank for rank, members in enumerate(_CLOSING) if byte in members), 3)


def _at_random(allowed: bytes, rng: random.Random) -> int:
    """Picks a kind of byte first, then a byte of it, since there are many letters but only one quote."""
    kinds = defaultdict[object, list[int]](list)
    for byte in allowed:
        kinds[_kind(byte)].append(byte)
    usual = [members for kind, members in kinds.items() if kind != "other"]
    return rng.choice(rng.choice(usual or list(kinds.values())))


def _kind(byte: int) -> object:
    c = chr(byte)
    if c.isascii() and c.isalpha():
        return "letter"
    if c.isascii() and c.isdigit():
        return "digit"
    if c in " \n\t":
        return "blank"
    return byte if 32 < byte < 127 else "other"
