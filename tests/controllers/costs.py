"""The cost of compiling and of masks, in fuel, as committed in costs.json.

``python -m tests.controllers.costs`` prints what differs from the file; with ``--write`` it updates the file.

A case is an argument of a bundled controller with a text. The vocabulary has 32 000 tokens, and forced text
is disabled, so that each token has a mask.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from aicirt.contract.abi import CAP_TOKENIZER, SAMPLE
from aicirt.vocab.tokenizer import Speller
from aicirt.wasm import Export, Program
from lab.inputs import kbnf_grammars
from lab.inputs.constraints import CONSTRAINTS
from lab.inputs.lark import lark_of_yacc
from lab.inputs.tool_schema import tool_schema
from lab.inputs.vocabularies import vocabulary
from lab.runners.fuel import MeteredGuest, metered_host, used
from lab.runners.host import EVERYTHING, Host, Vocab
from pyaici.bundled import find_grammar
from pyaici.server.answers.formats import Function
from pyaici.server.answers.grammar import answer_grammar
from pyaici.server.answers.known_formats import HERMES
from pyaici.server.answers.plan import AnswerPlan, Marks, Start
from pyaici.toolchain import build_controller
from tests.controllers.conftest import CONTROLLERS
from tests.counts import Counts

#: a mask below `small` is hardly more than a look-up
COSTS = Counts(Path(__file__).with_name("costs.json"), "tests.controllers.costs", small=20_000)


@dataclass(frozen=True)
class Case:
    """An argument of a controller, with a text that it allows."""

    controller: str
    argument: str
    text: str


_PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 40},
        "nickname": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 125},
        "role": {"enum": ["reader", "writer", "reviewer", "owner"]},
        "home": {"$ref": "#/$defs/place"},
        "work": {"$ref": "#/$defs/place"},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
    "$defs": {
        "place": {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "string"}}}
    },
}
_PERSON_TEXT = {
    "name": "Ada",
    "nickname": "the countess",
    "age": 36,
    "role": "writer",
    "home": {"city": "London", "zip": "W1"},
}
_TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "value": {"type": ["number", "null"]},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["value"],
        }
    },
}
_TREE_TEXT = {"value": -12.5, "children": [{"value": None}, {"value": 7, "children": []}], "seen": True}
_FORMATS = {
    "type": "object",
    "properties": {
        "at": {"type": "string", "format": "date-time"},
        "mail": {"type": "string", "format": "email"},
        "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,6}$"},
    },
    "required": ["at", "mail", "code"],
    "additionalProperties": False,
}
_FORMATS_TEXT = {"at": "2026-11-20T15:30:00Z", "mail": "jo@example.org", "code": "AB-1234"}
_TOOL_TEXT = {f"title_{i}": "x" for i in range(10)}
_GBNF = r"""
root ::= item+
item ::= "- " [^\n]+ "\n"
"""
_LARK = r"""
start: statement+
statement: NAME "=" sum ";"
sum: product (("+" | "-") product)*
product: atom (("*" | "/") atom)*
atom: NUMBER | NAME | "(" sum ")"
NAME: /[a-z_]+/
NUMBER: /[0-9]+(\.[0-9]+)?/
%ignore /[ \n]+/
"""
_SUBSTRING = "The quick brown fox jumps over the lazy dog, and the dog does not even notice the fox. " * 3


def _grammar(name: str) -> str:
    path = find_grammar(name)
    assert path is not None
    return path.read_text()


#: chats with tools, as the server constrains them
_TOOLS = AnswerPlan(Start(Marks()), HERMES, (Function("person", _PERSON), Function("now")))
_CALL = ("person", _PERSON_TEXT)


def _schema(schema: Any, text: Any) -> Case:
    return Case("json_schema", json.dumps(schema), json.dumps(text))


def cases() -> dict[str, Case]:
    """Returns all cases by name."""
    patterns = {f"regex {it.name}": Case("regex", it.argument, it.text) for it in CONSTRAINTS}
    return {
        "schema any": _schema(True, {"a": [1, "b", None]}),
        "schema person": _schema(_PERSON, _PERSON_TEXT),
        "schema tree": _schema(_TREE, _TREE_TEXT),
        "schema formats": _schema(_FORMATS, _FORMATS_TEXT),
        "schema tool": Case("json_schema", json.dumps(tool_schema()), json.dumps(_TOOL_TEXT)[:60]),
        **patterns,
        "kbnf json": Case("kbnf", kbnf_grammars.JSON, '{"a": [1, "b", null]}'),
        "kbnf calls": Case("kbnf", kbnf_grammars.STRUCTURAL, "<think>Look.</think>\n<ai00:function_calls>\n"),
        "kbnf tools": Case("kbnf", answer_grammar(_TOOLS).argument, "Look.\n" + HERMES.write([_CALL])),
        "lr1 c": Case("lr1", _grammar("c.y"), "static int add(int a, int b) { return a + b; }\n"),
        "lark c": Case("lark", lark_of_yacc(_grammar("c.y")), "int add(int a) { return a + 1; }\n"),
        "lark": Case("lark", _LARK, "area = (width + 2) * 3.5;\n"),
        "gbnf": Case("gbnf", _GBNF, "- one thing\n- another\n"),
        "substring": Case("substring", json.dumps({"text": _SUBSTRING}), "over the lazy dog, and"),
    }


@cache
def _vocab() -> tuple[Vocab, Speller]:
    known = vocabulary("32k")
    vocab = Vocab(known.tokens, special=list(known.special), eos=list(known.eos))
    return vocab, Speller([b"" if t in known.special else text for t, text in enumerate(known.tokens)])


def _measure(host: Host, program: Program, case: Case) -> dict[str, Any]:
    vocab, spell = _vocab()
    guest = MeteredGuest(program, vocab, case.argument, capabilities={**EVERYTHING, CAP_TOKENIZER: 0})
    costs: dict[str, Any] = {"start": guest.start_fuel, "init": used(guest.instance) - guest.start_fuel}
    first, tokens = guest.fork(2), spell(case.text.encode())
    costs["masks"] = list(_masks(first, tokens))
    if program.has[Export.FOUND]:
        guest.learn(first.found())
        costs["again"] = sum(_masks(guest.fork(3), tokens))
    return costs


def _masks(guest: MeteredGuest, tokens: list[int]) -> Iterator[int]:
    """Yields the cost of the mask before each token, which must allow it."""
    news: list[int] = []
    for token in tokens:
        before = used(guest.instance)
        row = guest.step(news).row
        yield used(guest.instance) - before
        assert row.verb == SAMPLE and token in row.allowed
        news = [token]


def measure() -> dict[str, Any]:
    """Builds the controllers and returns the costs of all cases.

    They are `start` (once for all arguments), `init`, `masks` (of each token), and `again`: of all masks in a
    sequence that starts with what the first one has found.
    """
    found = {}
    with tempfile.TemporaryDirectory() as folder, metered_host() as host:

        @cache
        def program(name: str) -> Program:
            built = build_controller(CONTROLLERS / name, Path(folder) / f"{name}.wasm")
            return host.compile(built.path.read_bytes())

        for name, case in cases().items():
            found[name] = _measure(host, program(case.controller), case)
    return found


if __name__ == "__main__":
    sys.exit(COSTS.main(measure, __doc__))
