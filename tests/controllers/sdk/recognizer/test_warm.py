"""Constraints with warmed tables give the same answers, without computing them again."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicirt.contract.abi import CAP_TOKENIZER, SAMPLE, STOP
from aicirt.contract.errors import ControllerFailed
from aicirt.wasm import Program
from aicirt.wasm.snapshot import changed as changed_pages
from aicirt.wasm.snapshot import start_from, take_snapshot
from lab.oracles.patterns import Pattern, patterns
from lab.runners.host import BITMASK, Guest, Mid, Vocab
from tests.controllers.sdk.recognizer.automata import Automaton, automata, vocabularies
from tests.controllers.sdk.recognizer.test_constraint import ANY_CONSTRAINT, CONSTRAINT, UNIT
from tests.thorough import cases

WORDS = [b"the", b" the", b"12", b"abc", b"</", b"tag", b"\xc3", "é".encode(), "中文".encode(), b'"', b"\\u"]


@pytest.fixture(scope="module")
def vocab() -> Vocab:
    tokens = [bytes([byte]) for byte in range(256)] + WORDS
    return Vocab([*tokens, b"<eos>"], eos=[len(tokens)])


def said(guest: Guest, tokens: list[int]) -> tuple[object, ...]:
    """All of an answer, or the error."""
    try:
        mid: Mid = guest.step(tokens).row
    except ControllerFailed as failure:
        return ("failed", failure.message)
    bits = None if mid.bits is None else mid.bits.tobytes()
    return mid.verb, mid.kind, mid.token, bits, mid.tokens


def same_walk(cold: Guest, warm: Guest, vocab: Vocab, rng: random.Random, most: int) -> None:
    """Asserts bitwise equal answers along a random text."""
    tokens: list[int] = []
    for _ in range(most):
        expected = said(cold, tokens)
        assert said(warm, tokens) == expected
        if expected[0] == SAMPLE and expected[1] == BITMASK:
            allowed = [t for t in vocab.view.tokens_of(_words(expected[3])) if t not in vocab.special]
            if not allowed:
                return
            tokens = [rng.choice(allowed)]
        elif expected[0] == SAMPLE:
            tokens = [expected[2]]  # type: ignore[list-item]
        elif expected[0] in (STOP, "failed"):
            return
        else:
            tokens = expected[4]  # type: ignore[assignment]


def _words(data: object) -> object:
    import numpy as np

    assert isinstance(data, bytes)
    return np.frombuffer(data, np.uint32)


@given(automata(), vocabularies(), st.sampled_from([0, 1, 5, 255]), st.randoms(use_true_random=False))
@settings(max_examples=cases(70, 200), deadline=None)
@pytest.mark.parametrize("way", [CONSTRAINT, ANY_CONSTRAINT])
def test_random_automata(
    program: Callable[[str], Program],
    way: int,
    automaton: Automaton,
    vocab: Vocab,
    budget: int,
    rng: random.Random,
) -> None:
    argument = automaton.argument(way, budget)
    cold, warm = (Guest(program("table"), vocab, argument, capabilities={}) for _ in range(2))
    calls = warm.warm(rng.choice([1, 3, 10_000]))
    assert calls <= 3 * len(automaton.rows) + 10
    same_walk(cold, warm, vocab, rng, 12)
    if way == CONSTRAINT:
        assert all(int(line) <= budget * UNIT for line in warm.take_log().split())
    cold.instance.close()
    warm.instance.close()


PATTERNS = [
    r"[a-z]+",
    r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?",
    r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"',
    r"[a-z0-9._%+-]+@[a-z0-9.-]+\.[a-z]{2,}",
    r"(?until:</tag>)",
    r"(.|a)*b.{200}",
    r"\p{Greek}+ \w{3,20} é*",
    r"(?i)stra(ß|ss)e|中文?",
]


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_regular_expressions(
    program: Callable[[str], Program], vocab: Vocab, pattern: str, exact: bool
) -> None:
    capabilities = {CAP_TOKENIZER: int(exact)}
    rng = random.Random(pattern)
    pristine = Guest(program("regex"), vocab, pattern, capabilities=capabilities)
    pristine.warm()
    for number in range(8):
        cold = Guest(program("regex"), vocab, pattern, capabilities=capabilities)
        warm = pristine.fork(100 + number)
        same_walk(cold, warm, vocab, rng, 40)
        cold.instance.close()
        warm.instance.close()
    pristine.instance.close()


SCHEMA = """{"type": "object", "required": ["name"], "properties": {
    "name": {"type": "string", "maxLength": 20}, "n": {"type": "integer"},
    "kind": {"enum": ["ab", "abc", "b"]}, "all": {"type": "array", "items": {"$ref": "#"}}}}"""


@pytest.mark.parametrize(
    ("controller", "argument"), [*(("regex", pattern) for pattern in PATTERNS), ("json_schema", SCHEMA)]
)
def test_sequences_learn_from_each_other(
    program: Callable[[str], Program], vocab: Vocab, controller: str, argument: str
) -> None:
    """Each sequence starts with what all earlier ones have found, and gives the answers of a new one."""
    template = Guest(program(controller), vocab, argument, capabilities={})
    learned = 0
    for seed in range(8):
        for again in (False, True):
            cold = Guest(program(controller), vocab, argument, capabilities={})
            warm = template.fork(100 + seed)
            same_walk(cold, warm, vocab, random.Random(seed), 30)
            found = warm.found()
            assert not (found and again), "the same text has nothing new"
            if found:
                learned += template.learn(found)
            cold.instance.close()
            warm.instance.close()
    assert learned
    template.instance.close()


TEXT = {"type": "string", "maxLength": 1024}
ENTRY = {"name": TEXT, "parent": TEXT, "size": {"type": "number"}, "media_type": TEXT}


@pytest.mark.parametrize(
    ("controller", "argument", "text"),
    [
        ("regex", r"([a-z]{900}|[0-9]{4500})(ab|cd){1,40}!", b"1" * 4500 + b"abcdab!"),
        # a table of its states doubles while it is warmed, by more pages than there are states
        (
            "json_schema",
            json.dumps({"properties": ENTRY}),
            b'{"name":"%s","parent":"","media_type":"c/d"}' % (b"a" * 900),
        ),
    ],
)
def test_sequences_find_what_warming_has_left(
    program: Callable[[str], Program], vocab: Vocab, controller: str, argument: str, text: bytes
) -> None:
    """Warming visits states near the start, while there is room. What a sequence finds has its own room."""
    template = Guest(program(controller), vocab, argument, capabilities={})
    assert template.warm() > 100
    for again in (False, True):
        guest = template.fork(2)
        guest.step()
        for byte in text:
            guest.step([byte])
        found = guest.found()
        assert bool(found) != again
        template.learn(found)
        guest.instance.close()
    template.instance.close()


def test_findings_do_not_depend_on_free_text(program: Callable[[str], Program], vocab: Vocab) -> None:
    """Texts that a pattern does not distinguish lead to the same findings."""
    texts = [b'"abc" 1234', b'"the 12 tags" 9876', b'"" 0000']
    found = []
    for text in texts:
        guest = Guest(program("regex"), vocab, r'"[^"]*" [0-9]{4}', capabilities={})
        guest.step()
        for byte in text:
            guest.step([byte])
        found.append(guest.found())
        guest.instance.close()
    assert found[0] == found[1] and b"0000" not in found[0] and found[0].endswith(b"0")
    assert set(found[2]) <= set(found[0])


def test_names_are_warmed_before_nested_values(program: Callable[[str], Program], vocab: Vocab) -> None:
    """All properties have their masks, although values of any depth are possible after the first byte."""
    names = [f"{letter}_is_the_name_of_a_property" for letter in "abcdefghijklmnop"]
    schema = {"properties": {"any": {}, **{name: {"type": "integer"} for name in names}}}
    template = Guest(program("json_schema"), vocab, json.dumps(schema), capabilities={})
    template.warm()
    for name in names:
        guest = template.fork(2)
        guest.step()
        for byte in f'{{"{name}":1'.encode():
            guest.step([byte])
        assert not guest.found()
        guest.instance.close()
    template.instance.close()


@pytest.mark.parametrize(
    "data", [b"\0", b"\0\0\1\0a", b"\5\0\1\0a", b"\0\0\xff\xffa", b"\0\0\1\0X", bytes(30_000)]
)
def test_invalid_findings_change_no_answer(
    program: Callable[[str], Program], vocab: Vocab, data: bytes
) -> None:
    cold, warm = (Guest(program("regex"), vocab, "[a-z]+[0-9]{3}", capabilities={}) for _ in range(2))
    warm.learn(data)
    same_walk(cold, warm, vocab, random.Random(7), 20)


@given(patterns(), st.randoms(use_true_random=False))
@settings(max_examples=cases(20, 60), deadline=None)
def test_random_regular_expressions(
    program: Callable[[str], Program], vocab: Vocab, pattern: Pattern, rng: random.Random
) -> None:
    try:
        cold, warm = (Guest(program("regex"), vocab, pattern.ours, capabilities={}) for _ in range(2))
    except ControllerFailed:
        return  # no text matches it
    warm.warm(rng.choice([2, 10_000]))
    same_walk(cold, warm, vocab, rng, 20)
    cold.instance.close()
    warm.instance.close()


@pytest.mark.parametrize("exact", [False, True])
def test_choices(program: Callable[[str], Program], vocab: Vocab, exact: bool) -> None:
    rng = random.Random(5)
    argument = "the 12 tags\nthe abc\nother\nélan\n" + "\n".join(f"text {n}" for n in range(500))
    for _ in range(5):
        cold, warm = (
            Guest(program("choice"), vocab, argument, capabilities={CAP_TOKENIZER: int(exact)})
            for _ in range(2)
        )
        calls = warm.warm()
        assert calls == 1 if exact else calls > 50
        same_walk(cold, warm, vocab, rng, 30)
        cold.instance.close()
        warm.instance.close()


def own_memory(program: Program, vocab: Vocab, pattern: str, *, is_warm: bool) -> tuple[int, int]:
    """Returns the bytes that a sequence changes in 30 steps, and its number of calls of the tokenizer."""
    first = Guest(program, vocab, pattern, capabilities={CAP_TOKENIZER: 1})
    if is_warm:
        first.warm()
    guest = first.fork(2)
    guest._adopt(start_from(take_snapshot(first.instance)))
    guest.tokenized.clear()
    rng, tokens = random.Random(4), []
    for _ in range(30):
        mid = guest.step(tokens).row
        if mid.verb == STOP:
            break
        text = [token for token in mid.allowed if token not in vocab.special]
        tokens = mid.tokens or ([mid.token] if mid.token >= 0 else [rng.choice(text)])
    changed = sum(length for _, length in changed_pages(guest.instance))
    for each in (first, guest):
        each.instance.close()
    return changed, len(guest.tokenized)


def test_known_answers_are_not_computed_again(program: Callable[[str], Program], vocab: Vocab) -> None:
    """Counts the memory that a sequence changes, and its calls of the tokenizer."""
    pattern = r'\{"name": "[a-z]{1,8}", "number": [0-9]{1,4}\}'
    cold, asked = own_memory(program("regex"), vocab, pattern, is_warm=False)
    warm, asked_again = own_memory(program("regex"), vocab, pattern, is_warm=True)
    assert asked_again == 0 < asked
    assert warm < cold


def test_warming_ends_despite_unlimited_states(program: Callable[[str], Program], vocab: Vocab) -> None:
    """Warming builds some of the 2^200 states, in about a megabyte."""
    guest = Guest(program("regex"), vocab, r"(.|a)*b.{200}", capabilities={})
    before = guest.instance.size
    calls = guest.warm()
    assert 20 < calls < 5000
    assert guest.instance.size - before <= 2 << 20
    guest.instance.close()


def test_warming_skips_states_without_a_token(program: Callable[[str], Program]) -> None:
    """With such a vocabulary, the sequence fails where no token continues, and not before."""
    vocab = Vocab([b"a", b"b", b"<eos>"], eos=[2])
    guest = Guest(program("regex"), vocab, "(a|bxa)*", capabilities={})
    guest.warm()
    assert 0 in guest.step().row.allowed
    with pytest.raises(ControllerFailed, match="no token here"):
        guest.step([1])
