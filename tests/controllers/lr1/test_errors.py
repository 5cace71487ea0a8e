"""Errors for invalid grammars, with their positions."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest

from aicirt.wasm import Program
from lab.runners.host import Vocab
from tests.controllers.lr1.conftest import Grammar
from tests.controllers.lr1.recognizer import Probe, Recognizer

Make = Callable[[str], Grammar]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "lr1 needs a grammar as its argument"),
        ("a: 'x';", "line 1, column 1: `%%` is expected before the rules"),
        ("%%", "line 1, column 3: the grammar has no rules"),
        ("%%\nSKIP: ' ';", "the grammar has no rules other than SKIP"),
        ("%%\na: b;", "line 2, column 4: there is no rule for b"),
        ("%start b\n%%\na: 'x';", "line 1, column 8: there is no rule for b"),
        ("%%\na: 'x'", "line 2, column 7: `;` is expected at the end of a rule"),
        ("%%\na 'x';", "line 2, column 3: `:` is expected after the name of a rule"),
        ("%%\na: 'x;", "line 2, column 4: this text is not closed: the quote is missing in its line"),
        (
            "%%\na: '';",
            "line 2, column 4: a quoted text that is empty; write %empty for a rule without symbols",
        ),
        ("%%\n/* a", "line 2, column 1: this comment is not closed: `*/` is missing"),
        (
            "%%\na: {x};",
            "line 2, column 4: actions are not supported: the grammar only describes text",
        ),
        ("%%\na: 'x' %empty;", "line 2, column 8: %empty stands alone"),
        ("%%\na: %prec;", "line 2, column 9: %prec needs a terminal"),
        ("%%\na: 'x' %prec B;", "line 2, column 14: this has no precedence"),
        ("%left 'x'\n%right 'x'\n%%\na: 'x' 'x';", "line 2, column 8: this already has a precedence"),
        (
            "%left b\n%%\na: b b; b: 'x' 'y';",
            "line 1, column 7: b is no terminal: only keywords and patterns, and",
        ),
        (
            "%token B\n%%\na: 'x';",
            "line 1, column 8: the terminal B has no rule that defines its text",
        ),
        ("%union\n%%\na: 'x';", "line 1, column 1: `%union` is unknown; allowed are %start, %token"),
        ("%expect x\n%%\na: 'x';", "line 1, column 9: %expect needs the number of conflicts"),
        ("%%\na: 'é' '/[/';", 'line 2, column 8: in "/[/", column 1: '),
        (
            "%%\na: a 'x' | b; b: b 'y';",
            "line 2, column 1: a matches no text: each of its alternatives contains itself",
        ),
        ("%%\na: b | 'x'; b: c a c; c: %empty;", "line 2, column 1: a derives itself"),
        (
            "%%\na: SKIP; SKIP: ' ';",
            "line 2, column 4: SKIP is allowed everywhere and cannot be used in a rule",
        ),
        ("%%\na: ' ' 'x'; SKIP: ' ';", 'line 2, column 19: " " is both skipped and used in a rule'),
        (
            "%%\na: 'x'; SKIP: ' ' ' ';",
            "line 2, column 9: SKIP has one keyword or pattern in each alternative",
        ),
        ("%start SKIP\n%%\na: 'x'; SKIP: ' ';", "line 1, column 8: SKIP cannot be the start"),
        ("%%\na: 'x\\q';", "line 2, column 6: unknown escape in a keyword; allowed are \\n \\t"),
        (
            "%%\na: ?;",
            "line 2, column 4: a name, a quoted text, `:`, `|`, `;` or a directive such as %left is expected",
        ),
    ],
)
def test_a_message_says_what_is_wrong_and_where(grammar: Make, text: str, message: str) -> None:
    assert grammar(text).refusal().startswith(message)


def test_escapes_of_keywords(grammar: Make) -> None:
    made = grammar(r"""%% a: "\x41\"\\\n" '\'' "//" "/" ;""")
    assert made.accepts("A\"\\\n'///")


def test_aliases_comments_and_trailing_code(grammar: Make) -> None:
    made = grammar(
        "%left PLUS // adds\n%% /* rules */ e: e PLUS e | e '+' e '!' | 'x' ; PLUS: '+' ;\n%%\nint main() {}"
    )
    assert made.accepts("x+x+x") and made.accepts("x+x!")


def test_a_large_grammar_is_read_within_its_time(grammar: Make) -> None:
    """2000 rules and keywords."""
    rules = "\n".join(f"r{i}: 'k{i};' r{i + 1} | 'l{i};' ;" for i in range(1000))
    made = grammar(f"%%\n{rules}\nr1000: 'end' ;")
    assert made.accepts("k0;k1;l2;") and not made.accepts("k0;l0;")


def test_a_grammar_whose_texts_are_all_read_differently_is_refused(grammar: Make) -> None:
    """`/` and `//` are always read as `//` and `/`."""
    assert "allows no token" in grammar('%% a: "/" "//" ;').refusal()
    assert grammar('%% a: "/" "//" ; SKIP: " " ;').accepts("/ //")


def test_a_grammar_must_be_utf8(program: Callable[[str], Program]) -> None:
    made = Grammar(program("lr1"), Vocab([bytes([b]) for b in range(256)]), b'%% a: "x" ;\n/* \xff */')
    assert made.refusal() == "line 2, column 4: the grammar is not well-formed UTF-8"


def test_ten_megabytes(grammar: Make) -> None:
    """Large grammars are read, or refused with the name of the limit."""
    assert grammar("%%\n/*" + "comment " * 1_250_000 + "*/ a: 'x' ;").accepts("x")
    assert "column 4: this text is not closed" in grammar("%%\na: '" + "x" * 10_000_000).refusal()
    rules = "%%\n" + "".join(f"r{i}: 'x' r{i + 1} ;\n" for i in range(200_000))
    assert grammar(rules).refusal() == "line 8194, column 1: the grammar has more than 8192 rules"
    alternatives = "%%\na: " + "'x'\n|" * 500_000 + ";"
    assert (
        grammar(alternatives).refusal() == "line 32770, column 2: the rule has more than 32768 alternatives"
    )


def test_deep_nesting(probe: Probe, vocab: Vocab) -> None:
    nested = Recognizer(probe, vocab, '%%\ns: "(" s ")" | "x" ;')
    right = Recognizer(probe, vocab, '%%\ns: "x" s | "y" ;')
    depth = 20_000
    assert nested.accepts("(" * depth + "x" + ")" * depth)
    assert nested.read("(" * depth + "x" + ")" * (depth + 1)) == 2 * depth + 1
    assert right.accepts("x" * depth + "y")


def test_recognizer_ends_with_its_last_reference(probe: Probe, vocab: Vocab) -> None:
    """A recognizer that was left at the end of Python ended it with a segmentation fault."""
    store = weakref.ref(Recognizer(probe, vocab, '%%\ns: "x" ;')._store)
    gc.collect()
    assert store() is None
