"""The cases of the suite `grammars`: grammars, each with a text and the engines that support it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from llguidance import LLMatcher

from aicirt.wasm import Program
from aicirt.worker.hostapi import LoadedVocabulary
from lab import ROOT
from lab.contestants import Contestant
from lab.contestants.aici import Aici
from lab.contestants.native import Kbnf, Llguidance, Natives, OutlinesCore
from lab.inputs import kbnf_grammars
from lab.inputs.lark import lark_of_yacc
from lab.measurement.local_worker import LocalWorker
from pyaici.bundled import find_grammar
from pyaici.tokens import Vocabulary
from pyaici.toolchain import build_controller
from pyaici.toolchain.zig import Toolchain

#: two files of the C library that is included with the compiler
_C_FILES = ("process/posix_spawn.c", "network/getaddrinfo.c")


class Controllers:
    """Compiled controllers, each built when it is first used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getitem__(self, name: str) -> Path:
        path = self._folder / f"{name}.wasm"
        if not path.exists():
            build_controller(ROOT / "controllers" / name, path)
        return path


def tokenized(loaded: LoadedVocabulary, text: str) -> list[int]:
    """Returns the tokens of a text, from the vocabulary's tokenizer."""
    found: list[int] = np.frombuffer(loaded.tokenize(text.encode()), np.uint32).tolist()
    return found


class Arena:
    """A vocabulary with its native engines, and a worker that runs our controllers with it."""

    def __init__(
        self, vocabulary: Vocabulary, loaded: LoadedVocabulary, worker: LocalWorker, controllers: Controllers
    ) -> None:
        self.natives = Natives(vocabulary, loaded)
        self.worker = worker
        self._loaded = loaded
        self._controllers = controllers
        self._programs: dict[str, Program] = {}

    def tokens(self, text: str) -> Sequence[int]:
        """Tokenizes with the model's own tokenizer."""
        return tokenized(self._loaded, text)

    def aici(self, controller: str, argument: str) -> Aici:
        """Returns a contestant for one of our controllers."""
        if controller not in self._programs:
            self._programs[controller] = self.worker.program(self._controllers[controller])
        return Aici(self.worker, self._programs[controller], argument)

    def llguidance_lark(self, grammar: str) -> Llguidance:
        return Llguidance(self.natives, LLMatcher.grammar_from_lark(grammar))

    def llguidance_regex(self, pattern: str) -> Llguidance:
        return Llguidance(self.natives, LLMatcher.grammar_from_regex(pattern))

    def aici_schema(self, schema: Any) -> Aici:
        return self.aici("json_schema", json.dumps(schema))

    def llguidance_schema(self, schema: Any) -> Llguidance:
        return Llguidance(self.natives, LLMatcher.grammar_from_json_schema(json.dumps(schema)))


@dataclass(frozen=True)
class Case:
    """A grammar with its text and contestants. `quick` is a shorter text for the short form of the suite."""

    name: str
    text: str
    contestants: Callable[[Arena], list[Contestant]]
    quick: str | None = None


def _bundled(name: str) -> str:
    path = find_grammar(f"{name}.y")
    assert path is not None
    return path.read_text()


def _yacc(name: str, text: str) -> Case:
    """Returns the case of a bundled grammar. llguidance gets it in its own syntax."""
    grammar = _bundled(name)
    lark = lark_of_yacc(grammar)
    return Case(
        name,
        text,
        lambda arena: [arena.aici("lr1", grammar), arena.llguidance_lark(lark)],
        quick=text[:120],
    )


def _lark(name: str, text: str) -> Case:
    """Returns the case of a bundled grammar in the syntax of Lark, for both engines."""
    lark = lark_of_yacc(_bundled(name))
    return Case(
        f"{name}_lark",
        text,
        lambda arena: [arena.aici("lark", lark), arena.llguidance_lark(lark)],
        quick=text[:120],
    )


def _regex(name: str, pattern: str, text: str) -> Case:
    def contestants(arena: Arena) -> list[Contestant]:
        return [
            arena.aici("regex", pattern),
            arena.llguidance_regex(pattern),
            OutlinesCore(arena.natives, pattern),
        ]

    return Case(name, text, contestants)


def _kbnf(name: str, grammar: str, text: str) -> Case:
    return Case(
        name,
        text,
        lambda arena: [arena.aici("kbnf", grammar), Kbnf(arena.natives, grammar)],
        quick=text[:120],
    )


def _substring(text: str, part: str) -> Case:
    lark = f"start: %regex {json.dumps({'substring_chars': text})}"
    return Case(
        "substring",
        part,
        lambda arena: [
            arena.aici("substring", json.dumps({"text": text})),
            arena.llguidance_lark(lark),
        ],
        quick=part[:100],
    )


#: a text of 4 kB and a part of it
_ARTICLE = (ROOT / "docs" / "performance.md").read_text()[:4096]
_PART = _ARTICLE[1500:2300]

_REGEXES = (
    _regex(
        "regex_sentence",
        "[A-Z][a-z]+( [a-z]+){3,30}[.!?]",
        "Constrained decoding keeps the output of a model inside a form.",
    ),
    _regex(
        "regex_string",
        r'"([^"\\\x00-\x1f\x7f]|\\(["\\/bfnrt]|u[0-9a-fA-F]{4}))*"',
        '"She said \\"hi\\" twice at the caf\u00e9, \\u00e9 or not, to 12 people."',
    ),
    _regex(
        "regex_time",
        "[0-9]{4}-(0[1-9]|1[0-2])-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]Z",
        "2026-11-20T15:30:00Z",
    ),
)
KBNF = ("kbnf_json", "kbnf_structural")
REGEXES = tuple(case.name for case in _REGEXES)


def cases() -> list[Case]:
    """Returns all cases."""
    library = Toolchain().zig.parent / "lib" / "libc" / "musl" / "src"
    c = "".join((library / name).read_text() for name in _C_FILES)
    # TOML has dates, JSON does not
    project = json.dumps(tomllib.loads((ROOT / "pyproject.toml").read_text()), default=str)
    return [
        _yacc("c", c),
        _lark("c", c),
        _yacc("json", project),
        _kbnf("kbnf_json", kbnf_grammars.JSON, project),
        _kbnf("kbnf_structural", kbnf_grammars.STRUCTURAL, kbnf_grammars.structural_text(20)),
        _substring(_ARTICLE, _PART),
        *_REGEXES,
    ]
