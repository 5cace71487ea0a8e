"""Texts of grammars: lexemes, precedences and conflicts, also compared with brute force."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable

import pytest

from lab.oracles.earley import accepts, next_terminals
from lab.oracles.lr1_rules import as_yacc, random_rules
from lab.runners.host import Vocab
from tests.controllers.lr1.conftest import Grammar

Make = Callable[[str], Grammar]

ARITHMETIC = r"""
%left "+" "-"
%left "*" "/"
%right "^"
%precedence NEGATION
%%
SKIP: "/[ \n]+/" | "/#.*/" ;
e: e "+" e | e "-" e | e "*" e | e "/" e | e "^" e | "-" e %prec NEGATION | "(" e ")" | NUMBER
 | NAME "(" list ")" | NAME ;
list: %empty | some ;
some: e | some "," e ;
NUMBER: "/[0-9]+(\.[0-9]+)?/" ;
NAME: "/[a-z]+/" ;
"""

#: the fragment that the seeds print, with rules for what it leaves out
C_FRAGMENT = r"""
%start translation_unit
%%

SKIP
    : "//\*[^*]*\*+([^/*][^*]*\*+)*//"  // block comment
    | "///.*/"                          // line comment
    | "/\n[ \t\v\f]*#(.*\\\n)*.*/"      // pre-processor
    | "/\n?[ \t\v\f]*/"                 // white-space
    ;

IDENTIFIER: "/[a-zA-Z_][0-9a-zA-Z_]*/" ;

CONSTANT
        : "/0[xX][0-9a-fA-F]+[uUlL]*?/"
        | "/0[0-9]+[uUlL]*?/"
        ;

STRING_LITERAL: '/"(\\.|[^\\"])*"/' ;

primary_expression
    : IDENTIFIER
    | CONSTANT
    | STRING_LITERAL
    | "(" expression ")"
    ;

expression: primary_expression | expression "=" primary_expression ;

enum_specifier
    : "enum" "{" enumerator_list "}"
    | "enum" IDENTIFIER "{" enumerator_list "}"
    | "enum" IDENTIFIER
    ;

enumerator_list: IDENTIFIER | enumerator_list "," IDENTIFIER ;

translation_unit
    : external_declaration
    | translation_unit external_declaration
    ;

external_declaration: enum_specifier ";" | expression ";" ;
"""


@pytest.mark.parametrize(
    "text", ["1", "a", "1+2*3", "-(1)^2^3", "f()", "f(1, g(2),x ) # end", " 1.5\n/ 2 ", "--1"]
)
def test_arithmetic(grammar: Make, text: str) -> None:
    assert grammar(ARITHMETIC).accepts(text)


@pytest.mark.parametrize("text", ["", "1+", "1.", "(1", "1 2", "f(,)", "f(1,)", "1..2", "a b", "#", "1 +* 2"])
def test_invalid_arithmetic(grammar: Make, text: str) -> None:
    assert not grammar(ARITHMETIC).accepts(text)


@pytest.mark.parametrize(
    "text",
    [
        "enum a;",
        "enum a{b,c};x=0x1Ful;",
        '"a\\"b" = y;// end',
        "x /* * / ** */ = (y);",
        "x;\n  #define y \\\n z\nz;",
        "enumerate;",
    ],
)
def test_c_fragment(grammar: Make, text: str) -> None:
    assert grammar(C_FRAGMENT).accepts(text)


@pytest.mark.parametrize(
    "text", ["enum;", "enum enum;", "0x;", "1;", '"a\\";', "x /* *;", "x = = y;", "x;#define", "x"]
)
def test_texts_outside_the_c_fragment(grammar: Make, text: str) -> None:
    assert not grammar(C_FRAGMENT).accepts(text)


def test_a_keyword_comes_before_a_pattern_and_the_longest_lexeme_before_both(grammar: Make) -> None:
    g = grammar('%%\ns: "if" NAME | NAME "=" ; NAME: "/[a-z]+/" ; SKIP: "/ +/" ;')
    assert g.accepts("if x") and g.accepts("ifx =") and g.accepts("i=")
    assert not g.accepts("if =") and not g.accepts("ifx")
    state = g.after(b"if")
    assert state is not None and b" " in bytes([*state.next]) and b"=" not in bytes([*state.next])


def test_the_first_of_two_matching_patterns_wins(grammar: Make) -> None:
    g = grammar('%%\ns: WORD "!" | HEX "?" ; HEX: "/[0-9a-f]+/" ; WORD: "/[a-z]+/" ;')
    assert g.accepts("abc?") and g.accepts("xyz!") and g.accepts("ag!")
    assert not g.accepts("abc!") and not g.accepts("xyz?")


def test_a_pattern_covered_by_keywords_is_never_allowed(grammar: Make) -> None:
    """`true` is a keyword, so BOOL is only `false`: after `=`, `t` is not allowed."""
    g = grammar('%%\ns: "=" BOOL | "true" ; BOOL: "/true|false/" ;')
    state = g.after(b"=")
    assert state is not None and state.next == b"f"


def test_precedence_decides_and_nonassoc_forbids(grammar: Make) -> None:
    """A grammar in which it shows: the two readings of `a-a-a` differ in what may follow."""
    assert grammar('%nonassoc "<"\n%%\ne: e "<" e | "a" ;').accepts("a<a")
    assert not grammar('%nonassoc "<"\n%%\ne: e "<" e | "a" ;').accepts("a<a<a")
    assert grammar('%left "<"\n%%\ne: e "<" e | "a" ;').accepts("a<a<a")
    assert grammar('%left "<"\n%%\ne: e "<" e | "a" ;').log() == ""
    assert "the parser shifts" in grammar('%%\ne: e "<" e | "a" ;').log()


def test_states_are_not_merged_if_that_causes_a_conflict(grammar: Make) -> None:
    """LR(1), and not LALR(1)."""
    g = grammar('%%\ns: "a" x "d" | "b" y "d" | "a" y "e" | "b" x "e" ; x: "c" ; y: "c" ; z: "z" "z" ;')
    assert g.log() == "warning: line 2, column 70: the rule z is not used\n"
    for text in ("acd", "bcd", "ace", "bce"):
        assert g.accepts(text)


def test_a_conflict_names_the_items(grammar: Make) -> None:
    dangling = '%%\ns: "if" "c" s | "if" "c" s "else" s | "x" ;'
    log = grammar(dangling).log()
    assert log.startswith('warning: before "else" both\n')
    assert '    s : "if" "c" s . "else" s\n    s : "if" "c" s .\n' in log
    assert grammar(dangling).accepts("ificcxelsex".replace("ificc", "ifcifc"))
    assert grammar("%expect 1\n" + dangling).log() == ""
    assert "has 1 conflict, not the 0" in grammar("%expect 0\n" + dangling).refusal()


def test_random_grammars(grammar: Make) -> None:
    """Compares every text up to a length, and the terminals allowed after it, with an Earley parser."""
    rng, compared = random.Random(4), 0
    for _ in range(400):
        rules = random_rules(rng)
        made = grammar(as_yacc(rules))
        try:
            made.start()
        except Exception as error:
            assert re.search("conflicts?, not the 0|derives itself", str(error)), error
            continue
        compared += 1
        prefixes = [""]
        for length in range(4):
            for text in prefixes:
                state = made.after(text.encode())
                assert state is not None, (rules, text)
                expected = next_terminals(rules, "S", text)
                assert sorted(state.next.decode()) == sorted(expected), (rules, text)
                assert state.end == accepts(rules, "S", text), (rules, text)
            if length < 3:
                prefixes = [t + c for t in prefixes for c in sorted(next_terminals(rules, "S", t))][:30]
    assert compared > 60


def test_tokens_are_allowed_exactly_if_their_bytes_are(grammar: Make, vocab: Vocab) -> None:
    for text, starts in (
        (ARITHMETIC, ["", "1", "f(", "f ", "1 + x # "]),
        (C_FRAGMENT, ["", "x", '"', "x /*", "enum ", "0"]),
    ):
        made = grammar(text)
        for start in starts:
            state = made.after(start.encode())
            assert state is not None
            for number in range(256, 256 + 14):
                token = vocab.tokens[number]
                assert (number in state.tokens) == (made.after(start.encode() + token) is not None), (
                    start,
                    token,
                )


def test_masks_allow_every_prefix_of_a_text(grammar: Make) -> None:
    made = grammar(ARITHMETIC)
    texts = {"".join(t) for n in range(5) for t in itertools.product("1+(a,)", repeat=n)}
    good = {t for t in texts if made.accepts(t)}
    for text in good:
        for cut in range(len(text)):
            assert made.after(text[:cut].encode()) is not None


def test_unused_rules_and_terminals_are_reported_with_their_position(grammar: Make) -> None:
    text = '%%\ns: "a" ;\nt: N | u ;\n  N: "/[0-9]/" ;\nu: "b" "c" ;\nO: "o" ; SKIP: " " ;'
    assert grammar(text).log() == (
        "warning: line 3, column 1: the rule t is not used\n"
        "warning: line 5, column 1: the rule u is not used\n"
        "warning: line 4, column 3: the terminal N is not in any rule that is used\n"
        "warning: line 6, column 1: the terminal O is not in any rule that is used\n"
    )
    assert "terminal" not in grammar("%token N O\n" + text).log()


def test_texts_of_an_unused_terminal_are_impossible(grammar: Make) -> None:
    text = '%token NONE\n%%\ns: N "x" ; N: "/[0-9]+/" ; NONE: "/[0-9]+[a-z]+/" ; SKIP: " " ;'
    assert grammar(text).accepts("1 x") and not grammar(text).accepts("1x")
    assert grammar(text.replace('"/[0-9]+[a-z]+/"', '"/[0-9]+[a-w]+/"')).accepts("1x")
