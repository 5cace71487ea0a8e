"""Walks along texts with two engines, and finds witnesses of which engine is wrong where masks differ."""

from __future__ import annotations

import datetime
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jsonschema
import numpy as np

from lab.oracles.json_schema.differences import (
    DEAD_END,
    OURS_NARROW,
    OURS_WIDE,
    THEIRS_NARROW,
    THEIRS_WIDE,
    Difference,
    known,
)
from lab.oracles.json_schema.expressions import translated
from lab.oracles.json_schema.peer import Mask, Pair
from lab.oracles.json_schema.schema_engine import SPACED, Engine

#: bytes that bring a text to its end
_CLOSING = b'"}]0:, 1-.enu'
#: of one schema so many differences of each class are looked into, and of no class
_JUDGED = 2
#: texts that are tried for one, and their length
_TRIED, _LONGEST = 6, 600
#: how many places of ours are searched for an end
_MAX_PLACES = 50_000
#: the formats that verdicts depend on
_FORMATS = jsonschema.FormatChecker(("date",))


@_FORMATS.checks("date-time", raises=ValueError)
def _has_date(value: object) -> bool:
    return not isinstance(value, str) or bool(datetime.date.fromisoformat(value[:10]))


@dataclass(frozen=True)
class Unknown:
    """A difference of an unknown class, or whose witness contradicts its class."""

    difference: Difference
    name: str
    verdict: str
    text: bytes | None

    def __str__(self) -> str:
        one = self.difference
        schema = json.dumps(one.schema, ensure_ascii=False)
        return f"{self.verdict} ({self.name}): {one.before!r} {one.token!r} {self.text!r} {schema}"


@dataclass
class Judge:
    """Judges differences. Call `compile`, then `walk` for each text; results accumulate."""

    pair: Pair
    engine: Engine
    masks: int = 0
    classes: Counter[str] = field(default_factory=Counter)
    unknown: list[Unknown] = field(default_factory=list)

    def compile(self, schema: Any) -> dict[str, str]:
        """Compiles the schema and returns the reasons of the engines that refuse it."""
        refused = self.pair.compile(schema)
        if not refused:
            self.engine.compile(schema, SPACED)
            kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
            self._schema, self._validator = schema, kind(translated(schema), format_checker=_FORMATS)
            self._judged = Counter[str]()
        return refused

    def walk(self, rng: random.Random, tokens: Sequence[int] = (), further: int = 0) -> None:
        """Walks along tokens while both engines allow them, then `further` random steps."""
        self.pair.reset()
        before, path = b"", list(tokens)
        while True:
            ours, theirs = self.pair.masks()
            self.masks += 1
            for mask, more in ((ours & ~theirs, True), (theirs & ~ours, False)):
                for token in np.flatnonzero(mask).tolist():
                    self._compare(rng, before, token, more)
            both = ours & theirs
            both[self.pair.eos] = False
            if path and both[path[0]]:
                token = path.pop(0)
            elif further and not path and both.any():
                token, further = int(rng.choice(np.flatnonzero(both))), further - 1
            else:
                return
            before += self.pair.tokens[token]
            self.pair.accept(token)

    def _compare(self, rng: random.Random, before: bytes, token: int, ours: bool) -> None:
        text = self.pair.tokens[token] if token != self.pair.eos else b""
        difference = Difference(self._schema, before, text, ours)
        of = known(difference)
        name = of.name if of else "unknown"
        self._judged[name] += 1
        if self._judged[name] <= _JUDGED:
            verdict, witness = self._verdict(rng, difference, token)
            if of is None and verdict == DEAD_END:
                name = DEAD_END
            elif of is None or not of.explains(verdict, witness):
                self.unknown.append(Unknown(difference, name, verdict, witness))
        self.classes[name] += 1

    def _verdict(self, rng: random.Random, one: Difference, token: int) -> tuple[str, bytes | None]:
        """Returns the verdict with its witness: an invalid text of ours, or a valid text of theirs."""
        witness, valid = None, False
        for _ in range(_TRIED if one.token else 1):
            end: bytes | None = b""
            if one.token and one.ours:
                end = self._our_end(rng, one.before + one.token)
            elif one.token:
                end = self._their_end(rng, token, self._our_end(rng, one.before) or b"")
            if end is None:
                continue
            witness = one.before + one.token + end
            valid = self._valid(witness)
            if valid != one.ours:
                break
        if one.ours:
            return (THEIRS_NARROW if valid else OURS_WIDE), witness
        return (OURS_NARROW if valid else THEIRS_WIDE if witness is not None else DEAD_END), witness

    def _valid(self, text: bytes) -> bool:
        try:
            return bool(self._validator.is_valid(json.loads(text)))
        except ValueError:
            return False

    def _our_end(self, rng: random.Random, text: bytes) -> bytes | None:
        """Searches through the allowed texts, and visits each state once."""
        engine = self.engine
        state = engine.initial()
        for byte in text:
            state = engine.append(state, byte)
        seen, end = {state}, bytearray()
        ways = [self._ways(rng, state)]
        while ways[-1] is not None:
            if len(seen) > _MAX_PLACES:
                return None
            way = next((way for way in ways[-1] if way[1] not in seen), None)
            if way is not None:
                end.append(way[0])
                seen.add(way[1])
                ways.append(self._ways(rng, way[1]))
            elif len(ways) > 1:
                ways.pop()
                end.pop()
            else:
                return None
        return bytes(end)

    def _ways(self, rng: random.Random, state: int) -> Iterator[tuple[int, int]] | None:
        """Returns the allowed bytes, each with the next state; None if the text may end here."""
        allowed, may_end = self.engine.row(state)
        if may_end:
            return None
        closing = [byte for byte in _CLOSING if byte in allowed]
        if closing and rng.random() < 0.3:
            rng.shuffle(closing)
        others = [byte for byte in allowed if byte < 128] or allowed
        rng.shuffle(others)
        return ((byte, self.engine.append(state, byte)) for byte in (*closing, *others))

    def _their_end(self, rng: random.Random, token: int, hint: bytes) -> bytes | None:
        """Follows our ending where it is allowed, since a random search rarely finds a required character."""
        pair, end = self.pair, b""
        matcher = pair.their_copy(token)
        for step in range(len(hint) + _LONGEST):
            if matcher.is_accepting():
                return end
            if matcher.is_error():
                return None
            mask: Mask = pair.their_mask(matcher)
            if step < len(hint):
                chosen = pair.bytes[hint[step]]
                if not mask[chosen]:
                    continue
            else:
                allowed = np.flatnonzero(mask).tolist()
                if not allowed:
                    return None
                closing = [pair.bytes[byte] for byte in _CLOSING if mask[pair.bytes[byte]]]
                chosen = _choose(rng, allowed, closing)
            end += pair.tokens[chosen]
            matcher.consume_token(chosen)
        return None


def _choose(rng: random.Random, allowed: list[int], closing: list[int]) -> int:
    if closing and rng.random() < 0.8:
        return closing[0] if rng.random() < 0.6 else rng.choice(closing)
    return rng.choice(allowed)
