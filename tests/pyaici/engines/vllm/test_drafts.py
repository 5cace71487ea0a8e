"""Speculative decoding of requests with controllers: drafts are masked, and they change no text."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from pyaici.engines.vllm.scheduling import driver
from tests.pyaici.engines.vllm.configurations import ConfiguredEngines
from tests.pyaici.engines.vllm.requests import counter, driver_of, generate, parameters

# most tests use the whole default model, since a shallow one is not predictable
#: test_rows.py has drafts with vLLM's own worker
pytestmark = [pytest.mark.slow, pytest.mark.any_worker, pytest.mark.configuration("whole-drafts")]

PEOPLE = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "city": {"type": "string"}},
        "required": ["name", "city"],
        "additionalProperties": False,
    },
    "minItems": 2,
    "maxItems": 3,
}
APPLES = "red apples, green pears, red apples, green pears, red apples, green"
COUNT = "one two three one two three one two three one two"
ENDS = "x<|im_end|>x<|im_end|><|im_end|><|im_end|><|im_end|><|im_end|>x"
#: prompt, controller, argument, held back. The prompts produce drafts that are sampled, drafts that are not,
#: and drafts that are forbidden. The controllers mask, splice, stop, backtrack, and hold end tokens
CALLS = [
    (APPLES, "regex", r"( (red|green) [a-z]+,){4}", False),
    (
        '[{"name": "Ada", "city": "London"}, {"name": "Alan", "city": "London"}]\nAgain:',
        "json_schema",
        PEOPLE,
        False,
    ),
    (COUNT, "thoughts", "4 0  three one two three one", False),
    (
        "Quote: The quick brown fox jumps over the lazy dog. The quick",
        "substring",
        json.dumps({"text": "The quick brown fox jumps over the lazy dog.", "end": "\n"}),
        False,
    ),
    ("red apples or green pears? red", "choice", '["red apples", "green pears"]', False),
    ("Is the sky blue? Yes, yes, yes, yes,", "yesno", "", False),
    (COUNT, "regex", "( [a-z]+)+", False),
    (COUNT, "thoughts", "9 6  three four", True),
    (COUNT, "thoughts", "12 5  three four", True),
    (ENDS, "flags_mid", "e1e1e1e1e1e1e1s0e0", False),
    (ENDS, "flags_mid", "s0e1s0e1s0e1d1b0x0", True),
    (COUNT, "", "", False),
]


#: maximum tokens of a text: the whole model ends the JSON of `CALLS` after 28
TOKENS = 30
#: for the shallow model: the last backtrack in `CALLS` is after twelve tokens
SHALLOW_TOKENS = 20
#: (tokens, finish reason or error message) of each call
Written = list[tuple[list[int], str | None]]


@pytest.fixture(scope="session", autouse=True)
def controllers(guests: Callable[..., None]) -> None:
    guests("thoughts", "diary", "shared", "flags_mid")


def requests(max_tokens: int, most: int | None = None) -> list[tuple[str, Any]]:
    made = []
    for prompt, controller, arg, held in CALLS[:most]:
        request = parameters(controller, arg, max_tokens=max_tokens)
        if held:
            request.extra_args["aici_hold"] = True
        made.append((prompt, request))
    return made


def _written(choice: Any) -> tuple[list[int], str | None]:
    failed = choice.finish_reason == "error"
    return list(choice.token_ids), choice.stop_reason if failed else choice.finish_reason


def write(llm: Any, most: int | None = None, max_tokens: int = TOKENS) -> Written:
    """Runs all calls in one batch, or the first `most`, with a request that has a grammar of vLLM's own."""
    from vllm.sampling_params import StructuredOutputsParams

    pattern = StructuredOutputsParams(regex="( (red|green) [a-z]+,){3}")
    native = parameters(structured_outputs=pattern, max_tokens=max_tokens)
    choices = generate(llm, [*requests(max_tokens, most), (APPLES, native)])
    return [_written(choice) for choice in choices]


def write_shallow(llm: Any) -> Written:
    """Does the same with the shallow model."""
    return write(llm, max_tokens=SHALLOW_TOKENS)


@pytest.fixture(scope="session")
def expected(engines: ConfiguredEngines, controllers: None) -> Written:
    """The results without drafts."""
    return write(engines("whole"))


@pytest.mark.real_worker
@pytest.mark.configuration("whole")
def test_results_without_drafts_have_all_ends(expected: Written) -> None:
    assert [reason for _, reason in expected] == [
        *["stop"] * 2,
        "length",
        *["stop"] * 3,
        *["length"] * 3,
        *["stop"] * 2,
        "length",
        "stop",
    ]
    assert len(expected[9][0]) == 9 and len(set(expected[9][0])) == 2, (
        "seven end tokens, a word and an end token"
    )
    assert expected[10][0] == [*[expected[9][0][7], expected[9][0][0]] * 3, expected[9][0][7]]


def write_long(llm: Any) -> Written:
    """Runs requests that do not fit into a small cache together."""
    request = parameters("regex", "( [a-z]+)+", max_tokens=40)
    prompts = [f"{animal}: {COUNT}" for animal in ("dog", "cat", "owl", "fox", "bear")]
    choices = generate(llm, [(prompt, request) for prompt in prompts])
    return [_written(choice) for choice in choices]


@pytest.fixture(scope="session")
def long(engines: ConfiguredEngines) -> Written:
    """The results of `write_long` without drafts."""
    return write_long(engines("whole"))


@pytest.mark.configuration("whole")
def test_long_results_without_drafts_end_at_their_limit(long: Written) -> None:
    assert [(len(tokens), reason) for tokens, reason in long] == [(40, "length")] * 5


def accepted(llm: Any) -> int:
    return counter(llm, "spec_decode_num_accepted_tokens")


def live(llm: Any) -> int:
    """Returns the number of sequences at the runtime, including copies for drafts."""
    return len(driver_of(llm)._connection._session.runtime._live)


def test_drafts_change_no_text(llm: Any, expected: Written) -> None:
    before = accepted(llm)
    assert write(llm) == expected
    assert accepted(llm) > before
    assert live(llm) == 0


@pytest.mark.real_worker
def test_drafts_are_accepted_with_controllers(llm: Any) -> None:
    """Drafts are accepted under a mask, and where the controller splices the drafted tokens."""
    for (prompt, request), least in zip(requests(8), (3, 4, 4), strict=False):
        before = accepted(llm)
        generate(llm, [(prompt, request)])
        assert accepted(llm) - before >= least, prompt


def test_tokens_after_an_unchecked_draft_are_dropped(
    llm: Any, expected: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drafts stay unchecked if there is too little time or if there are too few copies of the controller."""
    some = [*expected[:6], expected[-1]]
    monkeypatch.setattr(driver_of(llm)._drafts, "_most", 2)
    assert write(llm, 6) == some
    monkeypatch.setattr(driver, "SECONDS", -1.0)
    monkeypatch.setattr(driver, "MAX_SLOW", 1000)
    before = accepted(llm)
    assert write(llm, 6) == some
    assert accepted(llm) > before, "the model runner must accept drafts that the first mask allows"
    assert live(llm) == 0


def test_output_of_rejected_drafts_is_not_logged(llm: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "vllm.aici"):
        (choice,) = generate(llm, [(COUNT, parameters("diary", max_tokens=20))])
    lines = [line for record in caplog.records for line in record.getMessage().splitlines()]
    steps = [tuple(map(int, line.split()[-2:])) for line in lines if line]
    received = [0, *choice.token_ids[:-1]]
    assert steps == list(enumerate(received, 1))


def test_controllers_with_side_effects_get_no_drafts(llm: Any) -> None:
    before = accepted(llm)
    (choice,) = generate(llm, [(COUNT, parameters("shared", max_tokens=20))])
    assert accepted(llm) == before
    assert " (12)" in choice.text


def test_an_abort_frees_the_copies(llm: Any) -> None:
    engine = llm.llm_engine
    numbers = [
        engine.add_request(f"abort-{i}", COUNT, parameters("regex", "( [a-z]+)+", max_tokens=200))
        for i in range(3)
    ]
    requests = driver_of(llm).requests
    before = accepted(llm)
    while accepted(llm) == before:
        engine.step()
    engine.abort_request(numbers, internal=True)
    engine.step()
    assert not requests and not driver_of(llm)._by_control and live(llm) == 0


@pytest.mark.configuration("whole-drafts-preempted")
def test_preemption_with_drafts_changes_no_text(llm: Any, long: Written) -> None:
    """There are too few blocks for all requests, so some are preempted and resumed."""
    before = counter(llm, "num_preemptions"), accepted(llm)
    assert write_long(llm) == long
    assert counter(llm, "num_preemptions") > before[0] and accepted(llm) > before[1]
    assert live(llm) == 0


@pytest.fixture(scope="session")
def shallow(engines: ConfiguredEngines, controllers: None) -> Written:
    """The results of the shallow model without drafts."""
    return write_shallow(engines("async"))


@pytest.mark.configuration("async")
def test_results_of_the_shallow_model_have_no_errors(shallow: Written) -> None:
    assert {reason for _, reason in shallow} == {"stop", "length"}


@pytest.mark.configuration("draft-model")
def test_drafts_with_asynchronous_scheduling_change_no_text(llm: Any, shallow: Written) -> None:
    """Drafts are in a pass before the scheduler knows them. The draft model is the model itself."""
    before = accepted(llm)
    assert write_shallow(llm) == shallow
    assert accepted(llm) > before
    assert live(llm) == 0


@pytest.mark.simulated_worker
@pytest.mark.parametrize("configuration", ["ranks", "stages"])
def test_ranks_and_stages_change_no_text(llm: Any, shallow: Written, configuration: str) -> None:
    """All ranks sample the same tokens: each gets the masks. With stages, several passes are under way."""
    before = accepted(llm)
    assert write_shallow(llm) == shallow
    first, second = llm.collective_rpc("digest")
    assert first == second
    assert accepted(llm) > before or configuration == "stages"
    assert live(llm) == 0


# test_rows.py proves it with rows
@pytest.mark.thorough
@pytest.mark.configuration("v2-drafts")
def test_drafts_with_the_v2_runner_change_no_text(on_v2: Callable[..., Any], shallow: Written) -> None:
    before = on_v2(accepted)
    assert on_v2(write_shallow) == shallow
    assert on_v2(accepted) > before
    assert on_v2(live) == 0
