"""Controllers in vLLM's scheduler: masks and splices computed during the forward pass, in the real engine."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from pyaici.engines.engine import Request
from tests.pyaici.engines.vllm.configurations import ConfiguredEngines
from tests.pyaici.engines.vllm.requests import (
    FRANCE,
    YEAR,
    counter,
    driver_of,
    ends,
    generate,
    parameters,
    texts,
)

pytestmark = pytest.mark.slow

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
#: prompt, controller, argument. The controllers mask, force text, and stop
CONTROLLED = [
    (FRANCE, "regex", YEAR),
    ("Is the sky blue?", "yesno", ""),
    ("Describe Ada in JSON:", "json_schema", json.dumps(PERSON)),
    ("Pick a fruit:", "choice", '["red apples", "green pears"]'),
    ("Quote:", "substring", '{"text": "The quick brown fox jumps over the lazy dog.", "end": "\\n"}'),
]


@pytest.fixture
def steered(hf: Any) -> Callable[[str, str, str], str]:
    """Runs a controller on Transformers and returns the text."""

    def run(prompt: str, controller: str, arg: str) -> str:
        (result,) = hf.run([Request(prompt, controller=controller, arg=arg, max_tokens=40)])
        assert result.error is None
        return str(result.text)

    return run


@pytest.mark.parametrize("configuration", ["async", "sync"])
def test_the_same_text_as_on_transformers(llm: Any, steered: Callable[[str, str, str], str]) -> None:
    """The batch also has requests without a controller, and one with a grammar of vLLM's own."""
    from vllm.sampling_params import StructuredOutputsParams

    free = [(FRANCE, parameters(max_tokens=12)), ("Once upon a time", parameters(max_tokens=20))]
    alone = texts(llm, free)
    native = parameters(structured_outputs=StructuredOutputsParams(choice=["red", "green"]))
    controlled = [(prompt, parameters(controller, arg)) for prompt, controller, arg in CONTROLLED]
    written = texts(llm, [*free, *controlled, ("A colour:", native)])
    assert written[:2] == alone
    assert written[-1] in ("red", "green")
    assert written[2:-1] == [steered(*each) for each in CONTROLLED]


def test_an_argument_may_be_a_json_value(llm: Any) -> None:
    (text,) = texts(llm, [("Describe Ada in JSON:", parameters("json_schema", PERSON))])
    assert set(json.loads(text)) == {"name", "age"}


def test_a_controller_that_cannot_start_ends_only_its_own_request(llm: Any) -> None:
    requests = [
        (FRANCE, parameters("regex", "[a-")),
        (FRANCE, parameters("rejex", "a")),
        (FRANCE, parameters(max_tokens=3)),
        (FRANCE, parameters("regex", " [a-z]{3}")),
    ]
    (bad, bad_reason), (unknown, unknown_reason), free, good = ends(llm, requests)
    assert (bad, unknown) == ("error", "error")
    assert "column 1: this class is not closed" in str(bad_reason)
    assert "no controller is called 'rejex'" in str(unknown_reason) and "regex" in str(unknown_reason)
    assert free == ("length", None) and good == ("stop", "controller")


def test_a_controller_and_a_grammar_of_vllm_exclude_each_other(llm: Any) -> None:
    from vllm.sampling_params import StructuredOutputsParams

    both = parameters("regex", "a+", structured_outputs=StructuredOutputsParams(choice=["red", "green"]))
    ((reason, why),) = ends(llm, [(FRANCE, both)])
    assert reason == "error" and "not both" in str(why)


def test_a_mask_that_leaves_no_token_with_vllms_own_is_an_error(llm: Any) -> None:
    """vLLM samples some token if none is left. It must not appear as text that the controller allowed."""
    (token,) = llm.get_tokenizer().encode(" Paris")
    request = parameters("regex", " Paris", allowed_token_ids=[token + 1])
    ((reason, why),) = ends(llm, [(FRANCE, request)])
    assert reason == "error" and "forbid all tokens that it allows" in str(why)


def test_forced_tokens_count_towards_max_tokens(llm: Any) -> None:
    schema = json.dumps({"const": "The quick brown fox jumps over the lazy dog, and over the other dogs."})
    whole, cut = (parameters("json_schema", schema, max_tokens=count) for count in (40, 7))
    prompts = [FRANCE, FRANCE]
    first, second = llm.generate(prompts, [whole, cut], use_tqdm=False)
    assert first.outputs[0].text == json.loads(schema)["const"].join('""')
    assert first.outputs[0].finish_reason == "stop"
    assert second.outputs[0].token_ids == first.outputs[0].token_ids[:7]
    assert second.outputs[0].finish_reason == "length"


def test_every_token_has_a_log_probability(llm: Any) -> None:
    """This includes forced tokens."""
    (choice,) = generate(
        llm, [("Quote:", parameters("json_schema", '{"const": "one two three four"}', logprobs=2))]
    )
    assert choice.text == '"one two three four"'
    assert len(choice.logprobs) == len(choice.token_ids)
    for token, entries in zip(choice.token_ids, choice.logprobs, strict=True):
        assert entries[token].logprob <= 0
    assert choice.logprobs[-1][choice.token_ids[-1]].logprob == 0


def test_each_of_several_samples_has_its_own_controller(llm: Any) -> None:
    request = parameters("regex", " [A-Z][a-z]{2,9}\\.", n=3, temperature=1.5, seed=7)
    (output,) = llm.generate([FRANCE], [request], use_tqdm=False)
    found = [choice.text for choice in output.outputs]
    assert all(re.fullmatch(" [A-Z][a-z]{2,9}\\.", text) for text in found) and len(set(found)) > 1
    assert all(choice.finish_reason == "stop" for choice in output.outputs)


def test_shared_prefixes_change_no_text(llm: Any) -> None:
    """The second request reuses the blocks of the first one's prompt, and its controller still starts."""
    prompt = "These are facts about cities. " * 20 + FRANCE
    request = (prompt, parameters("regex", " [A-Z][a-z]{2,9}\\."))
    first = texts(llm, [request])
    before = counter(llm, "prefix_cache_hits")
    assert texts(llm, [request]) == first
    assert counter(llm, "prefix_cache_hits") > before


def test_an_abort_frees_the_controller(llm: Any) -> None:
    engine = llm.llm_engine
    driver = driver_of(llm)
    numbers = [
        engine.add_request(f"abort-{i}", FRANCE, parameters("regex", "( [a-z]+)+", max_tokens=count))
        for i, count in enumerate((200, 200, 40))
    ]
    while not all(one.control is not None for one in driver.requests.values()):
        engine.step()
    for _ in range(3):
        engine.step()
    assert len(driver.requests) == 3
    engine.abort_request(numbers[:2], internal=True)
    engine.step()
    assert len(driver.requests) == 1
    while engine.has_unfinished_requests():
        engine.step()
    assert not driver.requests and not driver._by_control


WORDS = "( [a-z]+)+"


def write_many(llm: Any) -> tuple[list[str], int]:
    """Returns the texts of nine requests in a batch, and the number of preemptions."""
    animals = ("dog", "cat", "owl", "fox", "mouse", "bear", "horse", "duck", "wolf")
    prompts = [f"Once upon a time there was a {animal} who" for animal in animals]
    before = counter(llm, "num_preemptions")
    written = texts(llm, [(prompt, parameters("regex", WORDS, max_tokens=70)) for prompt in prompts])
    return written, counter(llm, "num_preemptions") - before


@pytest.fixture(scope="session")
def many(engines: ConfiguredEngines) -> tuple[list[str], int]:
    """The result of `write_many` with enough blocks."""
    return write_many(engines("async"))


@pytest.mark.configuration("async")
def test_requests_are_not_preempted_with_enough_blocks(many: tuple[list[str], int]) -> None:
    written, preemptions = many
    assert preemptions == 0
    assert all(re.fullmatch(WORDS, text) for text in written) and len(set(written)) == len(written)


@pytest.mark.parametrize("configuration", ["async-preempted", "sync-preempted"])
def test_preemption_changes_no_text(many: tuple[list[str], int], llm: Any) -> None:
    """There are too few blocks for all requests, so some are preempted and resumed with their controllers."""
    written, preemptions = write_many(llm)
    assert preemptions > 0
    assert written == many[0]
