"""Contestants compute the same masks, and a race reports an engine that forbids a token of the text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from llguidance import LLMatcher

from lab.contestants import Contestant, Refused
from lab.contestants.aici import Aici
from lab.contestants.grammar_cases import Controllers
from lab.contestants.native import Kbnf, Llguidance, Natives, OutlinesCore, Xgrammar
from lab.contestants.race import RaceError, race, steps, walk
from lab.inputs.vocabularies import vocabulary
from lab.measurement.local_worker import LocalWorker, load_for_guests

TEXT = "abbb3"
PATTERN = "ab*[0-9]"


class Makers:
    """Makes a contestant of each engine for a pattern, valid or not."""

    def __init__(self, natives: Natives, worker: LocalWorker, folder: Path) -> None:
        self.natives = natives
        program = worker.program(Controllers(folder)["regex"])
        self.all: dict[str, Callable[[str], Contestant]] = {
            "aici": lambda pattern: Aici(worker, program, pattern),
            "llguidance": lambda pattern: Llguidance(natives, LLMatcher.grammar_from_regex(pattern)),
            "outlines": lambda pattern: OutlinesCore(natives, pattern),
            "kbnf": lambda pattern: Kbnf(natives, f"start ::= #'{pattern}';"),
            "xgrammar": lambda pattern: Xgrammar(natives, lambda compiler: compiler.compile_regex(pattern)),
        }


@pytest.fixture(scope="module")
def makers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Makers]:
    words = vocabulary("32k")
    loaded = load_for_guests(words, masks_only=True)
    with LocalWorker(loaded) as worker:
        yield Makers(Natives(words, loaded), worker, tmp_path_factory.mktemp("controllers"))


def tokens_of(makers: Makers, text: str) -> list[int]:
    """Returns a token for each letter."""
    known = makers.natives.vocabulary.tokens
    return [len(known) - 1 - known[::-1].index(letter.encode()) for letter in text]


def allowed(makers: Makers, row: bytes) -> set[bytes]:
    bits = np.unpackbits(np.frombuffer(row, np.uint8), bitorder="little")
    special = makers.natives.vocabulary.special_names
    return {makers.natives.vocabulary.tokens[t] for t in np.flatnonzero(bits).tolist() if t not in special}


@pytest.mark.parametrize("name", ["llguidance", "outlines", "kbnf", "xgrammar"])
def test_engines_compute_the_same_masks_as_aici(makers: Makers, name: str) -> None:
    ours, other = makers.all["aici"](PATTERN), makers.all[name](PATTERN)
    ours.compile()
    other.compile()
    for _ in range(2):
        ours.reset()
        other.reset()
        for token in tokens_of(makers, TEXT):
            ours.mask()
            other.mask()
            found = allowed(makers, ours.row())
            assert found == allowed(makers, other.row()) and len(found) > 2
            ours.accept(token)
            other.accept(token)


@pytest.mark.parametrize("name", ["aici", "llguidance", "outlines", "kbnf", "xgrammar"])
def test_invalid_pattern_is_refused(makers: Makers, name: str) -> None:
    contestant = makers.all[name]("a(")
    with pytest.raises(Refused):
        contestant.compile()


def test_race_times_every_contestant(makers: Makers) -> None:
    contestants = [make(PATTERN) for make in makers.all.values()]
    results = race(contestants, tokens_of(makers, TEXT), 3)
    assert set(results) == set(makers.all)
    for result in results.values():
        assert len(result.compile_ms) == len(result.rounds) == 3
        assert len(result.mask_us) == len(TEXT)
        assert min(result.mask_us) > 0
        assert result.masks.count == len(TEXT) and result.compilation.count == 3
        assert result.mask_us[1] == sorted(times[1] for times in result.rounds)[1], "the median of three"


def test_forbidden_token_of_the_text_is_an_error(makers: Makers) -> None:
    contestant = makers.all["aici"](PATTERN)
    contestant.compile()
    with pytest.raises(RaceError, match="aici does not allow token 2 of 3"):
        walk(contestant, tokens_of(makers, "aba"))
    with pytest.raises(RaceError, match="aici does not allow token 2 of 3"):
        walk(contestant, tokens_of(makers, "a3a"))  # where the text can only end
    assert len(walk(contestant, tokens_of(makers, TEXT))) == len(TEXT)


def test_masks_stay_the_same_when_tables_are_filled_between_texts(makers: Makers) -> None:
    contestant = makers.all["aici"]("[a-z]+[0-9]([A-Za-z ,.]{0,80}[0-9]){0,9}")
    assert isinstance(contestant, Aici)
    contestant.compile()
    tokens, rows, sizes = tokens_of(makers, TEXT), [], []
    for _ in range(3):
        contestant.reset()
        rows.append([step.row for step in steps(contestant, tokens)])
        sizes.append(contestant.template_bytes)
        contestant.idle()
    assert rows[0] == rows[1] == rows[2] and len(rows[0]) == len(tokens) + 1
    assert sizes[1] > sizes[0], "the template has more tables"
