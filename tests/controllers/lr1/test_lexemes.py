"""Grammars whose lexemes run into each other, against all texts up to a length, found one by one."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

from aicirt.contract.errors import ControllerFailed
from lab.oracles.earley import Rules, accepts
from lab.oracles.lr1_rules import lexed_as_yacc, lexemes, random_lexed_rules
from tests.controllers.lr1.conftest import Grammar
from tests.thorough import cases

Make = Callable[[str], Grammar]


def completion(made: Grammar, prefix: str) -> str | None:
    """A whole text with this beginning, found by following the masks."""
    guest = made.start()
    made.state(guest, [])
    for byte in prefix[:-1].encode():
        made.state(guest, [byte])
    queue = [(guest, prefix)]
    for guest, text in queue:
        state = made.state(guest, list(text[-1].encode()))
        if state.end:
            return text
        if len(queue) < 300:
            queue += [(guest.fork(byte), text + chr(byte)) for byte in state.next]
    return None


def test_random_lexemes(grammar: Make) -> None:
    rng, compared, near, far = random.Random(8), 0, 0, 0
    texts = {
        blanks: [
            "".join(t) for n in range(7) for t in itertools.product("abc " if blanks else "abc", repeat=n)
        ]
        for blanks in (False, True)
    }
    while compared < cases(2, 5):
        rules, blanks = random_lexed_rules(rng)
        used = {s for bodies in rules.values() for body in bodies for s in body}

        def accepted(text: str, rules: Rules = rules, blanks: bool = blanks, used: set[str] = used) -> bool:
            names = lexemes(text, blanks, used)
            return names is not None and accepts(rules, "S", names)

        language = {text for text in texts[blanks] if accepted(text)}
        made = grammar(lexed_as_yacc(rules, blanks))
        try:
            made.start()
        except ControllerFailed as error:
            if "not the 0 that" in error.message or "derives itself" in error.message:
                continue
            assert not language, (lexed_as_yacc(rules, blanks), error.message)
            continue
        compared += 1
        beginnings = {text[:n] for text in language for n in range(len(text) + 1)}
        prefixes = [""]
        for _ in range(4):
            longer = []
            for prefix in prefixes:
                state = made.after(prefix.encode())
                assert state is not None, (lexed_as_yacc(rules, blanks), prefix)
                assert state.end == accepted(prefix), (lexed_as_yacc(rules, blanks), prefix)
                expected = {c for c in "abc " if prefix + c in beginnings}
                found = set(state.next.decode())
                assert expected <= found, (lexed_as_yacc(rules, blanks), prefix, expected, found)
                for c in found - expected:  # all its texts may be longer than those that were looked at
                    whole = completion(made, prefix + c)
                    assert whole is None or accepted(whole), (lexed_as_yacc(rules, blanks), prefix + c, whole)
                    far += whole is None
                    near += whole is not None
                longer += [prefix + c for c in sorted(found)]
            prefixes = longer[:40]
    assert far <= near // 2, "most beginnings that are allowed can be seen to have an end"


def test_a_lexeme_with_many_states_may_end_far_away(grammar: Make) -> None:
    """The states up to the end are too many to search."""
    made = grammar('%%\ns: A "!" ;\nA: "/[ab]*a[ab]{11}c/" ;\n')
    assert made.accepts("baabbabbbaabac!") and not made.accepts("bbabbaabbabbbc!")
