"""Oracles: languages that say of every text whether it is complete, and whether some text continues it.

Each is too simple to share errors with the engines. An answer None means that brute force did not decide.
"""

from __future__ import annotations

import codecs
import functools
import itertools
import json
import re
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any, Protocol

import regex
from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for
from referencing.exceptions import Unresolvable

from lab.oracles.grammars.expressions import NONE, Grammar, Regex, Terminal, derive, nullable
from lab.oracles.grammars.oracle import (
    Column,
    Oracle,
    Plain,
    Rules,
    after,
    close,
    first_column,
    is_complete,
)

#: texts that are looked at to find an end of a beginning
_MAX_TRIED = 120
#: CPU time for one answer, for which the packages `re` and `regex` may need any time
_MATCH_SECONDS = 1.0


class Language(Protocol):
    """The texts that a controller may write."""

    def complete(self, text: bytes) -> bool | None:
        """Returns whether this is a text of the language."""

    def alive(self, text: bytes) -> bool | None:
        """Returns whether a text of the language begins so."""


class Earley:
    """The texts of a grammar over bytes."""

    def __init__(self, grammar: Grammar, start: str, alphabet: str) -> None:
        self._oracle, self._text = Oracle(grammar, start, alphabet), b""

    def _go(self, text: bytes) -> bool:
        same = 0
        while same < min(len(text), len(self._text)) and text[same] == self._text[same]:
            same += 1
        self._oracle.pop(len(self._text) - same)
        self._text = self._text[:same]
        if not self._oracle.push(text[same:]):
            return False
        self._text = text
        return True

    def complete(self, text: bytes) -> bool:
        return self._go(text) and self._oracle.complete

    def alive(self, text: bytes) -> bool:
        return self._oracle.has_text and self._go(text)


class _Lexemes(Plain):
    """Rules over terminals, which are numbers from 1 on."""

    def __post_init__(self) -> None:
        self.numbers: dict[Terminal, int] = {}
        super().__post_init__()

    def terminal(self, terminal: Terminal) -> Any:
        number = self.numbers.setdefault(terminal, len(self.numbers) + 1)
        bodies: list[tuple[Any, ...]] = [(), (number,)] if nullable(terminal.regex) else [(number,)]
        return self._named(terminal, lambda: bodies)


@dataclass(frozen=True)
class _Place:
    """Columns at the start of a lexeme. If it has begun, also the rests of those that are possible there.

    `guards`: the rests of longer lexemes instead of those that have ended. None of them may become complete.
    """

    columns: tuple[Column, ...]
    begun: dict[int, Regex] = field(default_factory=dict)
    guards: frozenset[Regex] = frozenset()

    def key(self) -> tuple[Any, ...]:
        """Returns a key that is equal only for equal places, as long as both exist."""
        return (*map(id, self.columns), frozenset(self.begun.items()), self.guards)


class Lexed:
    """The texts of a grammar in the dialect of Lark.

    Where a lexeme begins, all that are possible are read at the same time. The longest complete one is read.
    Without `gives_back`, a lexeme that could go on has to.
    """

    #: the number of ignored text
    _IGNORED = 0

    def __init__(
        self, grammar: Grammar, start: str, alphabet: str, ignored: Regex = NONE, *, gives_back: bool = True
    ) -> None:
        self._gives_back = gives_back
        self._made = partial(Lexed, grammar, start, alphabet, ignored)
        plain = _Lexemes(grammar, alphabet)
        self._rules: Rules = plain.rules
        self._regexes = {number: terminal.regex for terminal, number in plain.numbers.items()}
        self._alphabet, self._ignored = alphabet, ignored
        self._places: dict[str, list[_Place]] = {}
        self._alive: dict[str, bool | None] = {}
        column = first_column(self._rules, start)
        self._places[""] = [_Place((column,))] if column else []

    @functools.cached_property
    def forward(self) -> Lexed:
        """The same without `gives_back`."""
        return self._made(gives_back=False)

    def _ended(self, place: _Place) -> _Place | None:
        """Returns the place after the lexeme that has begun."""
        ended = {number for number, rest in place.begun.items() if nullable(rest)}
        step, columns = after(place.columns[-1], ended), place.columns
        if not step:
            return _Place(columns) if self._IGNORED in ended else None
        column = close(self._rules, columns, step)
        if self._IGNORED in ended:
            column |= columns[-1]
        return _Place((*columns, column))

    def _step(self, place: _Place, character: str) -> Iterator[_Place]:
        guards = {derive(rest, character) for rest in place.guards} - {NONE}
        if any(map(nullable, guards)):
            return
        if place.begun:
            on = {number: derive(rest, character) for number, rest in place.begun.items()}
            if on := {number: rest for number, rest in on.items() if rest != NONE}:
                yield _Place(place.columns, on, frozenset(guards))
                if not self._gives_back:
                    return
            ended = self._ended(place)
            if ended is None or any(map(nullable, on.values())):
                return
            place, guards = ended, guards | set(on.values())
        numbers = {b[d] for _, b, d, _ in place.columns[-1] if d < len(b) and isinstance(b[d], int)}
        begun = {number: derive(self._regexes[number], character) for number in numbers}  # type: ignore[index]
        begun[self._IGNORED] = derive(self._ignored, character)
        if begun := {number: rest for number, rest in begun.items() if rest != NONE}:
            yield _Place(place.columns, begun, frozenset(guards))  # type: ignore[arg-type]

    def _places_after(self, text: str) -> list[_Place]:
        if text not in self._places:
            before = self._places_after(text[:-1])
            self._places[text] = [after for place in before for after in self._step(place, text[-1])]
        return self._places[text]

    def complete(self, text: bytes) -> bool:
        places = self._places_after(text.decode())
        ended = [self._ended(place) if place.begun else place for place in places]
        return any(place is not None and is_complete(place.columns[-1]) for place in ended)

    def alive(self, text: bytes) -> bool | None:
        begin = text.decode()
        if begin not in self._alive:
            self._alive[begin] = self._find_end(begin)
        return self._alive[begin]

    def _find_end(self, begin: str) -> bool | None:
        queue = [begin] if self._places_after(begin) else []
        seen: set[frozenset[Any]] = set()
        for tried, text in enumerate(queue):
            if self.complete(text.encode()) or self._alive.get(text):
                return True
            if tried == _MAX_TRIED:
                return None
            for longer in (text + c for c in self._alphabet):
                places = self._places_after(longer)
                # more ignored text leads to the same place
                if places and (key := frozenset(place.key() for place in places)) not in seen:
                    seen.add(key)
                    queue.append(longer)
        return False


class Derived:
    """The texts of a regular expression, by derivatives."""

    def __init__(self, of: Regex) -> None:
        self._rests = {b"": of}

    def _rest(self, text: bytes) -> Regex:
        if text not in self._rests:
            self._rests[text] = derive(self._rest(text[:-1]), chr(text[-1]))
        return self._rests[text]

    def complete(self, text: bytes) -> bool:
        return nullable(self._rest(text))

    def alive(self, text: bytes) -> bool:
        return self._rest(text) != NONE


def _is_cut(text: bytes) -> bool | None:
    """Returns whether the last character is cut; None if no text of UTF-8 begins so."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(text)
        text.decode()
    except UnicodeDecodeError as error:
        return True if error.reason == "unexpected end of data" else None
    return False


def _characters(text: bytes, known: str) -> Iterable[str]:
    """Yields the text, or texts that end its last character if that is cut."""
    if not _is_cut(text):
        yield text.decode()
        return
    for character in known:
        data = character.encode()
        for size in range(1, len(data)):
            if text.endswith(data[:size]):
                try:
                    yield (text[:-size] + data).decode()
                except UnicodeDecodeError:
                    continue


class Matched:
    """The texts that match a pattern, as another package says. `known` has the characters of texts.

    `partial` says whether a match may begin so. Without it a few continuations are tried. `open_if_empty`:
    nothing is known about the empty text. Once an answer has taken too long, nothing more is known, as the
    packages take time that is exponential in the text.
    """

    def __init__(
        self,
        fullmatch: Callable[[str], object],
        known: str,
        partial: Callable[[str], object] | None = None,
        *,
        open_if_empty: bool = False,
    ) -> None:
        self._fullmatch, self._known, self._partial = fullmatch, known, partial
        self._open_if_empty = open_if_empty
        self._alive: dict[bytes, bool | None] = {}
        self._too_slow = False

    def _knows(self, text: str) -> bool:
        """Returns whether there are no others, such as U+001C, which `re` alone takes for blanks."""
        return set(text) <= set(self._known)

    def _any(self, matches: Callable[[str], object], texts: Iterable[str]) -> bool | None:
        """Returns whether one of the texts matches. It can be called in the main thread only."""
        if self._too_slow:
            return None
        signal.signal(signal.SIGVTALRM, _late)
        signal.setitimer(signal.ITIMER_VIRTUAL, _MATCH_SECONDS)
        try:
            return any(map(matches, texts))
        except TimeoutError:
            self._too_slow = True
            return None
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def complete(self, text: bytes) -> bool | None:
        if not text and self._open_if_empty:
            return None
        try:
            whole = text.decode()
        except UnicodeDecodeError:
            return False
        return self._any(self._fullmatch, [whole]) if self._knows(whole) else None

    def alive(self, text: bytes) -> bool | None:
        if text not in self._alive:
            self._alive[text] = self._find_end(text)
        return self._alive[text]

    def _find_end(self, text: bytes) -> bool | None:
        cut = _is_cut(text)
        if cut is None:
            return False
        wholes = list(_characters(text, self._known))
        if not all(map(self._knows, wholes)):
            return None
        if self._partial is not None:
            found = self._any(self._partial, wholes)
            return None if cut and not found else found
        ends = [""] + ["".join(t) for n in (1, 2) for t in itertools.product(self._known, repeat=n)]
        return self._any(self._fullmatch, (whole + end for whole in wholes for end in ends)) or None


def _late(_signal: int, _frame: object) -> None:
    raise TimeoutError


def matched(pattern: str, known: str, *, exact: bool) -> Matched:
    """Returns the texts of a pattern.

    `exact`: it has no anchors, so that the package `regex` decides on beginnings. Otherwise the pattern is in
    the syntax of `re`.
    """
    if not exact:
        # `\B` matches in an empty text, but not for Python before 3.14
        return Matched(re.compile(pattern).fullmatch, known, open_if_empty=r"\B" in pattern)
    fullmatch = functools.partial(regex.compile(pattern, regex.V0).fullmatch, timeout=_MATCH_SECONDS)
    return Matched(fullmatch, known, functools.partial(fullmatch, partial=True))


class OraclesDiffer(Exception):
    """Two oracles disagree about a text."""


@dataclass(frozen=True)
class Agreeing:
    """Two oracles that must agree about complete texts; the first one decides on beginnings."""

    first: Language
    second: Language

    def complete(self, text: bytes) -> bool | None:
        found, other = self.first.complete(text), self.second.complete(text)
        if None not in (found, other) and found != other:
            raise OraclesDiffer(f"two oracles disagree about whether {text!r} is complete: {found}, {other}")
        return found

    def alive(self, text: bytes) -> bool | None:
        return self.first.alive(text)


class Listed:
    """The texts are these. With `complete`, there are also others, about which it decides."""

    def __init__(self, texts: Iterable[bytes], complete: Callable[[bytes], bool] | None = None) -> None:
        self._texts = set(texts)
        self._begun = {text[:size] for text in self._texts for size in range(len(text) + 1)}
        self._complete = complete

    def complete(self, text: bytes) -> bool:
        return self._complete(text) if self._complete else text in self._texts

    def alive(self, text: bytes) -> bool | None:
        return text in self._begun or (None if self._complete else False)


#: the most digits of integers that the oracle decides on: `jsonschema` writes numbers in its messages, which
#: Python refuses beyond 4 300 digits
_MAX_DIGITS = 4000


def _number(text: str) -> int | Decimal:
    """Raises ArithmeticError if the number has too many digits."""
    number = Decimal(text)
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    if exponent + len(digits) > _MAX_DIGITS:
        raise OverflowError(f"{text[:20]}... has too many digits")
    return int(number) if number == number.to_integral_value() else number


class Valid:
    """The texts of JSON that are valid by `jsonschema`; whether a text begins so is not known.

    Numbers are decimals: `jsonschema` divides floats with an error, so that 0.59 is no multiple of 0.01.
    """

    def __init__(self, schema: Any) -> None:
        exact = json.loads(json.dumps(schema), parse_float=_number)
        self._is_valid = validator_for(schema, Draft202012Validator)(exact).is_valid

    def valid(self, text: bytes) -> bool | None:
        """Returns whether the text is valid, or None if `jsonschema` follows a reference without end."""
        try:
            value = json.loads(text, parse_float=_number, parse_int=_number)
            return self._is_valid(value)
        except ValueError:
            return False
        except (RecursionError, Unresolvable, ArithmeticError):
            return None
        except BaseException as error:
            # `rpds`, which `jsonschema` uses, raises it instead of a RecursionError; it has no public name
            if type(error).__name__ != "PanicException":
                raise
            return None

    def complete(self, text: bytes) -> bool | None:
        """Returns None for valid texts: they may also be spelled, or ordered, otherwise."""
        return False if self.valid(text) is False else None

    def alive(self, text: bytes) -> bool | None:
        return None
