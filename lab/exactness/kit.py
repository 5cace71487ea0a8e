"""Compares the masks of several engines for one JSON schema, and finds out which of them is wrong.

Engines are walked along the same valid text. Where one allows a token that another forbids, it is asked for
texts that begin so, and `jsonschema` judges them. A valid text proves that the token was to be allowed, and
an invalid one that the engine which wrote it allows too much. What no text decides stays open.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from lab.exactness.followers import words
from lab.exactness.languages import Valid
from lab.measurement.child import ChildError
from lab.oracles.json_schema.expressions import translated
from lab.oracles.json_schema.orders import ways

#: what is wrong with a mask: a valid text is forbidden, or an invalid one allowed. ORDER, SPELLING: it is
#: forbidden, but the same value in another order of properties, or with other blanks and escapes, is not
NARROW, WIDE, ORDER, SPELLING = "forbids_valid", "allows_invalid", "order", "spelling"
#: no text of the engines that allow the token came to an end, or `jsonschema` does not know
OPEN = "open"
#: tokens that are judged of each place and text, and random texts for each of them
_PER_PLACE, _PER_TEXT, _TRIED = 2, 60, 3
#: limits of calls, s of processor time
_COMPILE_S, _CALL_S = 10.0, 20.0
#: orders of a value that are tried
_ORDERS = 24


class Caller(Protocol):
    """Calls the methods of a `Follower`, mostly in a child process."""

    def call(self, method: str, *arguments: Any, seconds: float) -> Any:
        """Returns the result. Raises ChildError if there is none after so many seconds."""


class Flaw(NamedTuple):
    """An error of an engine. `before` and `token` are what was compared, `text` the witness."""

    kind: str
    schema: str
    before: str
    token: str
    text: str


@dataclass
class Score:
    """Findings about an engine, in all schemas."""

    schemas: int = 0
    #: schemas that it refuses, with the reason, and those that it does not compile or follow in time
    refused: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    masks: int = 0
    #: tokens about which it and another engine differ, and those of them that were judged
    different: int = 0
    judged: int = 0
    #: for each kind of flaw, and for OPEN, how often which token
    tokens: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    #: the first flaw of each kind and schema
    flaws: dict[tuple[str, str], Flaw] = field(default_factory=dict)

    def add(self, flaw: Flaw) -> None:
        """Counts a flaw."""
        self.tokens[flaw.kind][flaw.token] += 1
        self.flaws.setdefault((flaw.kind, flaw.schema), flaw)


class Truth:
    """`jsonschema`, as far as it knows: it leaves formats, and two members of one name, to engines."""

    def __init__(self, schema: Any) -> None:
        self._language = Valid(translated(schema))
        self._has_formats = '"format"' in json.dumps(schema)

    def valid(self, text: bytes) -> bool | None:
        """Returns whether a text is valid; None if this is not known."""
        found = self._language.valid(text)
        return None if found and (self._has_formats or _repeats_name(text)) else found


def _integer(text: str) -> int | float:
    """Reads a number: 1.0 and 1e0 are other spellings of 1."""
    number = float(text)
    return int(number) if number.is_integer() else number


def _repeats_name(text: bytes) -> bool:
    repeated = []
    json.loads(text, object_pairs_hook=lambda pairs: repeated.append(len(dict(pairs)) < len(pairs)))
    return any(repeated)


class Comparison:
    """Compares engines schema by schema. Results are in `scores`."""

    def __init__(self, engines: Mapping[str, Caller], seed: int = 0) -> None:
        self._engines, self._seed = engines, seed
        self.scores = {name: Score() for name in engines}
        self._tokens, self._end = words().tokens, words().eos[0]
        #: tokens by their first byte, the shortest first
        self._first: dict[int, list[int]] = defaultdict(list)
        for token in sorted(range(self._end), key=lambda token: len(self._tokens[token])):
            self._first[self._tokens[token][0]].append(token)

    def schema(self, name: str, schema: Any, texts: Sequence[str]) -> None:
        """Compares all engines that compile a schema, along valid texts."""
        usable = []
        for engine, score in self.scores.items():
            score.schemas += 1
            try:
                refused = self._call(engine, "compile", schema, seconds=_COMPILE_S)
            except ChildError as error:
                score.failed[name] = str(error.args[0])
                continue
            if refused is None:
                usable.append(engine)
            else:
                score.refused[name] = refused
        truth = Truth(schema)
        for number, text in enumerate(texts):
            rng = random.Random(f"{self._seed} {name} {number}")
            try:
                self._text(name, schema, truth, usable, text, rng)
            except ChildError as error:
                # it has lost the schema: the others go on with the next text
                engine = str(error.args[-1])
                self.scores[engine].failed[name] = str(error.args[0])
                usable.remove(engine)

    def _text(
        self, name: str, schema: Any, truth: Truth, engines: Sequence[str], text: str, rng: random.Random
    ) -> None:
        tokens = self._split(text.encode(), rng)
        walks: dict[str, list[NDArray[np.bool_]]] = {}
        for engine in engines:
            rows = self._call(engine, "walk", tokens, seconds=_CALL_S)
            bits = [np.unpackbits(np.frombuffer(row, np.uint8), bitorder="little") for row in rows]
            walks[engine] = [row[: len(self._tokens)].astype(bool) for row in bits]
            self.scores[engine].masks += len(rows)
        left = _PER_TEXT
        for place in range(len(tokens) + 1):
            masks = {engine: walk[place] for engine, walk in walks.items() if place < len(walk)}
            if len(masks) < 2:
                return
            some, all_ = np.logical_or.reduce([*masks.values()]), np.logical_and.reduce([*masks.values()])
            different = np.flatnonzero(some & ~all_).tolist()
            for engine in masks:
                self.scores[engine].different += len(different)
            chosen = rng.sample(different, min(len(different), _PER_PLACE, max(left, 0)))
            if place < len(tokens) and tokens[place] in different:
                chosen = [tokens[place], *chosen]  # the text itself is forbidden by some
            left -= len(chosen)
            for token in dict.fromkeys(chosen):
                self._judge(name, truth, masks, tokens[:place], token, rng)

    def _judge(
        self,
        name: str,
        truth: Truth,
        masks: Mapping[str, NDArray[np.bool_]],
        before: list[int],
        token: int,
        rng: random.Random,
    ) -> None:
        """Finds out who is right about a token."""
        written = b"".join(self._tokens[one] for one in before)
        said = "<end>" if token == self._end else repr(self._tokens[token])

        def flaw(kind: str, text: bytes) -> Flaw:
            return Flaw(kind, name, written.decode(errors="replace"), said, text.decode(errors="replace"))

        valid: bytes | None = None
        for engine in masks:
            self.scores[engine].judged += 1
        for engine in (engine for engine, mask in masks.items() if mask[token]):
            texts = [written] if token == self._end else self._endings(engine, [*before, token], rng)
            verdicts = [(truth.valid(text), text) for text in texts]
            valid = next((text for verdict, text in verdicts if verdict), valid)
            if invalid := next((text for verdict, text in verdicts if verdict is False), None):
                self.scores[engine].add(flaw(WIDE, invalid))
            elif not any(verdict for verdict, _ in verdicts):
                self.scores[engine].tokens[OPEN][said] += 1
        for engine in (engine for engine, mask in masks.items() if not mask[token]):
            if valid is None:
                continue
            self.scores[engine].add(flaw(self._why(engine, valid), valid))

    def _endings(self, engine: str, tokens: list[int], rng: random.Random) -> list[bytes]:
        texts: list[bytes | None] = [
            self._call(engine, "ending", tokens, rng.getrandbits(32), seconds=_CALL_S) for _ in range(_TRIED)
        ]
        return [text for text in texts if text is not None]

    def _why(self, engine: str, text: bytes) -> str:
        """Returns why an engine forbids a valid text."""
        value = json.loads(text, parse_float=_integer)
        plain = json.dumps(value, ensure_ascii=False)
        for way in dict.fromkeys([plain, *ways(value, _ORDERS)]):
            try:
                encoded = way.encode()
            except UnicodeEncodeError:  # half of a surrogate pair, which UTF-8 cannot encode
                continue
            if self._call(engine, "accepts", encoded, seconds=_CALL_S):
                return SPELLING if way == plain else ORDER
        return NARROW

    def _split(self, text: bytes, rng: random.Random) -> list[int]:
        """Returns tokens of a text: mostly the longest, and some at random."""
        found, place = [], 0
        while place < len(text):
            fitting = [
                token for token in self._first[text[place]] if text.startswith(self._tokens[token], place)
            ]
            token = fitting[-1] if rng.random() < 0.7 else rng.choice(fitting)
            found.append(token)
            place += len(self._tokens[token])
        return found

    def _call(self, engine: str, method: str, *arguments: Any, seconds: float) -> Any:
        try:
            return self._engines[engine].call(method, *arguments, seconds=seconds)
        except ChildError as error:
            error.args = (*error.args, engine)
            raise
