"""Captures of grammars in Lark: the texts of rules with the attribute."""

from __future__ import annotations

import json
from collections.abc import Callable

import llguidance
import pytest

from aicirt.wasm import Program
from lab.oracles.grammars.walk import Controller
from lab.runners.host import Vocab
from tests.controllers.grammars.document import examples
from tests.lab.inputs.test_lark import EOS, TOKENIZER

Make = Callable[[str], Controller]


@pytest.mark.parametrize(
    ("text", "whole", "expected"),
    [
        ('start: "a" n\nn[capture]: /[0-9]+/', "a12", {"n": ["12"]}),
        ('start: "a" n\nn[capture="number"]: /[0-9]+/', "a12", {"number": ["12"]}),
        ('start[capture]: "a" "b"', "ab", {"start": ["ab"]}),
        (
            'start: x\nx[capture]: "(" x ")" | "y"',
            "((y))",
            {"x": ["y", "(y)", "((y))"]},
        ),
        ('start: (a | b)+\na[capture]: "a"\nb[capture]: "b"', "aba", {"a": ["a", "a"], "b": ["b"]}),
        ('start: a | b\na[capture]: "a"\nb[capture]: "b"', "b", {"b": ["b"]}),
        ('start: a "b"\na[capture]: "a"?', "b", {"a": [""]}),
        ("start: a b\na[capture]: /a+/\nb[capture]: /b*/", "aab", {"a": ["aa"], "b": ["b"]}),
        (
            'start: a "."\na[capture]: a "," b | b\nb[capture]: /[a-z]+/',
            "x,y.",
            {"a": ["x", "x,y"], "b": ["x", "y"]},
        ),
        (
            'start: c::0\nc::_[capture]: "x" c::incr(_) %if lt(_, 2)\n | "y" %if eq(_, 2)',
            "xxy",
            {"c": ["y", "xy", "xxy"]},
        ),
        (
            'start: c\nc[capture]: %json {"type": "array", "items": {"type": "integer"}} "!"',
            "[1, 23]!",
            {"c": ["[1, 23]!"]},
        ),
        ('start: "<" inner ">"\ninner[capture]: %lark { start: /[a-z]+/ }', "<ab>", {"inner": ["ab"]}),
    ],
)
def test_captures(extract: Make, text: str, whole: str, expected: dict[str, list[str]]) -> None:
    made = extract(text)
    assert made.captures(made.run(whole)) == expected


def test_a_capture_has_no_ignored_text_around_it(extract: Make) -> None:
    made = extract('start: a (";" a)*\na[capture]: WORD+\nWORD: /[a-z]+/\n%ignore / +/')
    assert made.captures(made.run("  ab  cd ; e  ")) == {"a": ["ab  cd", "e"]}


def test_a_lexeme_ends_in_a_capture_where_it_ends_in_the_text(extract: Make) -> None:
    """`where` is a keyword only where one may follow."""
    made = extract('start: "find" name ("where" name)?\nname[capture]: /[a-z]+/\n%ignore / +/')
    assert made.captures(made.run("find where where where")) == {"name": ["where", "where"]}


def test_the_example_of_the_page(extract: Make) -> None:
    (text,) = (text for text, _, _ in examples("lark") if "[capture]" in text)
    made = extract(text)
    assert made.captures(made.run("from Oslo to Ely in 3 days")) == {"city": ["Oslo", "Ely"], "days": ["3"]}


def test_the_argument_may_be_json(extract: Make) -> None:
    made = extract(json.dumps({"lark": 'start: n\nn[capture]: "a"'}))
    assert made.captures(made.run("a")) == {"n": ["a"]}


def test_special_tokens_are_not_part_of_a_capture(program: Callable[[str], Program]) -> None:
    vocab = Vocab([*(bytes([byte]) for byte in range(256)), b"<|a|>", b"<eos>"], special=[256], eos=[257])
    made = Controller(program("extract"), vocab, 'start: n\nn[capture]: "x" <|a|> "y"')
    guest = made.start()
    made.state(guest, [])
    for token in (ord("x"), 256, ord("y")):
        made.state(guest, [token])
    assert made.captures(guest) == {"n": ["xy"]}


def reported_by_llguidance(text: str, whole: str) -> dict[str, list[str]]:
    """Returns the captures by name that llguidance reports."""
    made = llguidance.LLInterpreter(
        TOKENIZER,
        llguidance.LLMatcher.grammar_from_lark(text),
        enable_backtrack=False,
        enable_ff_tokens=False,
    )
    made.start_without_prompt()
    found: dict[str, list[str]] = {}
    for token in [*whole.encode(), EOS]:
        report = json.loads(made.compute_mask()[1])
        for event in report.get("progress", []):
            if event["object"] == "capture":
                found.setdefault(event["name"], []).append(event["str"])
        made.commit_token(token)
    return found


@pytest.mark.parametrize(
    ("attributes", "body", "expected"),
    [
        ('capture, suffix="<end>"', ".*", {"t": ["foo"]}),
        ('capture="x", suffix="<end>", stop_capture="e"', ".*", {"x": ["foo"], "e": ["<end>"]}),
        ('suffix=/<[a-z]+>/, stop_capture="e"', ".*", {"e": ["<end>"]}),
        ("capture, lazy", ".*<end>", {"t": ["foo<end>"]}),
    ],
)
def test_the_suffix_is_not_part_of_the_capture(
    extract: Make, attributes: str, body: str, expected: dict[str, list[str]]
) -> None:
    text = f'start: t "!" "?"\nt[{attributes}]: /{body}/'
    made = extract(text)
    assert made.captures(made.run("foo<end>!?")) == expected == reported_by_llguidance(text, "foo<end>!?")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "start: t\nt[capture=1]: /a/",
            "line 2, column 11: the name of the capture in double quotes is expected",
        ),
        ('start: t\nt[capture=""]: /a/', "line 2, column 11: the name of a capture has 1 to 100 bytes"),
        ('start: t\nt[stop_capture="e"]: /a/', "line 2, column 2: `stop_capture` is the name of the suffix"),
        ("start: t\nt[stop_capture]: /a/", "line 2, column 3: `stop_capture` is not an attribute"),
        ("start: T\nT[capture]: /a/", "line 2, column 2: a terminal has no attributes: only rules have"),
        (
            "start: /a/",
            "there are no captures: name parts of the text, in a grammar by rules",
        ),
        ("", "extract needs a grammar as its argument"),
        ('{"lark": 1}', "the argument"),
        (
            '{"gbnf": "root ::= [a]"}',
            'an argument in JSON has one of the members "lark", a grammar, "regex", a pattern with',
        ),
        (
            '{"kbnf": "start ::= \'a\';"}',
            'an argument in JSON has one of the members "lark", a grammar, "regex", a pattern with',
        ),
        (
            """{"kbnf": "start ::= item; item ::= 'a';", "rules": ["itme"]}""",
            "there is no rule itme whose text can be extracted; did you mean item?",
        ),
    ],
)
def test_messages(extract: Make, text: str, message: str) -> None:
    assert extract(text).refusal().startswith(message)
