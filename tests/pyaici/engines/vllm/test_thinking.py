"""Controllers that begin when a reasoning model has finished its thinking."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lab.vllm.reasoning import Marker
from tests.pyaici.engines.vllm.requests import FRANCE, YEAR, generate, parameters
from tests.thorough import also

pytestmark = [pytest.mark.slow, pytest.mark.any_worker]

PROMPTS = [FRANCE, "one two three four one two three four one two three", "x = [1, 2, 1, 2, 1, 2,"]
TOKENS = 40


scheduling = pytest.mark.parametrize(
    "configuration", ["async-no-prefix-cache", "drafts", *also("sync-reasoning")]
)


@pytest.fixture(autouse=True)
def uploaded(guests: Callable[..., None]) -> None:
    guests("flags", "flags_mid")


def after_thinking(controller: str, arg: str, *, also: dict[str, Any] | None = None, **options: Any) -> Any:
    extra = {"aici_controller": controller, "aici_arg": arg, "aici_after_thinking": True, **(also or {})}
    return parameters(max_tokens=2 * TOKENS, extra_args=extra, **options)


def choose_marker(llm: Any, prompt: str, count: int = TOKENS) -> list[int]:
    """Ends the thinking with a token that the model writes after some others. Returns the thinking."""
    (free,) = generate(llm, [(prompt, parameters(max_tokens=count))])
    tokenizer = llm.get_tokenizer()
    seen = tokenizer.encode(prompt)
    tokens = list(free.token_ids)
    at = max(i for i in range(count) if tokens[i] not in [*seen, *tokens[:i]])
    Marker.token = tokenizer.convert_ids_to_tokens(tokens[at])
    return tokens[: at + 1]


@pytest.mark.parametrize(
    ("configuration", "prompt"),
    [
        ("async-no-prefix-cache", PROMPTS[0]),
        # drafts are right only where a text repeats
        ("drafts", PROMPTS[1]),
        *also(
            *(("async-no-prefix-cache", prompt) for prompt in PROMPTS[1:]),
            *(("drafts", prompt) for prompt in (PROMPTS[0], PROMPTS[2])),
            *(("sync-reasoning", prompt) for prompt in PROMPTS),
        ),
    ],
)
def test_the_controller_begins_after_the_thinking(llm: Any, prompt: str) -> None:
    """The answer is that of a request with the prompt and the thinking as its prompt."""
    thinking = choose_marker(llm, prompt)
    whole = {"prompt_token_ids": [*llm.get_tokenizer().encode(prompt), *thinking]}
    for controller, arg in [("regex", YEAR), ("flags_mid", "a0s0a0a0a0x0")]:
        direct, after = generate(
            llm,
            [
                (whole, parameters(controller, arg, max_tokens=TOKENS)),
                (prompt, after_thinking(controller, arg)),
            ],
        )
        assert [*thinking, *direct.token_ids] == after.token_ids
        assert after.stop_reason == "controller"


@scheduling
def test_thinking_that_has_ended_or_never_ends(llm: Any) -> None:
    """The controller begins at once if the prompt ends the thinking, and never without an end."""
    thinking = choose_marker(llm, FRANCE)
    whole = {"prompt_token_ids": [*llm.get_tokenizer().encode(FRANCE), *thinking]}
    direct, after = generate(
        llm, [(whole, parameters("regex", YEAR)), (whole, after_thinking("regex", YEAR))]
    )
    assert after.token_ids == direct.token_ids and after.stop_reason == "controller"
    Marker.token = "<|endoftext|>"
    free, endless = generate(
        llm, [(FRANCE, parameters(max_tokens=2 * TOKENS)), (FRANCE, after_thinking("regex", YEAR))]
    )
    assert endless.token_ids == free.token_ids and endless.finish_reason == "length"


@pytest.mark.parametrize("configuration", ["async-no-prefix-cache", *also("sync-reasoning")])
def test_forks_begin_with_the_thinking(llm: Any) -> None:
    """Without drafts, because vLLM's sampler for them fails with `top_k` if a pass has none."""
    thinking = choose_marker(llm, FRANCE)
    request = after_thinking("flags", "a0f0s0a0x0", also={"aici_fork": True}, n=2, temperature=1, top_k=1)
    (output,) = llm.generate([FRANCE], [request], use_tqdm=False)
    first, second = (choice.token_ids for choice in output.outputs)
    assert first[: len(thinking)] == second[: len(thinking)] == thinking
    assert len(first) > len(thinking) and len(second) > len(thinking)
    assert all(choice.stop_reason == "controller" for choice in output.outputs)


@scheduling
def test_removed_tokens_come_after_the_thinking(llm: Any) -> None:
    thinking = choose_marker(llm, FRANCE)
    request = after_thinking("flags_mid", "a0s0a0b1x0", also={"aici_hold": True})
    (choice,) = generate(llm, [(FRANCE, request)])
    assert choice.token_ids[: len(thinking)] == thinking
    assert choice.stop_reason == "controller"
    x = llm.get_tokenizer().encode("x")
    assert choice.token_ids[len(thinking) + 1 :] == [*x, *x]


def think_briefly(llm: Any) -> tuple[list[int], list[int]]:
    """Returns the tokens of a request that begins after the thinking, and the same in two requests."""
    thinking = choose_marker(llm, FRANCE, 8)
    whole = {"prompt_token_ids": [*llm.get_tokenizer().encode(FRANCE), *thinking]}
    arg = "( [a-z]{1,9}){3}"
    direct, after = generate(
        llm, [(whole, parameters("regex", arg, max_tokens=8)), (FRANCE, after_thinking("regex", arg))]
    )
    return [*thinking, *direct.token_ids], list(after.token_ids)[: len(thinking) + len(direct.token_ids)]


@pytest.mark.configuration("v2-reasoning")
def test_the_controller_begins_after_the_thinking_with_runner_v2(on_v2: Callable[..., Any]) -> None:
    """With fewer tokens: an interpreter runs the kernels of this model runner."""
    expected, found = on_v2(think_briefly)
    assert found == expected


@scheduling
def test_the_template_can_turn_the_thinking_off(llm: Any) -> None:
    """The reasoning parser knows by the variables of the chat's template that there is none."""
    choose_marker(llm, FRANCE)
    off = after_thinking("regex", YEAR, also={"aici_template": {"enable_thinking": False}})
    on = after_thinking("regex", YEAR, also={"aici_template": '{"enable_thinking": true}'})
    direct, without, thinking = generate(
        llm, [(FRANCE, parameters("regex", YEAR)), (FRANCE, off), (FRANCE, on)]
    )
    assert direct.token_ids == without.token_ids != thinking.token_ids


def test_an_engine_without_a_reasoning_parser_refuses(llm: Any) -> None:
    (choice,) = generate(llm, [(FRANCE, after_thinking("regex", YEAR))])
    assert choice.finish_reason == "error"
    assert "aici_after_thinking needs a reasoning parser" in str(choice.stop_reason)
