"""The known defects of other engines, each with its reason; a campaign counts how often each is met.

A mask of another engine that differs from the oracle in any other way is a failure.
"""

from __future__ import annotations

from lab.exactness.languages import Lexed
from lab.exactness.walk import Case, Defect, Difference, Unusable
from lab.oracles.grammars.expressions import Grammar, nullable, terminals_of
from lab.oracles.grammars.properties import (
    every_rule_has_a_text,
    is_cyclic,
    is_recursive,
)


def _kbnf_hangs(case: Case) -> bool:
    bad = ("without", "early")
    grammar: Grammar = case.grammar
    return (
        is_cyclic(grammar)
        or not every_rule_has_a_text(grammar)
        or any(t.kind in bad and nullable(t.regex) for t in terminals_of(grammar))
    )


def _has_empty_terminals(grammar: Grammar) -> bool:
    return any(
        terminal.kind == "parts" or (terminal.kind == "regex" and nullable(terminal.regex))
        for terminal in terminals_of(grammar)
    )


def _kbnf_is_narrow(difference: Difference) -> bool:
    grammar = difference.case.grammar
    return is_recursive(grammar) or _has_empty_terminals(grammar)


def _ended_within(difference: Difference) -> bool:
    """Returns whether a text was complete within the last token."""
    before, last = difference.before, difference.last
    return any(difference.case.language.complete(before[:-cut]) for cut in range(1, len(last)))


def _goes_only_forward(difference: Difference) -> bool:
    """Returns whether the token needs a lexeme that ends although it could have gone on."""
    language, before, token = difference.case.language, difference.before, difference.token
    if not isinstance(language, Lexed):
        return False
    return not (language.forward.alive(before + token) if token else language.forward.complete(before))


KNOWN: list[Defect | Unusable] = [
    Unusable(
        "kbnf",
        "hangs",
        "does not return for rules that refer directly to themselves, also if only `#e'a*'`, which is never "
        "empty, is beside them; also allows the beginnings of expressions without a text",
        _kbnf_hangs,
    ),
    Defect(
        "kbnf",
        "ends within a token",
        "ends a text that was complete within the last token",
        _ended_within,
    ),
    Defect(
        "kbnf",
        "misses texts",
        "misses the end of some texts of recursive rules, such as `bbab` with "
        "`start ::= (#e'b' | start) #e'b'? 'a' | #e'b' start;`, and forbids first bytes where patterns may "
        "be empty, such as `c` with `start ::= #'[ac]*' | 'a' 'a';`, and those of all `#substrs` but one",
        _kbnf_is_narrow,
    ),
    Defect(
        "xgrammar",
        "forbids tokens of recursive rules",
        'forbids some longer tokens, such as `abab` after `bbb` with `root ::= "bbb" root "ab" | "ab"`',
        lambda d: not d.wide and d.case.grammar is not None and is_recursive(d.case.grammar),
    ),
    Defect(
        "xgrammar",
        "begins rules without a text",
        "allows the beginnings of rules without a text",
        lambda d: d.wide and d.case.grammar is not None and not every_rule_has_a_text(d.case.grammar),
    ),
    Unusable(
        "llguidance",
        "rules without a text",
        "allows the beginnings of rules without a text",
        lambda case: case.grammar is not None and not every_rule_has_a_text(case.grammar),
    ),
    Defect(
        "llguidance",
        "dead ends",
        'also allows lexemes after which no text can be completed, such as `b` with `/b+/ "b"`',
        lambda d: d.wide and bool(d.token) and d.case.grammar is not None,
    ),
    Defect(
        "llguidance",
        "ignored text at the edges",
        "ignores nothing before the first lexeme and after the last one",
        lambda d: not d.wide and (text := d.before + d.token) != text.strip(b" "),
    ),
    Defect(
        "llguidance",
        "empty before ignored text",
        "reads a terminal as empty before ignored text although it could begin there: allows ` bcb`, but not "
        '`bcb`, with `/[bc]*/ "b" "c" "b"`',
        lambda d: (
            d.wide and d.case.kind == "lark" and b" " in d.before and _has_empty_terminals(d.case.grammar)
        ),
    ),
    Defect(
        "llguidance",
        "lexemes go only forward",
        "forbids a lexeme that ends where it last matched, once it has gone on: `abc` with "
        '`start: AB "c"` and `AB: /(ab|abcb)/`',
        lambda d: not d.wide and _goes_only_forward(d),
    ),
    Defect(
        "llguidance",
        "the empty part",
        "the empty text is a part of any text",
        lambda d: d.case.kind == "substring" and d.wide and d.before == d.token == b"",
    ),
    Defect(
        "outlines-core",
        "forbids matches",
        "finds the match that a search would report first, and counts a match one byte late: of `|a` it "
        "forbids `a`",
        lambda d: not d.wide,
    ),
]
