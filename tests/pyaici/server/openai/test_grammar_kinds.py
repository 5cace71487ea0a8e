"""The kind of a grammar: that of its first rule, whatever its strings, comments and patterns contain."""

from __future__ import annotations

import itertools
import re

import pytest

from lab.fuzz import seeds
from pyaici.bundled import grammar_controller

#: (kind, grammar with a place for a string, a comment or a pattern), and the spellings of these in that kind
LARK = ("lark", "{comment}start: NAME {text} NAME\n{comment}NAME: /[a-z]+/\nOTHER.2: /{pattern}/\n")
GBNF = ("gbnf", '{comment}name ::= [a-z]+ {text}\n{comment}root ::= name [{pattern}] "\\""\n')
KBNF = ("kbnf", "{comment}start ::= {text} name;\n{comment}name ::= #'[a-z]+';\n")
YACC = ("lr1", "{comment}%token NAME\n{comment}%%\nstart: NAME {text} ; {comment}\n")
COMMENTS = {
    "lark": ("", "// {}\n", "  // {}\n\n"),
    "gbnf": ("", "# {}\n", "\t# {}\n\n"),
    "kbnf": ("", "(* {} *)\n", "(*\n{}\n * *)"),
    "lr1": ("", "// {}\n", "/* {} */", "/*\n{}\n**/\n"),
}
#: what other kinds begin with
MARKS = ("::=", "%%", "root ::= x", "a: b", "start ::= x;", "\"'", "/", "(*", "/*", "#", "[", "%{")
#: what opens something, again and again
PARTS = ["'\\", "(*", "/*", "[ ", "a [b", "%{", "#\n", "a\n", "a ", "'", '"\\"', "x: ", "/"]


@pytest.mark.parametrize(("kind", "grammar"), [LARK, GBNF, KBNF, YACC])
def test_marks_of_other_kinds_do_not_count(kind: str, grammar: str) -> None:
    for mark, comment in itertools.product(MARKS, COMMENTS[kind]):
        quoted = '"' + mark.replace("\\", "\\\\").replace('"', '\\"') + '"'
        pattern = re.escape(mark).replace("/", "\\/")
        written = grammar.format(text=quoted, comment=comment.replace("{}", mark), pattern=pattern)
        assert grammar_controller(written) == kind, written


def test_kinds_of_grammars_in_the_repository() -> None:
    found = 0
    for kind, languages in (("lr1", ["yacc"]), ("kbnf", ["kbnf"]), ("gbnf", ["gbnf"]), ("lark", ["lark"])):
        for text in (data.decode() for data in seeds.examples(*languages)):
            assert grammar_controller(text) == kind, text
            found += 1
    for data in seeds.files("controllers/lr1/grammars/*.y"):
        assert grammar_controller(data.decode()) == "lr1"
        found += 1
    assert found > 10


@pytest.mark.parametrize(
    ("grammar", "kind"),
    [
        ('start: NAME "::=" NAME\nNAME: /[a-z]+/\n', "lark"),
        ("// rules, written name ::= body\nstart: NAME\nNAME: /a/\n", "lark"),
        ("start: a\na: /x\n%%\ny/x\n", "lark"),
        ("start: x\n%%\n", "lr1"),
        ("%{\nroot ::= a\n%}\n%token A\n%%\ns: A;\n", "lr1"),
        ("%import common.WS\n%ignore /::=/\n?start: WS\n", "lark"),
        ('%extend start: "a"\n', "lark"),
        ("start[capture]: /::=/\n", "lark"),
        ("value{x, y}.3: x\n", "lark"),
        ('ws ::= [ \\t\\n"]*\nroot ::= ws "a"\n', "gbnf"),
        ("root-a ::= 'x'\nroot   ::= root-a", "gbnf"),
        ("<start> ::= 'a';", "kbnf"),
        ("(* root ::= no *) start ::= 'a';", "kbnf"),
        ('start ::= "\\nroot ::= ";', "kbnf"),
        ('%% day : "on " name "day" ;', "lr1"),
        ("", "lark"),
        ("nothing", "lark"),
    ],
)
def test_first_rule_decides(grammar: str, kind: str) -> None:
    assert grammar_controller(grammar) == kind


@pytest.mark.parametrize("part", PARTS)
def test_kind_of_a_long_text_is_found_in_linear_time(part: str) -> None:
    """A pattern that looks at the same characters again from each place would take hours."""
    grammar_controller("x: y\n" + part * (1 << 19) + "\n%%")
    grammar_controller("x ::= y\n" + part * (1 << 19) + "\nroot ::= x")
