"""Requests whose controllers start slowly, or elsewhere than where they were placed: others go on."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aicirt.contract.abi import Verb
from lab.system.waiting import wait_until
from pyaici.client import step
from pyaici.client.runtime import Runtime
from pyaici.client.sequences import Sequences, WorkerLink
from pyaici.engines.vllm.scheduling import controlled
from pyaici.engines.vllm.scheduling.driver import ControllerDriver
from pyaici.toolchain import build_controller
from tests.pyaici.engines.vllm.requests import FRANCE, YEAR, driver_of, parameters, texts
from tests.thorough import also

#: the daemon of most tests
PATIENT = {"limits": {"silence_seconds": 600}}
GUEST = Path(__file__).parents[3] / "guests" / "guest.c"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("configuration", ["changing-daemon", *also("sync-changing-daemon")]),
]


def state_of(pid: int) -> str:
    """Returns the state of a process, such as "T" while it is stopped."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def add_prepared(llm: Any, name: str, arg: str) -> None:
    """Adds a request with a controller that is prepared, but has not started."""
    requests = driver_of(llm).requests
    known = {*requests}
    llm.llm_engine.add_request(name, FRANCE, parameters("regex", arg))
    (added,) = {*requests} - known
    wait_until(requests[added].prepared.done)


def run_until(llm: Any, name: str) -> dict[str, Any]:
    """Runs steps until a request has ended. Returns the last output of each request that has any."""
    found: dict[str, Any] = {}
    while name not in found or found[name].finish_reason is None:
        for output in llm.llm_engine.step():
            found[output.request_id] = output.outputs[0]
    return found


def test_a_worker_that_is_stopped_during_a_start_delays_only_its_request(
    llm: Any, change_daemon: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request waits for longer than a controller may be late, and others end while it does.

    Once it is late, no pass with another request waits for it.
    """
    monkeypatch.setattr(controlled, "MAX_IDLE", 10)
    waits: list[float] = []
    beside = False
    collect, receive = ControllerDriver.collect_answers, WorkerLink.receive

    def notice(driver: ControllerDriver, *, ready: bool = False) -> None:
        nonlocal beside
        beside = ready
        collect(driver, ready=ready)

    def count(link: WorkerLink, live: Sequences, seconds: float = 0.0) -> None:
        if beside:  # while the last token of the other request is computed, a pass may have none of it
            waits.append(seconds)
        receive(link, live, seconds)

    monkeypatch.setattr(ControllerDriver, "collect_answers", notice)
    monkeypatch.setattr(WorkerLink, "receive", count)
    runtime = change_daemon(**PATIENT)
    free, year = texts(llm, [(FRANCE, parameters(max_tokens=30)), (FRANCE, parameters("regex", YEAR))])
    (worker,) = (each["pid"] for each in runtime.health()["workers"])
    for behind in (0, 1):
        add_prepared(llm, f"stopped {behind}", YEAR)
    os.kill(worker, signal.SIGSTOP)
    try:
        llm.llm_engine.add_request("free", FRANCE, parameters(max_tokens=30))
        found = run_until(llm, "free")
        assert found["free"].text == free and list(found) == ["free"]
        assert state_of(worker) == "T" and waits and not any(waits)
    finally:
        os.kill(worker, signal.SIGCONT)
    while llm.llm_engine.has_unfinished_requests():
        for output in llm.llm_engine.step():
            found[output.request_id] = output.outputs[0]
    assert [found[f"stopped {behind}"].text for behind in (0, 1)] == [year, year]


def test_texts_do_not_depend_on_a_worker_that_is_stopped_again_and_again(
    llm: Any, change_daemon: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request may be late several times in a row, and no answer that comes after that is lost."""
    monkeypatch.setattr(step, "LATE_SECONDS", 0.0)
    runtime = change_daemon(**PATIENT)
    forced = " one two (three four five |six )(seven eight nine )*(ten )?eleven\\."
    asked = [parameters("regex", arg, max_tokens=60) for arg in (YEAR, forced, "( [a-z]+)+", forced * 2)]
    alone = texts(llm, [(FRANCE, each) for each in asked])
    (worker,) = (each["pid"] for each in runtime.health()["workers"])
    for number, each in enumerate(asked):
        llm.llm_engine.add_request(str(number), FRANCE, each)
    found: dict[str, Any] = {}
    steps = 0
    while llm.llm_engine.has_unfinished_requests():
        steps += 1
        os.kill(worker, signal.SIGSTOP if steps % 8 == 0 else signal.SIGCONT)
        for output in llm.llm_engine.step():
            found[output.request_id] = output.outputs[0]
    os.kill(worker, signal.SIGCONT)
    assert [found[str(number)].text for number in range(len(asked))] == alone


def test_a_controller_whose_worker_dies_before_its_first_verdict_is_placed_again(
    llm: Any, change_daemon: Callable[..., Runtime], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The late verdict of pre_process has suspended the request by then."""
    monkeypatch.setattr(step, "LATE_SECONDS", 0.1)
    runtime = change_daemon(**PATIENT)
    runtime.tag(runtime.upload(build_controller(GUEST, tmp_path / "guest.wasm").path).id, "guest")
    texts(llm, [(FRANCE, parameters("guest", "ok", max_tokens=2))])
    llm.llm_engine.add_request("moved", FRANCE, parameters("guest", "ok", max_tokens=4))
    requests = driver_of(llm).requests
    (moved,) = requests.values()
    wait_until(moved.prepared.done)
    (worker,) = (each["pid"] for each in runtime.health()["workers"])
    os.kill(worker, signal.SIGSTOP)
    while moved.answer is None or moved.answer.verb != Verb.SUSPEND:
        llm.llm_engine.step()
    os.kill(worker, signal.SIGKILL)
    found = run_until(llm, "moved")["moved"]
    assert (found.finish_reason, len(found.token_ids)) == ("length", 4), found


def test_an_error_of_init_prompt_ends_its_request(
    llm: Any, change_daemon: Callable[..., Runtime], tmp_path: Path
) -> None:
    runtime = change_daemon(**PATIENT)
    runtime.tag(runtime.upload(build_controller(GUEST, tmp_path / "guest.wasm").path).id, "guest")
    refused = parameters("guest", "prompt_refuse")
    found = {}
    for name, settings in (("refused", refused), ("free", parameters(max_tokens=5))):
        llm.llm_engine.add_request(name, FRANCE, settings)
    while llm.llm_engine.has_unfinished_requests():
        for output in llm.llm_engine.step():
            found[output.request_id] = output.outputs[0]
    assert found["refused"].finish_reason == "error", found["refused"]
    assert "aici_init_prompt returned" in str(found["refused"].stop_reason)
    assert len(found["free"].token_ids) == 5


@pytest.mark.parametrize("how", ["evicted", "killed"])
def test_a_controller_is_placed_again_beside_the_engine(
    llm: Any, change_daemon: Callable[..., Runtime], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = change_daemon(limits={"max_templates": 1})
    free, year = texts(llm, [(FRANCE, parameters(max_tokens=30)), (FRANCE, parameters("regex", YEAR))])
    held, placing = threading.Event(), []
    add_prepared(llm, "moved", YEAR)
    engine = driver_of(llm)._connection._session.runtime
    place = engine.place

    def place_later(*args: Any, **options: Any) -> Any:
        placing.append(threading.current_thread())
        held.wait()
        return place(*args, **options)

    monkeypatch.setattr(engine, "place", place_later)
    if how == "evicted":
        place("regex", "another", capabilities=driver_of(llm)._capabilities)
    else:
        (worker,) = (each["pid"] for each in runtime.health()["workers"])
        os.kill(worker, signal.SIGKILL)
    llm.llm_engine.add_request("free", FRANCE, parameters(max_tokens=30))
    found = run_until(llm, "free")
    assert found["free"].text == free and list(found) == ["free"]
    assert placing and threading.main_thread() not in placing
    held.set()
    assert run_until(llm, "moved")["moved"].text == year


def test_a_worker_that_never_answers_costs_only_its_own_requests(
    llm: Any, change_daemon: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others go on: those in another worker, those that come later, and those without a controller."""
    monkeypatch.setattr(step, "LATE_SECONDS", 0.1)
    monkeypatch.setattr(step, "STEP_TIMEOUT", 1.0)
    change_daemon(workers=2, limits={"silence_seconds": 600})
    free, year = texts(llm, [(FRANCE, parameters(max_tokens=30)), (FRANCE, parameters("regex", YEAR))])
    placed: dict[int, list[str]] = {}
    requests = driver_of(llm).requests
    while len(placed) < 2:
        add_prepared(llm, name := f"placed {len(requests)}", YEAR)
        added = next(reversed(requests.values())).prepared.result()
        placed.setdefault(added.placement.address.pid, []).append(name)
    (stopped, lost), (_, kept) = placed.items()
    os.kill(stopped, signal.SIGSTOP)
    try:
        llm.llm_engine.add_request("free", FRANCE, parameters(max_tokens=30))
        later = [f"later {number}" for number in range(8)]  # more than the threads that place controllers
        for name in later:  # each with an argument that its worker has yet to get
            llm.llm_engine.add_request(name, FRANCE, parameters("regex", f"{YEAR}|{name}"))
        found: dict[str, Any] = {}
        while llm.llm_engine.has_unfinished_requests():
            for output in llm.llm_engine.step():
                found[output.request_id] = output.outputs[0]
        assert state_of(stopped) == "T"
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert [found[name].text for name in ("free", *kept)] == [free, *[year] * len(kept)]
    assert {found[name].stop_reason for name in later} == {"controller"}
    assert all("did not answer within 1 s" in str(found[name].stop_reason) for name in lost), found
