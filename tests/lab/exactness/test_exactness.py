"""Random cases of each engine, as in the campaign `exactness`, and the detection of wrong masks."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from aicirt.wasm import Program
from lab.exactness.checker import KINDS, checker
from lab.exactness.defects import KNOWN
from lab.exactness.languages import (
    Agreeing,
    Derived,
    Earley,
    Listed,
    OraclesDiffer,
    Valid,
    matched,
)
from lab.exactness.peers import Llguidance
from lab.exactness.walk import Case, Defect, Result, Walk
from lab.oracles.grammars.expressions import Choice, Grammar, Sequence, cat, literal, star, text
from lab.oracles.grammars.kbnf import kbnf
from lab.oracles.grammars.vocabularies import LETTERS, few_tokens
from tests.thorough import cases

#: cases of each engine: 49 in all, or 4000
CASES = {"kbnf": 7, "gbnf": 8, "lark": 6, "lr1": 8, "regex": 8, "substring": 7, "json_schema": 5}
CASES = {kind: cases(count, long=4000 // 49 * count) for kind, count in CASES.items()}

Programs = Callable[[str], Program]


@pytest.mark.parametrize("kind", KINDS)
def test_random_cases(program: Programs, kind: str) -> None:
    masks = refused = 0
    with checker(kind, program(kind)) as check:
        for number in range(CASES[kind]):
            case, result = check(random.Random(f"{kind}/{number}"))
            assert not result.flaws, "\n".join([f"case {number}", case.source, *result.flaws])
            masks, refused = masks + result.masks, refused + result.refused
    assert masks > CASES[kind] and refused < CASES[kind] / 2


def test_cases_are_reproducible(program: Programs) -> None:
    with checker("regex", program("regex")) as check:
        first, again, other = (check(random.Random(seed)) for seed in (5, 5, 6))
    assert first[0].source == again[0].source != other[0].source
    assert first[1] == again[1]


ABC = Listed([b"abc", b"ab"])


def walk(program: Programs, case: Case, known: list[Defect] | None = None) -> Result:
    return Walk(case, program("regex"), random.Random(0), known or []).run()


def test_a_wrong_mask_is_a_failure(program: Programs) -> None:
    assert not walk(program, Case("abc?", few_tokens(), ABC)).flaws
    (narrow, *_) = walk(program, Case("abc", few_tokens(), ABC)).flaws
    assert narrow.startswith(("token b'ab': our mask", "token <end>: our mask forbids"))
    (wide, *_) = walk(program, Case("abca?", few_tokens(), Listed([b"abc"]))).flaws
    assert "our mask allows it, the oracle forbids it\ntext so far: " in wide


def test_a_refused_language_with_texts_is_a_failure(program: Programs) -> None:
    (flaw,) = walk(program, Case("[a&&b]", few_tokens(), ABC)).flaws
    assert "refuses a language that has texts" in flaw
    assert not walk(program, Case("[a&&b]", few_tokens(), Listed([]))).flaws


def test_open_tokens_are_followed_to_an_invalid_text(program: Programs) -> None:
    unknown = Listed([], complete=lambda text: text == b"aab")
    (flaw, *_) = walk(program, Case("a*b", few_tokens(), unknown)).flaws
    assert "leads to a text that is not valid" in flaw or "our mask" in flaw


def test_defects_of_peers_are_counted_if_they_are_known(program: Programs) -> None:
    peer = Llguidance(few_tokens())
    case = Case("abc?", few_tokens(), ABC, [(peer, 'start: "a" "b" "b"?')])
    (flaw, *_) = walk(program, case).flaws
    assert "llguidance" in flaw and "no known defect" in flaw
    known = [Defect("llguidance", "other text", "this test gives it another grammar", lambda _: True)]
    result = walk(program, case, known)
    assert not result.flaws and result.counts["llguidance: other text"] > 0
    assert result.counts["llguidance: masks"] > 0


def test_oracles_that_differ_are_a_failure(program: Programs) -> None:
    differ = Agreeing(Derived(text("ab")), Listed([b"abc"]))
    with pytest.raises(OraclesDiffer):
        differ.complete(b"ab")
    (flaw, *_) = walk(program, Case("ab", few_tokens(), differ)).flaws
    assert "two oracles disagree" in flaw


def test_a_text_that_stops_is_compared(program: Programs) -> None:
    grammar: Grammar = {"start": Choice((literal("a"), Sequence((literal("ab"), literal("c")))))}
    language = Earley(grammar, "start", LETTERS)
    case = Case(kbnf(grammar), few_tokens(), language, stops=True)
    assert not Walk(case, program("kbnf"), random.Random(1), []).run().flaws
    (flaw, *_) = (
        Walk(Case(kbnf(grammar), few_tokens(), language), program("kbnf"), random.Random(1), []).run().flaws
    )
    assert "our mask" in flaw


def test_derivatives() -> None:
    language = Derived(cat(text("a"), star(text("bc"))))
    assert language.complete(b"abcbc") and not language.complete(b"ab")
    assert language.alive(b"ab") and not language.alive(b"ac")


def test_numbers_that_are_too_large_are_left_open() -> None:
    language = Valid({"type": "integer", "maximum": 5})
    assert language.complete(b"1e1000000000") is None
    assert language.complete(b"8001e13726") is None
    assert language.complete(b"9" * 5000) is None
    assert language.complete(b"1e100") is False


def test_references_without_end_are_left_open() -> None:
    language = Valid({"type": "string", "if": {"$ref": "#"}})
    assert language.valid(b'"a"') is language.complete(b'"a"') is None
    assert Valid({"type": "string"}).valid(b'"a"') is True


@pytest.mark.parametrize("exact", [False, True])
def test_patterns_that_take_too_long_are_left_open(exact: bool) -> None:
    texts = matched(r"(a|a|a)*[bc]d", "abcd", exact=exact)
    assert texts.complete(b"aabd") is True
    assert texts.complete(b"a" * 60 + b"d") is None
    assert texts.complete(b"aabd") is texts.alive(b"aabe") is None


def test_known_defects_have_reasons() -> None:
    assert all(known.reason and known.name for known in KNOWN)
    assert len({(known.peer, known.name) for known in KNOWN}) == len(KNOWN)
