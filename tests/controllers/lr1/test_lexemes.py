"""Grammars whose lexemes run into each other, against all texts up to a length, found one by one."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable

from aicirt.contract.errors import ControllerFailed
from tests.controllers.lr1.conftest import Grammar
from tests.controllers.lr1.earley import Rules, accepts

Make = Callable[[str], Grammar]

#: what a terminal of the reference looks like; patterns in the order in which they are preferred
KEYWORDS = {"k": "a", "l": "ab", "m": "b", "n": "ba"}
PATTERNS = {"p": "a+", "q": "[ab]+c", "r": "b?a*", "t": "(ab)*c"}


def lexemes(text: str, blanks: bool, used: set[str]) -> str | None:
    """Returns the text as terminals, one character each; None if it cannot be split.

    The longest lexeme that may still be one is taken, and must be one: nothing shorter is tried.
    """
    names, at = "", 0
    while at < len(text):
        end = at
        while end < len(text) and _is_beginning(text[at : end + 1], blanks, used):
            end += 1
        lexeme, at = text[at:end], end
        found = [k for k, word in KEYWORDS.items() if k in used and word == lexeme]
        found += [
            p for p, pattern in PATTERNS.items() if lexeme and p in used and re.fullmatch(pattern, lexeme)
        ]
        if blanks and re.fullmatch(" +", lexeme):
            found.append("")
        if not found:
            return None
        names += found[0]
    return names


def _is_beginning(text: str, blanks: bool, used: set[str]) -> bool:
    """Returns whether `text` is the beginning of a lexeme."""
    if any(word.startswith(text) for k, word in KEYWORDS.items() if k in used):
        return True
    tails = ["".join(t) for n in range(4) for t in itertools.product("abc", repeat=n)]
    return (blanks and not text.strip(" ")) or any(
        re.fullmatch(pattern, text + tail) for p, pattern in PATTERNS.items() if p in used for tail in tails
    )


def random_case(rng: random.Random) -> tuple[Rules, bool]:
    terminals = rng.sample([*KEYWORDS, *PATTERNS], 4)
    rules: Rules = {}
    for name in "ST":
        bodies = {
            tuple(rng.choice([*terminals, "S", "T"]) for _ in range(rng.randint(1, 3))) for _ in range(2)
        }
        bodies.add((rng.choice(terminals),))
        rules[name] = sorted(bodies)
    return rules, rng.random() < 0.4


def as_yacc(rules: Rules, blanks: bool) -> str:
    used = {s for bodies in rules.values() for body in bodies for s in body}
    lines = ['SKIP: "/ +/" ;'] if blanks else []
    lines += [f'{p}: "/{pattern}/" ;' for p, pattern in PATTERNS.items() if p in used]
    for name, bodies in rules.items():
        texts = [" ".join(f'"{KEYWORDS[s]}"' if s in KEYWORDS else s for s in body) for body in bodies]
        lines.append(f"{name}: {' | '.join(texts)} ;")
    return "%start S\n%expect 0\n%%\n" + "\n".join(lines)


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
    while compared < 5:
        rules, blanks = random_case(rng)
        used = {s for bodies in rules.values() for body in bodies for s in body}

        def accepted(text: str, rules: Rules = rules, blanks: bool = blanks, used: set[str] = used) -> bool:
            names = lexemes(text, blanks, used)
            return names is not None and accepts(rules, "S", names)

        language = {text for text in texts[blanks] if accepted(text)}
        made = grammar(as_yacc(rules, blanks))
        try:
            made.start()
        except ControllerFailed as error:
            if "conflicts, not the 0" in error.message or "derives itself" in error.message:
                continue
            assert not language, (as_yacc(rules, blanks), error.message)
            continue
        compared += 1
        beginnings = {text[:n] for text in language for n in range(len(text) + 1)}
        prefixes = [""]
        for _ in range(4):
            longer = []
            for prefix in prefixes:
                state = made.after(prefix.encode())
                assert state is not None, (as_yacc(rules, blanks), prefix)
                assert state.end == accepted(prefix), (as_yacc(rules, blanks), prefix)
                expected = {c for c in "abc " if prefix + c in beginnings}
                found = set(state.next.decode())
                assert expected <= found, (as_yacc(rules, blanks), prefix, expected, found)
                for c in found - expected:  # all its texts may be longer than those that were looked at
                    whole = completion(made, prefix + c)
                    assert whole is None or accepted(whole), (as_yacc(rules, blanks), prefix + c, whole)
                    far += whole is None
                    near += whole is not None
                longer += [prefix + c for c in sorted(found)]
            prefixes = longer[:40]
    assert far <= near // 2, "most beginnings that are allowed can be seen to have an end"
