"""Which texts a controller lets a model write, byte by byte, without a model."""

from __future__ import annotations

import random
import time
import weakref
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from aicirt.contract.abi import Verb
from aicirt.contract.errors import AiciError, ControllerFailed
from aicirt.contract.messages import StepInput
from pyaici.bundled import find_controller
from pyaici.client.capabilities import MASK_ONLY
from pyaici.client.masks import apply_row
from pyaici.client.runtime import Runtime
from pyaici.client.step import MidResult, Row
from pyaici.tokens import Vocabulary

_END = 256
#: tokens that are told in one step
_AT_ONCE = 4096


def byte_vocabulary() -> Vocabulary:
    """One token for each byte, and one that ends the text."""
    tokens = [*(bytes([byte]) for byte in range(256)), b""]
    return Vocabulary(tokens, {_END: "</s>"}, eos=(_END,), name="bytes")


@dataclass(frozen=True, slots=True)
class Place:
    """After a text: the bytes that may follow, and whether the text may end. After one that is over: none."""

    next: bytes
    may_end: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """On one text. `good` bytes of it are the beginning of a text, and `place` is behind them."""

    accepted: bool
    good: int
    place: Place


class Texts:
    """A controller with its argument in a real aicirt. Use as a context manager.

    ::

        with Texts("kbnf", "start ::= 'a'+ '.';") as texts:
            assert texts.judge(b"aa.").accepted

    Raises, as every method does, what the controller ends with: ArgumentError if it refuses the argument.
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
            #: seconds that the controller needed for its argument, and for the first mask
            self.prepared = time.perf_counter() - began
            began = time.perf_counter()
            walk = Walk(self, 1)
            self.first = time.perf_counter() - began
            #: what the controller printed when it read its argument
            self.log = walk.log
            #: before the first byte
            self.start = walk.places[0]
            walk.close()
        except BaseException:
            self.close()
            raise

    def judge(self, text: bytes) -> Verdict:
        """Is it a whole text?"""
        if (place := self.after(text)) is not None:
            return Verdict(place.may_end, len(text), place)
        good, bad = 0, len(text)  # the first `good` bytes are a beginning, the first `bad` are none
        best = self.start
        while bad - good > 1:
            middle = (good + bad) // 2
            if (place := self.after(text[:middle])) is not None:
                good, best = middle, place
            else:
                bad = middle
        return Verdict(False, good, best)

    def after(self, text: bytes) -> Place | None:
        """None if no text begins so."""
        walk = Walk(self, 1)
        try:
            for at in range(0, len(text), _AT_ONCE):
                if not walk.places[0].next:
                    return None
                walk.write([(0, text[at : at + _AT_ONCE])])
            return walk.places[0]
        except ControllerFailed as error:
            if "does not allow it here" in error.message:
                return None
            raise
        finally:
            walk.close()

    def walk(self, count: int) -> Walk:
        """So many texts that are written side by side."""
        return Walk(self, count)

    def close(self) -> None:
        """Ends the runtime."""
        self._end()

    def __enter__(self) -> Texts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, count: int) -> list[int]:
        return [
            self._runtime.instantiate(self._module, self._arg, capabilities=MASK_ONLY, seed=1)
            for _ in range(count)
        ]

    def _step(self, inputs: Iterable[StepInput]) -> tuple[dict[int, MidResult], str]:
        """Answers of all, and what was printed."""
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
        #: of each text
        self.places: list[Place] = [Place(b"", False)] * count
        self.log = self._tell([(i, b"") for i in range(count)])

    def write(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        """Appends to texts, which are named by number. Raises ControllerFailed if one may not go on so."""
        self._tell(pieces)

    def close(self) -> None:
        self._texts._runtime.free(self._seqs)

    def _tell(self, pieces: Sequence[tuple[int, bytes]]) -> str:
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
        raise AiciError("the controller does more than to say which texts may come")
    allowed = _allowed(answer.row)
    return Place(bytes(allowed[allowed < _END].astype(np.uint8)), bool((allowed == _END).any()))


def _allowed(row: Row) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    logits = np.zeros(_END + 1)
    apply_row(logits, row)
    return np.flatnonzero(np.isfinite(logits))


#: how often a text that is not empty ends where it may, before it is long enough
_ENDING = 0.1
#: when it is long enough, what closes brackets and quotes comes before other bytes: by rank
_CLOSING = [b"}])>", b"\"'", b";.\n", b"", b" \t,=:+-*/&|", b"([{<"]
#: how often it goes on at random nevertheless, to get out where this order leads round in circles
_STRAYING = 0.2
#: texts that are begun for one that comes to its end
_ATTEMPTS = 20


def sample_texts(texts: Texts, count: int, *, length: int, seed: int) -> list[bytes]:
    """So many texts, some of them equal; fewer, if few come to their end.

    A text goes on at random for `length` bytes, or less; then it is brought to its end, if that can be done
    in five times as many.
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
            walk.write(pieces)
    finally:
        walk.close()
    return ended


def _next(place: Place, size: int, length: int, rng: random.Random) -> int | None:
    """None if the text ends here."""
    if not place.next or (place.may_end and (size >= length or (size and rng.random() < _ENDING))):
        return None
    if size < length or rng.random() < _STRAYING:
        return _at_random(place.next, rng)
    rank = min(map(_rank, place.next))
    return rng.choice([byte for byte in place.next if _rank(byte) == rank])


def _rank(byte: int) -> int:
    return next((rank for rank, members in enumerate(_CLOSING) if byte in members), 3)


def _at_random(allowed: bytes, rng: random.Random) -> int:
    """First a kind of byte, then one of it: there are many letters, and one quote."""
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
