"""Engines that follow texts under the masks of a JSON schema, each in a child process.

An engine is any `Contestant`. For one of your own, `--engine package.module:function` names a function that
is called with an `Arena` and a schema, and returns a contestant for the schema. All engines get the same
vocabulary, and are asked for the same style, `", "` and `": "`.
"""

from __future__ import annotations

import importlib
import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from typing import Any

import numpy as np
import xgrammar
from llguidance import LLMatcher
from numpy.typing import NDArray
from outlines_core.json_schema import build_regex_from_schema

from aicirt.contract.errors import AiciError
from aicirt.settings import WorkerConfig
from lab.contestants import Contestant, Refused
from lab.contestants.grammar_cases import Arena, Controllers
from lab.contestants.native import Llguidance, OutlinesCore, Xgrammar
from lab.exactness.cases import NO_FORCING
from lab.inputs.vocabularies import vocabulary
from lab.measurement.local_worker import LocalWorker, load_for_guests
from pyaici.bundled import find_controller
from pyaici.tokens import Vocabulary

Maker = Callable[[Arena, Any], Contestant]
#: tokens beside the 256 bytes: the most frequent ones of a real vocabulary
_PIECES = 744
#: tokens that an engine may take to end a text that it has begun
_MAX_STEPS = 1500
#: bytes that bring a text to its end
_CLOSING = b'"}]0:, 1-.enu'


@cache
def words() -> Vocabulary:
    """Returns all bytes, and the first longer tokens of a vocabulary of 32 000."""
    real = vocabulary("32k")
    longer = [text for token, text in enumerate(real.tokens) if len(text) > 1 and token not in real.special]
    tokens = [bytes([byte]) for byte in range(256)] + list(dict.fromkeys(longer))[:_PIECES]
    return Vocabulary([*tokens, b""], special_names={len(tokens): "</s>"}, eos=(len(tokens),))


def _aici(arena: Arena, schema: Any) -> Contestant:
    return arena.aici("json_schema", json.dumps({"schema": schema, "whitespace": "spaced"}))


def _llguidance(arena: Arena, schema: Any) -> Contestant:
    style = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
    if isinstance(schema, dict):
        schema = {**schema, "x-guidance": style}
    # its masks would have only one way to split a text that is forced
    grammar = f"{NO_FORCING}start: %json {json.dumps(schema)}"
    return Llguidance(arena.natives, LLMatcher.grammar_from_lark(grammar))


def _xgrammar(arena: Arena, schema: Any) -> Contestant:
    def compile_with(compiler: xgrammar.GrammarCompiler) -> xgrammar.CompiledGrammar:
        return compiler.compile_json_schema(
            json.dumps(schema), any_whitespace=False, separators=(", ", ": "), strict_mode=False
        )

    return Xgrammar(arena.natives, compile_with)


def _outlines(arena: Arena, schema: Any) -> Contestant:
    try:
        return OutlinesCore(arena.natives, build_regex_from_schema(json.dumps(schema), "[ ]?"))
    except (ValueError, TypeError) as error:
        raise Refused(str(error)) from error


MAKERS: dict[str, Maker] = {
    "aici": _aici,
    "llguidance": _llguidance,
    "xgrammar": _xgrammar,
    "outlines-core": _outlines,
}


def maker(name: str) -> Maker:
    """Returns the maker of an engine by its name or as `module:function`. Raises ValueError."""
    if name in MAKERS:
        return MAKERS[name]
    module, _, function = name.partition(":")
    try:
        found: Maker = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"{name!r} is neither one of {', '.join(MAKERS)} nor module:function ({error})"
        ) from error
    return found


class Follower:
    """An engine with a schema. Masks are bytes with a bit for each token, and for the end, lowest first."""

    def __init__(self, make: Callable[[Any], Contestant]) -> None:
        self._make = make
        self._contestant: Contestant | None = None
        self._tokens, self._end = words().tokens, words().eos[0]

    def compile(self, schema: Any) -> str | None:
        """Compiles a schema. Returns the reason if the engine refuses it."""
        self.close()
        try:
            self._contestant = self._make(schema)
            self._contestant.compile()
        except (Refused, ValueError) as error:
            self._contestant = None
            return str(error) or type(error).__name__
        return None

    def walk(self, tokens: Sequence[int]) -> list[bytes]:
        """Returns the masks before each token and after the last one, up to the first that forbids its token.

        An engine that fails on the way allows nothing there.
        """
        return [np.packbits(mask, bitorder="little").tobytes() for mask in self._follow(tokens)]

    def accepts(self, text: bytes) -> bool:
        """Returns whether the engine allows a whole text, byte by byte, and its end."""
        masks = list(self._follow(text))
        return len(masks) == len(text) + 1 and bool(masks[-1][self._end])

    def ending(self, tokens: Sequence[int], seed: int) -> bytes | None:
        """Returns a random text that begins with these tokens; None if the engine brings none to its end."""
        rng = random.Random(seed)
        masks = list(self._follow(tokens))
        if len(masks) <= len(tokens):
            return None
        taken, mask = list(tokens), masks[-1]
        for _ in range(_MAX_STEPS):
            if mask[self._end]:
                return b"".join(self._tokens[token] for token in taken)
            allowed = np.flatnonzero(mask).tolist()
            if not allowed:
                return None
            closing = [byte for byte in _CLOSING if mask[byte]]  # the first tokens are the bytes
            if closing and rng.random() < 0.8:
                taken.append(closing[0] if rng.random() < 0.6 else rng.choice(closing))
            else:
                taken.append(rng.choice(allowed))
            mask = self._next(taken[-1])
        return None

    def close(self) -> None:
        """Frees the schema."""
        if self._contestant is not None:
            self._contestant.close()
            self._contestant = None

    def _follow(self, tokens: Sequence[int]) -> Iterator[NDArray[np.bool_]]:
        mask = self._next(None)
        yield mask
        for token in tokens:
            if not mask[token]:
                return
            mask = self._next(token)
            yield mask

    def _next(self, token: int | None) -> NDArray[np.bool_]:
        """Returns the mask after a token, or that of a new text."""
        assert self._contestant is not None
        mask = np.zeros(len(self._tokens), np.bool_)
        try:
            if token is None:
                self._contestant.reset()
            else:
                self._contestant.accept(token)
            self._contestant.mask()
            row = self._contestant.row()
        except (Refused, AiciError, RuntimeError):
            return mask
        if not row:  # only the end is allowed
            mask[self._end] = True
        else:
            mask[:] = np.unpackbits(np.frombuffer(row, np.uint8), bitorder="little")[: len(mask)]
        return mask


@contextmanager
def follower(name: str) -> Iterator[Follower]:
    """Makes the follower of an engine; for a child process."""
    make = maker(name)
    loaded = load_for_guests(words(), masks_only=True)
    # nothing here is about time
    config = WorkerConfig.with_overrides({"init_ms": 10_000, "mid_ms": 10_000, "max_templates": 1})
    with LocalWorker(loaded, config=config) as worker:
        arena = Arena(words(), loaded, worker, Controllers(find_controller("json_schema").parent))
        with closing(Follower(lambda schema: make(arena, schema))) as found:
            yield found
