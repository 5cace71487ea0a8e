"""Random grammars for lr1 as rules for an Earley parser, and a lexer that splits texts for them."""

from __future__ import annotations

import random
import re

from lab.oracles.earley import Rules

#: what a terminal of the reference looks like; patterns in the order in which they are preferred
KEYWORDS = {"k": "a", "l": "ab", "m": "b", "n": "ba"}
PATTERNS = {"p": "a+", "q": "[ab]+c", "r": "b?a*", "t": "(ab)*c"}


def lexemes(text: str, blanks: bool, used: set[str]) -> str | None:
    """Returns the text as terminals, one character each; None if it cannot be split.

    As in flex, each lexeme is the longest one that matches.
    """
    names, at = "", 0
    while at < len(text):
        ends = (end for end in range(len(text), at, -1) if _terminals(text[at:end], blanks, used))
        end = next(ends, None)
        if end is None:
            return None
        names += _terminals(text[at:end], blanks, used)[0]
        at = end
    return names


def _terminals(lexeme: str, blanks: bool, used: set[str]) -> list[str]:
    """Returns the terminals that match, the one that wins first; an empty name for blanks."""
    found = [k for k, word in KEYWORDS.items() if k in used and word == lexeme]
    found += [p for p, pattern in PATTERNS.items() if p in used and re.fullmatch(pattern, lexeme)]
    return [*found, ""] if blanks and not lexeme.strip(" ") else found


def random_lexed_rules(rng: random.Random) -> tuple[Rules, bool]:
    terminals = rng.sample([*KEYWORDS, *PATTERNS], 4)
    rules: Rules = {}
    for name in "ST":
        bodies = {
            tuple(rng.choice([*terminals, "S", "T"]) for _ in range(rng.randint(1, 3))) for _ in range(2)
        }
        bodies.add((rng.choice(terminals),))
        rules[name] = sorted(bodies)
    return rules, rng.random() < 0.4


def lexed_as_yacc(rules: Rules, blanks: bool) -> str:
    used = {s for bodies in rules.values() for body in bodies for s in body}
    lines = ['SKIP: "/ +/" ;'] if blanks else []
    lines += [f'{p}: "/{pattern}/" ;' for p, pattern in PATTERNS.items() if p in used]
    for name, bodies in rules.items():
        texts = [" ".join(f'"{KEYWORDS[s]}"' if s in KEYWORDS else s for s in body) for body in bodies]
        lines.append(f"{name}: {' | '.join(texts)} ;")
    return "%start S\n%expect 0\n%%\n" + "\n".join(lines)


def random_rules(rng: random.Random) -> Rules:
    """A few rules over the terminals a to d; every nonterminal can end."""
    names = "STU"[: rng.randint(1, 3)]
    rules: Rules = {}
    for name in names:
        alternatives = {
            tuple(rng.choice("abcd" + names) for _ in range(rng.randint(0, 3)))
            for _ in range(rng.randint(1, 3))
        }
        alternatives.add(tuple(rng.choice("abcd") for _ in range(rng.randint(0, 2))))
        rules[name] = sorted(alternatives)
    return rules


def as_yacc(rules: Rules) -> str:
    """The same in the syntax of yacc."""
    lines = []
    for name, alternatives in rules.items():
        texts = [" ".join(s if s in rules else f'"{s}"' for s in a) or "%empty" for a in alternatives]
        lines.append(f"{name}: {' | '.join(texts)} ;")
    return "%expect 0\n%%\n" + "\n".join(lines)
