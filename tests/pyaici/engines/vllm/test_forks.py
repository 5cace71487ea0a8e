"""Forks in requests of vLLM's own interface: the choices of a request are one controller's."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.pyaici.engines.vllm.engines import Engines
from tests.pyaici.engines.vllm.requests import FRANCE, YEAR, parameters, texts

pytestmark = pytest.mark.slow

STORY = "Once upon a time"


def forking(n: int, **extra: Any) -> Any:
    """The showcase, which forks into three; the most likely tokens, as vLLM wants it said where n > 1."""
    arguments = {"aici_controller": "showcase", "aici_fork": True, **extra}
    return parameters(max_tokens=60, temperature=1.0, top_k=1, n=n, extra_args=arguments)


@pytest.mark.parametrize("options", [{}, {"async_scheduling": True}], ids=["sync", "async"])
@pytest.mark.parametrize("hold", [True, False], ids=["held", "as it comes"])
def test_choices_of_one_controller(engines: Engines, options: dict[str, Any], hold: bool) -> None:
    """Beside one that has no controller."""
    llm = engines(**options)
    free = parameters(max_tokens=20)
    alone = texts(llm, [(FRANCE, free)])[0]
    forked, other = llm.generate([STORY, FRANCE], [forking(5, aici_hold=hold), free], use_tqdm=False)
    assert other.outputs[0].text == alone
    used, unused = forked.outputs[:3], forked.outputs[3:]
    assert [choice.index for choice in forked.outputs] == [0, 1, 2, 3, 4]
    assert all(choice.finish_reason == "stop" for choice in forked.outputs)
    for choice in used:
        # the narrator takes back what was sampled, if it can, before it forks
        assert choice.text.startswith("Once upon a time, far away," if hold else "Once upon a time")
        assert choice.text == llm.get_tokenizer().decode(choice.token_ids, skip_special_tokens=True)
    assert len({choice.text for choice in used}) == 3
    assert any(" They say:" in choice.text for choice in used), "one waits for what another one writes"
    assert [(choice.text, list(choice.token_ids), choice.stop_reason) for choice in unused] == [
        ("", [], "unused")
    ] * 2


def test_too_few_choices(llm: Any) -> None:
    (output,) = llm.generate([STORY], [forking(2)], use_tqdm=False)
    failed = [choice for choice in output.outputs if choice.finish_reason == "error"]
    assert failed and all("ask for more with n" in str(choice.stop_reason) for choice in failed)
    driver = llm.llm_engine.engine_core.engine_core.scheduler._aici.driver
    assert not driver.requests and not driver._by_control, "the child without a request is gone"


def test_without_leave_the_controller_goes_on_alone(llm: Any) -> None:
    """It is told that the engine cannot fork."""
    one = parameters("showcase", max_tokens=60)
    assert texts(llm, [(STORY, one)])[0].startswith("Once upon a time")


def test_one_that_is_aborted(llm: Any) -> None:
    """All its choices go, those that wait for a fork too."""
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
