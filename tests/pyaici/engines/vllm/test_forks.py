"""Forks in requests through vLLM's own interface: one controller writes all choices of a request."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.pyaici.engines.vllm.requests import FRANCE, YEAR, driver_of, parameters, texts

pytestmark = [pytest.mark.slow, pytest.mark.any_worker]

STORY = "Once upon a time"


def forking(n: int, **extra: Any) -> Any:
    """Returns parameters for the showcase, which forks into three.

    top_k=1 selects the most likely tokens: vLLM refuses temperature 0 with n > 1.
    """
    arguments = {"aici_controller": "showcase", "aici_fork": True, **extra}
    return parameters(max_tokens=60, temperature=1.0, top_k=1, n=n, extra_args=arguments)


@pytest.mark.parametrize("hold", [True, False], ids=["held", "streamed"])
@pytest.mark.parametrize("configuration", ["async", "sync"])
def test_forks_of_a_controller_become_choices(llm: Any, hold: bool) -> None:
    """Another request in the batch has no controller."""
    free = parameters(max_tokens=20)
    alone = texts(llm, [(FRANCE, free)])[0]
    forked, other = llm.generate([STORY, FRANCE], [forking(5, aici_hold=hold), free], use_tqdm=False)
    assert other.outputs[0].text == alone
    used, unused = forked.outputs[:3], forked.outputs[3:]
    assert [choice.index for choice in forked.outputs] == [0, 1, 2, 3, 4]
    assert all(choice.finish_reason == "stop" for choice in forked.outputs)
    for choice in used:
        # the narrator removes the sampled text before it forks, if the engine can backtrack
        assert choice.text.startswith("Once upon a time, far away," if hold else "Once upon a time")
        # vLLM leaves out a character that is not complete at the end
        written = llm.get_tokenizer().decode(choice.token_ids, skip_special_tokens=True)
        assert choice.text == written.rstrip("\ufffd")
    assert len({choice.text for choice in used}) == 3
    assert any(" They say:" in choice.text for choice in used), "one fork waits for the variable of another"
    assert [(choice.text, list(choice.token_ids), choice.stop_reason) for choice in unused] == [
        ("", [], "unused")
    ] * 2


def test_a_fork_without_a_free_choice_is_an_error_with_advice(llm: Any) -> None:
    (output,) = llm.generate([STORY], [forking(2)], use_tqdm=False)
    failed = [choice for choice in output.outputs if choice.finish_reason == "error"]
    assert failed and all("ask for more with n" in str(choice.stop_reason) for choice in failed)
    driver = driver_of(llm)
    assert not driver.requests and not driver._by_control, "the child without a choice must be freed"


def test_without_aici_fork_the_controller_does_not_fork(llm: Any) -> None:
    """The controller sees that the engine cannot fork."""
    one = parameters("showcase", max_tokens=60)
    assert texts(llm, [(STORY, one)])[0].startswith("Once upon a time")


def test_aborting_a_request_frees_all_its_choices(llm: Any) -> None:
    """This includes choices that are reserved for forks."""
    engine = llm.llm_engine
    engine.add_request("forks", STORY, forking(4))
    for _ in range(3):
        engine.step()
    engine.abort_request(["forks"])
    engine.step()
    scheduler = engine.engine_core.engine_core.scheduler
    assert not engine.has_unfinished_requests() and not scheduler.requests
    assert not scheduler._aici.groups._groups
    assert re.fullmatch(YEAR, texts(llm, [(FRANCE, parameters("regex", YEAR))])[0])
