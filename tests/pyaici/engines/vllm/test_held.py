"""Answers that are held back: controllers backtrack, and clients see only the final text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyaici.client.daemon import Daemon
from pyaici.client.runtime import Runtime
from tests.pyaici.engines.vllm.engines import Engines
from tests.pyaici.engines.vllm.guests import second_thoughts
from tests.pyaici.engines.vllm.requests import FRANCE, YEAR, counter, ends, generate, parameters, texts

pytestmark = pytest.mark.slow

#: prompt, argument. The controller removes: tokens of one block, of several blocks, and all but a few, in the
#: fourth case without appending text
CASES = [
    (FRANCE, "6 3  Rome, of all places"),
    ("Once upon a time", "40 34  there was a mouse"),
    ("The three colours of the flag are", "9 8  green"),
    ("One two three four", "12 4 "),
    ("def fibonacci(n):", "20 2 # no"),
]


@pytest.fixture(scope="module")
def wasm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return second_thoughts(tmp_path_factory.mktemp("thoughts"))


@pytest.fixture(scope="module")
def expected(model_path: Path, wasm: Path) -> list[list[int]]:
    """The tokens of the cases on Transformers."""
    from pyaici.engines.hf import HfEngine, Request
    from pyaici.engines.hf.program import load_model

    with Runtime() as runtime:
        module = runtime.upload(wasm)
        engine = HfEngine(*load_model(model_path, "cpu"), runtime)
        results = engine.run(
            [Request(prompt, module=module.id, arg=arg, max_tokens=60) for prompt, arg in CASES]
        )
    assert all(result.error is None and result.backtracked > 0 for result in results)
    return [result.new_tokens for result in results]


@pytest.fixture(scope="module")
def daemon(wasm: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    store = tmp_path_factory.mktemp("store")
    with Daemon(workers=1, store=store) as daemon, Runtime(daemon.socket_path) as runtime:
        runtime.tag(runtime.upload(wasm).id, "thoughts")
        yield daemon


def held(controller: str, arg: str, **options: Any) -> Any:
    extra = {"aici_controller": controller, "aici_arg": arg, "aici_hold": True}
    return parameters(**{"max_tokens": 60, **options, "extra_args": extra})


CONFIGURATIONS: list[dict[str, Any]] = [
    {"num_gpu_blocks_override": 11, "max_model_len": 256},
    {"num_gpu_blocks_override": 11, "max_model_len": 256, "async_scheduling": True},
    {"async_scheduling": True},
    {},
]


@pytest.mark.parametrize(
    "options", CONFIGURATIONS, ids=["sync-preempted", "async-preempted", "async", "sync"]
)
def test_backtracking_gives_the_same_tokens_as_on_transformers(
    engines: Engines, daemon: Daemon, expected: list[list[int]], options: dict[str, Any]
) -> None:
    """The batch also has a request without a controller, and one that is not held back."""
    llm = engines(env={"AICI_SOCKET": str(daemon.socket_path)}, **options)
    others = [
        (FRANCE, parameters(max_tokens=40)),
        ("A city:", parameters("regex", "( [A-Z][a-z]+)+", max_tokens=20)),
    ]
    alone = [texts(llm, [other])[0] for other in others]
    before = counter(llm, "num_preemptions")
    times = 3 if "num_gpu_blocks_override" in options else 1
    cases = [(prompt, held("thoughts", arg)) for prompt, arg in CASES] * times
    choices = generate(llm, [*cases, *others])
    # a case counts as a preemption if it removes tokens of a block that others might share
    assert (counter(llm, "num_preemptions") > before + times) == ("num_gpu_blocks_override" in options)
    assert [list(choice.token_ids) for choice in choices[: len(cases)]] == expected * times
    assert [choice.text for choice in choices[len(cases) :]] == alone
    tokenizer = llm.get_tokenizer()
    assert [choice.text for choice in choices[: len(CASES)]] == [
        tokenizer.decode(each, skip_special_tokens=True) for each in expected
    ]


def test_held_answers_obey_their_masks(engines: Engines, daemon: Daemon) -> None:
    llm = engines(env={"AICI_SOCKET": str(daemon.socket_path)})
    plain, back = (
        texts(llm, [(FRANCE, request)])[0]
        for request in (
            parameters("regex", YEAR),
            held("regex", YEAR),
        )
    )
    assert plain == back and re.fullmatch(YEAR, back)


def test_held_answers_that_are_impossible_fail(engines: Engines, daemon: Daemon) -> None:
    llm = engines(env={"AICI_SOCKET": str(daemon.socket_path)})
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
