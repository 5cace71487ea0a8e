"""Controllers that fail in a batch, and a runtime that dies: other requests go on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyaici.build import build_controller
from pyaici.client.daemon import Daemon
from pyaici.client.runtime import Runtime
from tests.pyaici.engines.vllm.engines import Engines
from tests.pyaici.engines.vllm.requests import FRANCE, YEAR, ends, generate, parameters, texts

pytestmark = pytest.mark.slow

#: allows all tokens until its fourth step; its argument selects how it fails then
FAILING = r"""
#include "aici.h"

AICI_CONTROLLER

static aici_step_arg arg = {sizeof arg};
static aici_mid_result mid;
static char mode;

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }

AICI_EXPORT(aici_init) int aici_init(uint32_t length) {
    aici_read(AICI_ARG, 0, &mode, length != 0);
    return 0;
}

AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) {
    mid = (aici_mid_result){.size = sizeof mid, .verb = AICI_SAMPLE, .row_kind = AICI_ROW_ALL};
    if (arg.step > 3 && mode == 't') __builtin_trap();
    if (arg.step > 3 && mode == 'l') for (volatile int i = 0;; i++) {}
    if (arg.step > 3 && mode == 'f') aici_fail("not today", 9);
    if (arg.step > 3 && mode == 'b') { mid.verb = AICI_SPLICE; mid.backtrack = 1; }
    return &mid;
}
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with the uploaded controller "failing"."""
    folder = tmp_path_factory.mktemp("failing")
    (folder / "failing.c").write_text(FAILING)
    wasm = build_controller(folder / "failing.c", folder / "failing.wasm").path
    with Daemon(workers=1, store=folder / "store") as daemon, Runtime(daemon.socket_path) as runtime:
        runtime.tag(runtime.upload(wasm).id, "failing")
        yield daemon


@pytest.fixture(scope="module", params=[False, True], ids=["sync", "async"])
def llm_with_daemon(request: pytest.FixtureRequest, engines: Engines, daemon: Daemon) -> Any:
    return engines(env={"AICI_SOCKET": str(daemon.socket_path)}, async_scheduling=request.param)


def test_an_uploaded_controller_runs(llm_with_daemon: Any) -> None:
    free, controlled = texts(llm_with_daemon, [(FRANCE, parameters()), (FRANCE, parameters("failing", "-"))])
    assert controlled == free


def test_failures_end_only_their_own_request(llm_with_daemon: Any) -> None:
    """Each controller fails after three tokens, in a different way."""
    alone = texts(llm_with_daemon, [(FRANCE, parameters(max_tokens=30))])
    modes = {"t": "unreachable", "l": "limit", "f": "not today", "b": "cannot backtrack"}
    failing = [(FRANCE, parameters("failing", mode)) for mode in modes]
    *failed, free, controlled = generate(
        llm_with_daemon,
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


@pytest.mark.parametrize("asynchronous", [True, False], ids=["async", "sync"])
def test_a_killed_runtime_ends_only_controlled_requests(engines: Engines, asynchronous: bool) -> None:
    """Controlled requests end with a reason, others go on, and the next request gets a new runtime."""
    llm = engines(async_scheduling=asynchronous)
    engine = llm.llm_engine
    alone = texts(
        llm,
        [(FRANCE, parameters(max_tokens=30)), (FRANCE, parameters("regex", YEAR))],
    )
    driver = engine.engine_core.engine_core.scheduler._aici.driver
    long = parameters("regex", "( [a-z]+)+", max_tokens=300)
    for i in range(2):
        engine.add_request(f"controlled-{i}", FRANCE, long)
    engine.add_request("free", FRANCE, parameters(max_tokens=30))
    found: dict[str, Any] = {}
    steps = 0
    while engine.has_unfinished_requests():
        for output in engine.step():
            found[output.request_id] = output.outputs[0]
        steps += 1
        if steps == 8:
            assert all(one.control is not None for one in driver.requests.values())
            daemon = driver._connection._session.daemon
            os.kill(daemon.pid, signal.SIGKILL)
            daemon._process.wait()
    assert found["free"].text == alone[0]
    for i in range(2):
        choice = found[f"controlled-{i}"]
        assert choice.finish_reason == "error", choice
        assert str(choice.stop_reason).startswith("controllers cannot be run at present; "), choice
    assert ends(llm, [(FRANCE, parameters("regex", YEAR))]) == [("stop", "controller")]
    assert texts(llm, [(FRANCE, parameters("regex", YEAR))]) == alone[1:]


def test_a_missing_daemon_ends_only_controlled_requests(engines: Engines, tmp_path: Path) -> None:
    llm = engines(env={"AICI_SOCKET": str(tmp_path / "nothing")})
    (end, why), free = ends(llm, [(FRANCE, parameters("yesno")), (FRANCE, parameters(max_tokens=3))])
    assert end == "error" and "no aicirt listens on" in str(why)
    assert free == ("length", None)
