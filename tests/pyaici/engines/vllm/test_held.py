"""Answers that are held back: controllers backtrack, and clients see only the final text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from pyaici.engines.engine import Request
from tests.pyaici.engines.vllm.requests import FRANCE, YEAR, counter, ends, generate, parameters, texts
from tests.thorough import also

pytestmark = [pytest.mark.slow, pytest.mark.any_worker]

#: prompt, argument. The controller removes: tokens of one block, of several blocks, and all but a few, in the
#: fourth case without appending text
CASES = [
    (FRANCE, "6 3  Rome, of all places"),
    ("Once upon a time", "40 34  there was a mouse"),
    ("The three colours of the flag are", "9 8  green"),
    ("One two three four", "12 4 "),
    ("def fibonacci(n):", "20 2 # no"),
]


@pytest.fixture(scope="session")
def expected(hf: Any, guests: Callable[..., None]) -> list[list[int]]:
    """The tokens of the cases on Transformers."""
    guests("thoughts")
    results = hf.run(
        [Request(prompt, controller="thoughts", arg=arg, max_tokens=60) for prompt, arg in CASES]
    )
    assert all(result.error is None and result.backtracked > 0 for result in results)
    return [result.new_tokens for result in results]


def held(controller: str, arg: str, **options: Any) -> Any:
    extra = {"aici_controller": controller, "aici_arg": arg, "aici_hold": True}
    return parameters(**{"max_tokens": 60, **options, "extra_args": extra})


@pytest.mark.parametrize("configuration", ["async", "async-preempted", *also("sync", "sync-preempted")])
def test_backtracking_gives_the_same_tokens_as_on_transformers(
    llm: Any, configuration: str, expected: list[list[int]]
) -> None:
    """The batch also has a request without a controller, and one that is not held back."""
    preempted = configuration.endswith("preempted")
    others = [
        (FRANCE, parameters(max_tokens=40)),
        ("A city:", parameters("regex", "( [A-Z][a-z]+)+", max_tokens=20)),
    ]
    alone = [texts(llm, [other])[0] for other in others]
    before = counter(llm, "num_preemptions")
    times = 3 if preempted else 1
    cases = [(prompt, held("thoughts", arg)) for prompt, arg in CASES] * times
    choices = generate(llm, [*cases, *others])
    # a case counts as a preemption if it removes tokens of a block that others might share
    assert (counter(llm, "num_preemptions") > before + times) == preempted
    assert [list(choice.token_ids) for choice in choices[: len(cases)]] == expected * times
    assert [choice.text for choice in choices[len(cases) :]] == alone
    tokenizer = llm.get_tokenizer()
    assert [choice.text for choice in choices[: len(CASES)]] == [
        tokenizer.decode(each, skip_special_tokens=True) for each in expected
    ]


def test_held_answers_obey_their_masks(llm: Any) -> None:
    plain, back = (
        texts(llm, [(FRANCE, request)])[0]
        for request in (
            parameters("regex", YEAR),
            held("regex", YEAR),
        )
    )
    assert plain == back and re.fullmatch(YEAR, back)


def test_held_answers_that_are_impossible_fail(llm: Any, guests: Callable[..., None]) -> None:
    guests("thoughts")
    too_far, measured, limited = ends(
        llm,
        [
            (FRANCE, held("thoughts", "5 6 more than there is")),
            (FRANCE, held("regex", "a+", logprobs=1)),
            (FRANCE, held("thoughts", "30 29  and so on", max_tokens=32)),
        ],
    )
    assert too_far[0] == "error" and "removes 6 tokens, but the sequence has only 4" in str(too_far[1])
    assert measured[0] == "error" and "aici_hold and logprobs" in str(measured[1])
    assert limited == ("length", None)
