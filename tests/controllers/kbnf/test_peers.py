"""Masks of random grammars compared with those of the package kbnf, where those are correct."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from tests.controllers.grammars.expressions import (
    Call,
    Expr,
    Grammar,
    Repeat,
    Terminal,
    nullable,
    random_grammar,
)
from tests.controllers.grammars.oracle import Oracle
from tests.controllers.grammars.properties import every_rule_has_a_text, is_cyclic, is_recursive
from tests.controllers.grammars.vocabularies import LETTERS
from tests.controllers.grammars.walk import Controller
from tests.controllers.kbnf.peer import Peer, Step
from tests.controllers.kbnf.test_random import random_terminals
from tests.controllers.kbnf.write import kbnf

Make = Callable[[str], Controller]


def terminals(expr: Expr) -> Iterator[Terminal]:
    if isinstance(expr, Terminal):
        yield expr
    elif not isinstance(expr, Call):
        for part in (expr.part,) if isinstance(expr, Repeat) else expr.parts:
            yield from terminals(part)


def original_comes_back(grammar: Grammar) -> bool:
    """Returns whether the original returns for a grammar.

    It does not return for rules that refer directly to themselves, also if only `#e'a*'`, which is never
    empty, is beside them. It also allows the beginnings of expressions without a text.
    """
    bad = ("without", "early")
    return (
        not is_cyclic(grammar)
        and every_rule_has_a_text(grammar)
        and not any(t.kind in bad and nullable(t.regex) for t in terminals_of(grammar))
    )


def original_is_exact(grammar: Grammar) -> bool:
    """Returns whether the original's masks are exact for a grammar.

    It misses the end of some texts of recursive rules, such as `bbab` with
    `start ::= (#e'b' | start) #e'b'? 'a' | #e'b' start;`, and forbids first bytes where patterns may be
    empty, such as `c` with `start ::= #'[ac]*' | 'a' 'a';`, and those of all `#substrs` but one.
    """
    may_be_empty = any(
        t.kind == "parts" or (t.kind == "regex" and nullable(t.regex)) for t in terminals_of(grammar)
    )
    return not is_recursive(grammar) and not may_be_empty


def terminals_of(grammar: Grammar) -> set[Terminal]:
    return {terminal for expr in grammar.values() for terminal in terminals(expr)}


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    peer = Peer()
    yield peer
    peer.close()


@pytest.mark.parametrize("seed", range(3))
def test_random_grammars(small: Make, peer: Peer, seed: int) -> None:
    rng, compared, exactly, without_answer = random.Random(1000 + seed), 0, 0, 0
    while compared < 120:
        grammar = random_grammar(rng, "start", random_terminals(rng), recursive=rng.random() < 0.6)
        if not original_comes_back(grammar):
            continue
        steps = peer.walk(kbnf(grammar), seed)
        if steps is None:
            without_answer += 1
            continue
        made, oracle = small(kbnf(grammar)), Oracle(grammar, "start", LETTERS)
        exact = original_is_exact(grammar)
        count = compare(made, steps, oracle, exact)
        compared, exactly = compared + count, exactly + exact * count
    assert without_answer < 10 and exactly > 20


def compare(made: Controller, steps: list[Step], oracle: Oracle, exact: bool) -> int:
    """Compares masks: tokens that the original allows are allowed here and, if it is exact, vice versa.

    The original also ends a text that was complete within the last token.
    """
    guest = made.start()
    state, written = made.state(guest, []), b""
    for count, step in enumerate(steps):
        if step.finished != state.over:
            if step.finished:
                last = len(made.bytes_of(steps[count - 1].token))
                assert any(is_whole(oracle, written[:-cut]) for cut in range(1, last)), written
            else:
                assert not exact and is_whole(oracle, written), written
            return count
        assert set(step.mask) <= set(state.tokens), written
        assert not exact or step.mask == state.tokens, written
        if step.token < 0:
            return count + 1
        written += made.bytes_of(step.token)
        state = made.state(guest, [step.token])
    return len(steps)


def is_whole(oracle: Oracle, text: bytes) -> bool:
    assert oracle.push(text)
    complete = oracle.complete
    oracle.pop(len(text))
    return complete
