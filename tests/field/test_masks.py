"""Reports about masks, by users of other engines: the right texts are allowed, and only these.

Each line of `masks.jsonl` is a case: the report, the controller, its argument, and whole texts that it must
`accept` and `reject`, or a part of the message with which it must be `refused`. `wrong` says what was wrong
at first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import regex
from jsonschema.validators import validator_for

from aicirt.wasm import Program
from lab.oracles.grammars.vocabularies import byte_vocab
from lab.oracles.grammars.walk import Controller
from lab.oracles.json_schema.expressions import translated
from lab.runners.host import Host, Vocab
from pyaici.bundled import find_controller
from pyaici.tokens import load_vocabulary
from tests.pyaici.tokens.published import tokenizer_json

MASKS = [json.loads(line) for line in Path(__file__).with_name("masks.jsonl").read_text().splitlines()]
#: reports of processes that ended, with grammars that a program writes
NESTED = "root ::= " + "(" * 60_000 + '"a"' + ")" * 60_000
CHAIN = "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1}\n" for i in range(5000)) + 'r5000 ::= "a"\n'
LETTERS = 'root ::= "[" name "]"\nname ::= ' + " | ".join(f'"{i:x}_{i * i:x}"' for i in range(1200))
GENERATED: dict[str, tuple[str, str, list[str], list[str]]] = {
    "ggml-org/llama.cpp#26602": ("gbnf", CHAIN, ["a"], ["", "b", "aa"]),
    "mlc-ai/xgrammar#618": (
        "gbnf",
        LETTERS,
        ["[0_0]", "[4af_15efa1]"],
        ["[0_1]", "[4b0_15f8c0]", "[4af_15]"],
    ),
}


def _argument(case: dict[str, Any]) -> str:
    argument = case["argument"]
    return argument if isinstance(argument, str) else json.dumps(argument, ensure_ascii=False)


def _named(cases: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(case, id=case["report"]) for case in cases]


@pytest.fixture(scope="module")
def program() -> Iterator[Callable[[str], Program]]:
    """Compiles a bundled controller once."""
    with Host() as host:
        made: dict[str, Program] = {}

        def program(name: str) -> Program:
            if name not in made:
                made[name] = host.compile(find_controller(name).read_bytes())
            return made[name]

        yield program


@pytest.fixture(scope="module", params=["bytes", "smollm2"])
def vocab(request: pytest.FixtureRequest) -> Vocab:
    """A vocabulary of bytes and few words, and one of a model, in which texts have their longest tokens."""
    if request.param == "bytes":
        return byte_vocab()
    known = load_vocabulary(tokenizer_json("smollm2"))
    return Vocab(known.tokens, special=sorted(known.special), eos=known.eos[:1])


def check(made: Controller, vocab: Vocab, accept: list[str], reject: list[str]) -> None:
    """Checks that whole texts are allowed, token by token with an end after them, or not."""
    first = made.start()
    for text in (*accept, *reject):
        guest, allowed = first.fork(2), True
        state = made.state(guest, [])
        for token in vocab.tokenize(text.encode()):
            allowed = token in state.tokens
            if not allowed:
                break
            state = made.state(guest, [token])
        guest.instance.close()
        assert (allowed and state.end) == (text in accept), text


@pytest.mark.parametrize("case", _named([case for case in MASKS if "refused" not in case]))
def test_reported_texts(case: dict[str, Any], vocab: Vocab, program: Callable[[str], Program]) -> None:
    made = Controller(program(case["engine"]), vocab, _argument(case))
    check(made, vocab, case["accept"], case["reject"])


@pytest.mark.parametrize("case", _named([case for case in MASKS if "refused" in case]))
def test_reported_refusals(case: dict[str, Any], program: Callable[[str], Program]) -> None:
    made = Controller(program(case["engine"]), byte_vocab(), _argument(case))
    assert case["refused"] in made.refusal()


@pytest.mark.parametrize("report", GENERATED)
def test_reported_crashes(report: str, program: Callable[[str], Program]) -> None:
    engine, argument, accept, reject = GENERATED[report]
    check(Controller(program(engine), byte_vocab(), argument), byte_vocab(), accept, reject)


def test_deep_nesting_is_refused(program: Callable[[str], Program]) -> None:
    """The report is ggml-org/llama.cpp#26600."""
    assert "nested" in Controller(program("gbnf"), byte_vocab(), NESTED).refusal()


def _pattern(_validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[jsonschema.ValidationError]:
    """Checks a pattern, in which flags may stand anywhere, as in Rust."""
    if isinstance(value, str) and not regex.search(pattern, value, regex.VERSION1):
        yield jsonschema.ValidationError("does not match")


@pytest.mark.parametrize("case", _named([case for case in MASKS if case["engine"] == "json_schema"]))
def test_values_are_those_of_a_validator(case: dict[str, Any]) -> None:
    """Rejected texts are malformed or invalid, except valid ones in another `spelling` than ours."""
    schema = translated(case["argument"])
    cls = validator_for(schema, jsonschema.Draft202012Validator)
    made = jsonschema.validators.extend(cls, {"pattern": _pattern})
    validator = made(schema, format_checker=cls.FORMAT_CHECKER)
    for text in (*case.get("accept", ()), *case.get("reject", ())):
        try:
            valid = validator.is_valid(json.loads(text))
        except json.JSONDecodeError:
            valid = False
        assert valid == (text in case["accept"] or text in case.get("spelling", ())), text


@pytest.mark.parametrize("case", _named([case for case in MASKS if case["engine"] == "regex"]))
def test_values_are_those_of_another_engine(case: dict[str, Any]) -> None:
    for text in (*case["accept"], *case["reject"]):
        assert bool(regex.fullmatch(case["argument"], text)) == (text in case["accept"]), text
