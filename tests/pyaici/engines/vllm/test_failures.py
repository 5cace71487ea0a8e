"""Controllers that fail in a batch, and a runtime that dies: other requests go on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.pyaici.engines.vllm.requests import (
    FRANCE,
    YEAR,
    driver_of,
    ends,
    generate,
    parameters,
    texts,
)
from tests.thorough import also

pytestmark = [pytest.mark.slow, pytest.mark.any_worker]


@pytest.fixture(autouse=True)
def uploaded(guests: Callable[..., None]) -> None:
    """Uploads a controller whose argument selects how it fails in its fourth step."""
    guests("failing")


def test_an_uploaded_controller_runs(llm: Any) -> None:
    free, controlled = texts(llm, [(FRANCE, parameters()), (FRANCE, parameters("failing", "-"))])
    assert controlled == free


def test_failures_end_only_their_own_request(llm: Any) -> None:
    """Each controller fails after three tokens, in a different way."""
    alone = texts(llm, [(FRANCE, parameters(max_tokens=30))])
    modes = {"t": "unreachable", "l": "limit", "f": "not today", "b": "cannot backtrack"}
    failing = [(FRANCE, parameters("failing", mode)) for mode in modes]
    *failed, free, controlled = generate(
        llm,
        [
            *failing,
            (FRANCE, parameters(max_tokens=30)),
            (FRANCE, parameters("regex", "( [A-Z][a-z]{2,9}){2}\\.")),
        ],
    )
    for choice, words in zip(failed, modes.values(), strict=True):
        assert choice.finish_reason == "error" and words in str(choice.stop_reason), choice
        assert str(choice.stop_reason).startswith("controller failing: ")
        assert len(choice.token_ids) == 3
    assert [free.text] == alone
    assert controlled.finish_reason == "stop" and controlled.text.endswith(".")


@pytest.mark.parametrize("configuration", ["private-daemon", *also("sync-private-daemon")])
def test_a_killed_runtime_ends_only_controlled_requests(llm: Any) -> None:
    """Controlled requests end with a reason, others go on, and the next request gets a new runtime."""
    engine = llm.llm_engine
    alone = texts(
        llm,
        [(FRANCE, parameters(max_tokens=30)), (FRANCE, parameters("regex", YEAR))],
    )
    driver = driver_of(llm)
    long = parameters("regex", "( [a-z]+)+", max_tokens=300)
    for i in range(2):
        engine.add_request(f"controlled-{i}", FRANCE, long)
    engine.add_request("free", FRANCE, parameters(max_tokens=30))
    found: dict[str, Any] = {}
    doomed: Any = None
    steps = 0
    while engine.has_unfinished_requests():
        for output in engine.step():
            found[output.request_id] = output.outputs[0]
        steps += 1
        running = [one.control is not None for one in driver.requests.values()]
        # the controllers begin when they are ready, beside the model's steps
        if doomed is None and steps >= 8 and running == [True, True]:
            doomed = driver._connection._session.daemon
            os.kill(doomed.pid, signal.SIGKILL)
            doomed._process.wait()
    assert found["free"].text == alone[0]
    for i in range(2):
        choice = found[f"controlled-{i}"]
        assert choice.finish_reason == "error", choice
        assert str(choice.stop_reason).startswith("controllers cannot be run at present; "), choice
    assert ends(llm, [(FRANCE, parameters("regex", YEAR))]) == [("stop", "controller")]
    assert texts(llm, [(FRANCE, parameters("regex", YEAR))]) == alone[1:]


@pytest.mark.configuration("changing-daemon")
def test_a_missing_daemon_ends_only_controlled_requests(llm: Any, change_daemon: Callable[..., Any]) -> None:
    change_daemon(workers=0)
    (end, why), free = ends(llm, [(FRANCE, parameters("yesno")), (FRANCE, parameters(max_tokens=3))])
    assert end == "error" and "no aicirt listens on" in str(why)
    assert free == ("length", None)
