"""Structural tags: the texts that they allow, compared with those of xgrammar, and what is refused."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import xgrammar
from xgrammar.testing import _is_grammar_accept_string

from lab.oracles.grammars.vocabularies import byte_vocab
from lab.oracles.grammars.walk import Controller
from lab.runners.host import Host
from pyaici.bundled import find_controller
from pyaici.server.apis.openai.constraints import constraint
from pyaici.server.apis.openai.requests import ChatRequest, CompletionRequest
from pyaici.server.http.errors import ApiError


def _tag(begin: str, content: Any, end: Any) -> dict[str, Any]:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def _json(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": schema}


def _triggered(*triggers: str, **options: Any) -> dict[str, Any]:
    return {"type": "triggered_tags", "triggers": list(triggers), "tags": [F, G], **options}


ANY = {"type": "any_text"}
F, G = _tag("<f=a>", _json({"type": "integer"}), "</f>"), _tag("<g>", ANY, "</g>")
#: each with its texts
FORMATS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "tag": (F, ["<f=a>12</f>", "<f=a>x</f>", "<f=a>12", "12", "<f=a>12</f>x"]),
    "text in a tag": (G, ["<g>a < b\n</g>", "<g></g>", "<g></g>x", "<g>"]),
    "two ends": (_tag("a", _json({"type": "integer"}), ["b", "c"]), ["a1b", "a1c", "a1", "a1bc"]),
    "sequence": (
        {"type": "sequence", "elements": [{"type": "const_string", "value": 'x"é\n'}, F, ANY]},
        ['x"é\n<f=a>1</f>', 'x"é\n<f=a>1</f> and so on', "x<f=a>1</f>", 'x"é\n'],
    ),
    "or": (
        {"type": "or", "elements": [{"type": "regex", "pattern": "[a/]+"}, G]},
        ["a/a", "<g>a</g>", "b", "a<g>a</g>", ""],
    ),
    "triggered": (
        _triggered("<f", "<g"),
        ["", "hello < x", "a<f=a>1</f>b<g>x</g>", "<f", "<f=a>1</f><f=a>2</f>", "<f=a>x</f>", "<g>"],
    ),
    "once": (_triggered("<f", "<g", stop_after_first=True), ["<f=a>1</f>", "a<g>x</g>", "<g>x</g>b"]),
    "at least one": (
        _triggered("<f", "<g", at_least_one=True),
        ["", "a", "<f=a>1</f>", "<f=a>1</f>b", "a<g>x</g>", "<g>x</g>a<g>y</g>"],
    ),
    "separated": (
        {"type": "tags_with_separator", "tags": [F, G], "separator": ","},
        ["", "<f=a>1</f>", "<f=a>1</f>,<g>x</g>", "<f=a>1</f><g>x</g>", "<f=a>1</f>,", "x"],
    ),
    "separated, at least one": (
        {"type": "tags_with_separator", "tags": [F], "separator": "", "at_least_one": True},
        ["", "<f=a>1</f>", "<f=a>1</f><f=a>2</f>", "<f=a>1</f>,<f=a>2</f>"],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def kbnf() -> Iterator[Callable[[str], Controller]]:
    """Returns a function that starts the controller kbnf with an argument."""
    with Host() as host:
        program, vocab = host.compile(find_controller("kbnf").read_bytes()), byte_vocab()
        yield lambda grammar: Controller(program, vocab, grammar)


def _grammar(tag: Any) -> str:
    body = {"messages": [{"role": "user", "content": "x"}], "response_format": tag}
    request = ChatRequest.model_validate(body)
    call = constraint(request, request.response_format)
    assert call is not None and call.controller == "kbnf"
    return call.arg


@pytest.mark.parametrize("name", FORMATS)
def test_texts_are_those_of_xgrammar(name: str, kbnf: Callable[[str], Controller]) -> None:
    form, texts = FORMATS[name]
    tag = {"type": "structural_tag", "format": form}
    controller, peer = kbnf(_grammar(tag)), xgrammar.Grammar.from_structural_tag(tag)
    allowed = [text for text in texts if controller.accepts(text)]
    assert allowed == [text for text in texts if _is_grammar_accept_string(peer, text)]
    assert 0 < len(allowed) < len(texts) and controller.log() == ""


@pytest.mark.parametrize("name", FORMATS)
def test_all_fields_of_xgrammar_may_have_their_defaults(name: str) -> None:
    tag = {"type": "structural_tag", "format": FORMATS[name][0]}
    assert _grammar(xgrammar.StructuralTag.model_validate(tag).model_dump(by_alias=True)) == _grammar(tag)


def test_older_form_is_the_same(kbnf: Callable[[str], Controller]) -> None:
    structures = [{"begin": "<f=a>", "schema": {"type": "integer"}, "end": "</f>"}]
    older = {"type": "structural_tag", "structures": structures, "triggers": ["<f="]}
    triggered = {"type": "triggered_tags", "triggers": ["<f="], "tags": [F]}
    written = _grammar({"type": "structural_tag", "format": triggered})
    assert _grammar(older) == written
    assert _grammar(older | {"at_least_one": False}) == written != _grammar(older | {"at_least_one": True})
    for value in (older, json.dumps(older)):
        body = {"prompt": "x", "structured_outputs": {"structural_tag": value}}
        call = constraint(CompletionRequest.model_validate(body))
        assert call is not None and call.arg == written
    assert kbnf(written).accepts("Look: <f=a>3</f>.") and not kbnf(written).accepts("Look: <f=b>")


@pytest.mark.parametrize(
    ("tag", "words"),
    [
        ({"format": {"type": "grammar", "grammar": "root ::= 'a'"}}, "response_format.format"),
        ({"format": {"type": "any_text", "minimum": 3}}, "minimum"),
        ({"format": {"type": "sequence", "elements": [ANY, F]}}, "any_text is not supported"),
        ({"format": _tag("a", _triggered("<f", "<g"), "b")}, "nothing can follow it"),
        ({"format": _triggered("<f")}, "must begin with exactly one of the triggers"),
        ({}, "either format or structures"),
        ({"format": F, "more": 1}, "more"),
    ],
)  # fmt: skip
def test_other_formats_are_refused(tag: dict[str, Any], words: str) -> None:
    with pytest.raises(ApiError) as refused:
        _grammar({"type": "structural_tag", **tag})
    assert refused.value.status == 400 and words in refused.value.message


def test_a_small_tag_does_not_become_a_huge_grammar() -> None:
    nested: dict[str, Any] = {"type": "const_string", "value": "a"}
    for _ in range(12):
        nested = {"type": "tags_with_separator", "tags": [_tag("<", nested, ">")], "separator": ","}
    tag = {"type": "structural_tag", "format": nested}
    call = constraint(CompletionRequest(prompt="", structured_outputs={"structural_tag": tag}))
    assert call is not None and len(call.arg) < 1000  # it doubled at each level
    many = {
        "type": "triggered_tags",
        "triggers": ["<"] * 200,
        "tags": [_tag("<", _json({"title": "x" * 9999}), "")] * 200,
    }
    tracemalloc.start()
    try:
        with pytest.raises(ApiError, match="exactly one of the triggers"):
            constraint(
                CompletionRequest(prompt="", structured_outputs={"structural_tag": tag | {"format": many}})
            )
        assert (
            tracemalloc.get_traced_memory()[1] < 50_000_000
        )  # each tag was written for each trigger: 400 MB
    finally:
        tracemalloc.stop()
