"""Masks along texts in which the same terminals stand in many places.

Masks inside a terminal are reused elsewhere (aici/detail/answer_cache.hpp). They must equal what trying
every token says.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from aicirt.wasm import Program
from lab.oracles.grammars.walk import Controller
from lab.runners.host import Vocab
from tests.controllers.sdk.cfg.engine import Engine, Expr, call, lit, regex, repeat

BLANK, STRING, NUMBER = r"[ \n]{0,8}", r'"([^"\\\x00-\x1f]|\\["\\/bfnrt])*"', r"-?(0|[1-9][0-9]*)(\.[0-9]+)?"


def kbnf(pattern: str) -> str:
    """Returns the pattern as it is written between quotes."""
    return pattern.replace("\\", "\\\\")


#: objects and lists of strings and numbers
KBNF = rf"""
start  ::= object;
value  ::= (object | list | #'{kbnf(STRING)}' | #'{kbnf(NUMBER)}' | 'true') ws;
object ::= '{{' ws (pair (',' ws pair)*)? '}}';
pair   ::= #'{kbnf(STRING)}' ws ':' ws value;
list   ::= '[' ws (value (',' ws value)*)? ']';
ws     ::= #'{kbnf(BLANK)}';
"""
LARK = rf"""
start: value
value: object | list | STRING | NUMBER | "true"
object: "{{" (pair ("," pair)*)? "}}"
pair: STRING ":" value
list: "[" (value ("," value)*)? "]"
STRING: /{STRING.replace("/", chr(92) + "/")}/
NUMBER: /{NUMBER}/
%ignore /[ \n]+/
"""
TEXTS = [
    '{"name": "Ada", "tags": ["one", "two, \\"three\\"", 3.25], "more": {"a": -1, "b": [[], {}, "x"]}}',
    '{\n "k" : [ "v" , 10 , true ] , "é" : "🙂 and so on" }',
]


def json_rules(engine: Engine, *, longest: bool) -> Engine:
    """The same for the engine alone."""
    ws = lit("") if longest else regex(BLANK)
    string = regex(STRING)

    def many(part: Expr) -> Expr:
        return repeat(part + repeat(lit(",") + ws + part, 0), 0, 1)

    value = (call(1) | call(3) | string | regex(NUMBER) | lit("true")) + ws
    thing = lit("{") + ws + many(call(4)) + lit("}")
    pair = string + ws + lit(":") + ws + call(2)
    listed = lit("[") + ws + many(call(2)) + lit("]")
    start = call(2) if longest else call(1)
    return engine.make(
        start, thing, value, listed, pair, ignore=regex("[ \n]+") if longest else None, longest=longest
    )


def tokens() -> list[bytes]:
    """All bytes, and pieces of JSON texts."""
    chance = random.Random(3)
    pieces = [
        piece.encode()
        for piece in ('"', "a", ", ", '": ', "tr", "é", "word", " word", ".5", *",:{}[]1- \n\\")
    ]
    pieces += [b"\xc3", b"\xa9"]
    made = {b"".join(chance.choices(pieces, k=chance.randint(2, 4))) for _ in range(900)}
    return [bytes([byte]) for byte in range(256)] + sorted(made - {bytes([byte]) for byte in range(256)})


TOKENS = tokens()


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", ["kbnf", "lark"])
def test_every_token(engine: Engine, program: Callable[[str], Program], kind: str, text: str) -> None:
    """At every place of a text, in one sequence."""
    controller = Controller(
        program(kind), Vocab([*TOKENS, b"<end>"], eos=[len(TOKENS)]), KBNF if kind == "kbnf" else LARK
    )
    json_rules(engine, longest=kind == "lark")
    guest = controller.start()
    data = text.encode()
    for place in range(len(data)):
        allowed = set(controller.state(guest, list(data[place - 1 : place]) if place else []).tokens)
        before = data[:place]
        expected = {token for token, more in enumerate(TOKENS) if engine.alive(before + more)}
        assert allowed == expected, (before, [TOKENS[t] for t in allowed ^ expected][:5])
