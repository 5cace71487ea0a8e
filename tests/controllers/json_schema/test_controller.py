"""The controller: its argument, its options, and its masks."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from aicirt.contract.abi import CAP_TOKENIZER, SAMPLE, STOP
from aicirt.contract.errors import ControllerFailed
from aicirt.wasm import Program
from lab.oracles.json_schema.schema_engine import FLEXIBLE, Engine
from lab.runners.host import EVERYTHING, Guest, Vocab

WORDS = [
    b'{"',
    b'": ',
    b'", "',
    b'"}',
    b"}}",
    b"name",
    b'"name": "',
    b"12",
    b"true",
    b", ",
    b"[\n  ",
    b"\n",
    b"  ",
]
WORDS += ["é".encode(), "é".encode()[:1], b"\\u00", b"\\n", b"null", b'""', b"1.5", b"-1", b"e5"]
WORDS += [
    word.encode() for word in ("éa", 'é"', "é\n", "né", "né日", "日本", "日本語", '日"', "🙂", 'n"', "na")
]
WORDS += ["日本".encode()[:4], "é日".encode()[1:], "🙂".encode()[:3]]
EOS = 256 + len(WORDS)

SCHEMAS = [
    True,
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 6},
            "age": {"type": "integer", "minimum": 0, "maximum": 125},
            "tags": {"type": "array", "items": {"enum": ["a", "b", "é"]}, "maxItems": 3},
        },
        "required": ["name"],
        "additionalProperties": False,
    },
    {"anyOf": [{"type": "array", "items": {"$ref": "#"}}, {"type": ["null", "number"]}]},
    {
        "type": "object",
        "properties": {name: {"type": "null"} for name in ("né", "na", "name", "日本", "日本語", "né日")},
        "required": ["né", "na", "日本語"],
        "additionalProperties": {"type": "integer"},
    },
    {"type": "array", "items": {"type": "string", "minLength": 17}},
]


@pytest.fixture(scope="module")
def vocab() -> Vocab:
    return Vocab([*[bytes([b]) for b in range(256)], *WORDS, b"<eos>"], eos=[EOS])


@pytest.fixture(scope="module")
def start(program: Callable[[str], Program], vocab: Vocab) -> Callable[[Any], Guest]:
    """A sequence for an argument; text is not forced, so that every step has a mask."""
    without = {**EVERYTHING, CAP_TOKENIZER: 0}

    def start(argument: Any) -> Guest:
        text = argument if isinstance(argument, str) else json.dumps(argument)
        return Guest(program("json_schema"), vocab, text, capabilities=without)

    return start


def accepts(guest: Guest, text: str) -> bool:
    mid = guest.step().row
    for byte in text.encode():
        if mid.verb != SAMPLE or byte not in mid.allowed:
            return False
        mid = guest.step([byte], sampled=True).row
    return mid.verb == STOP or EOS in mid.allowed


@pytest.mark.parametrize("schema", SCHEMAS, ids=["any", "person", "recursive", "names", "lengths"])
@pytest.mark.parametrize("seed", range(3))
def test_masks(start: Callable[[Any], Guest], engine: Engine, vocab: Vocab, schema: Any, seed: int) -> None:
    """Along random texts, the mask has exactly the tokens after which the text can be completed."""
    engine.compile(schema, FLEXIBLE)
    rng = random.Random(seed)
    guest, text = start(schema), b""
    mid = guest.step().row
    for _ in range(40):
        complete = engine.run(text) == (len(text), True)
        if mid.verb == STOP:
            assert complete
            break
        assert mid.verb == SAMPLE
        allowed = vocab.allowed(lambda token, text=text: engine.run(text + token)[0] == len(text + token))
        assert mid.allowed == ([*allowed, EOS] if complete else allowed), text
        token = rng.choice(allowed)
        text += vocab.tokens[token]
        mid = guest.step([token], sampled=True).row


def test_whitespace(start: Callable[[Any], Guest]) -> None:
    texts = {
        "compact": '{"a":[1,2],"b":{}}',
        "spaced": '{"a": [1, 2], "b": {}}',
        "flexible": '{\n  "a": [\n    1,\n    2\n  ],\n  "b": {}\n}',
    }
    schema = {"type": "object", "properties": {"a": True, "b": True}, "additionalProperties": False}
    for option in texts:
        for name, text in texts.items():
            taken = accepts(start({"schema": schema, "whitespace": option}), text)
            assert taken == (option in (name, "flexible")), (option, name)
    assert accepts(start(schema), texts["flexible"])
    assert not accepts(start(schema), '{"a":  1}')
    assert not accepts(start(schema), '{\n\n"a": 1}')
    assert not accepts(start(schema), '{"a": 1 }'.replace(" }", " " * 2 + "}"))


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("", "json_schema needs a schema as its argument"),
        (" \n", "json_schema needs a schema as its argument"),
        ("{", "the argument is not JSON: line 1, column 2"),
        ({"schema": True, "white": 1}, 'the argument has an invalid member "white": besides "schema"'),
        ({"schema": True, "whitespace": "none"}, 'an invalid member "whitespace"'),
        ({"schema": True, "documents": [True]}, 'an invalid member "documents"'),
        ({"type": "strin"}, "the schema is refused\n#/type: one of null"),
        (
            {"schema": {"not": {"type": "array", "uniqueItems": True}, "type": "array"}},
            "the schema is refused\n#/not/uniqueItems: the negation of uniqueItems",
        ),
        ({"schema": {"$ref": "#/a"}, "unsupported": "warn"}, "#/$ref: `#/a` refers to nothing"),
    ],
)
def test_refusals(start: Callable[[Any], Guest], argument: Any, message: str) -> None:
    with pytest.raises(ControllerFailed) as caught:
        start(argument)
    assert message in caught.value.message


def test_documents(start: Callable[[Any], Guest]) -> None:
    documents = {
        "https://a.example/b": {"type": "array", "items": {"$ref": "c"}},
        "https://a.example/c": {"const": 1},
    }
    argument = {"schema": {"$ref": "https://a.example/b"}, "documents": documents}
    assert accepts(start(argument), "[1]") and not accepts(start(argument), "[2]")


def test_order(start: Callable[[Any], Guest]) -> None:
    schema = {"type": "object", "properties": {"a": True, "b": True}, "required": ["a"]}
    for order, expected in (("any", True), ("schema", False), (None, False)):
        options = {"schema": schema} if order is None else {"schema": schema, "order": order}
        assert accepts(start(options), '{"b":1,"a":2}') == expected
        assert accepts(start(options), '{"a":2,"b":1}')
        assert not accepts(start(options), '{"b":1}')


@pytest.mark.parametrize("member", [{"a": 1}, "http://example.org/schema", True])
def test_member_schema_beside_keywords(start: Callable[[Any], Guest], member: Any) -> None:
    """Such an object is a schema with an unknown keyword."""
    guest = start({"schema": member, "type": "integer"})
    assert accepts(guest, "1") and not accepts(start({"schema": member, "type": "integer"}), '"a"')


def test_unknown_formats(start: Callable[[Any], Guest]) -> None:
    guest = start({"format": "colour"})
    assert guest.take_log() == "warning: not enforced: #/format: this format is not known, so it is ignored\n"
    with pytest.raises(ControllerFailed, match="this format is not known"):
        start({"schema": {"format": "colour"}, "unknown_formats": "refuse"})


def test_warnings(start: Callable[[Any], Guest]) -> None:
    guest = start({"schema": {"type": "array", "not": {"uniqueItems": True}}, "unsupported": "warn"})
    assert "warning: not enforced: #/not/uniqueItems: the negation" in guest.take_log()
    assert accepts(guest, "[1, 1]")
