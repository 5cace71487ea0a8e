"""Suspended requests keep their blocks, as long as nobody else needs them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.request import RequestStatus

from pyaici import VllmEngine
from pyaici.client.runtime import Runtime
from pyaici.engines.engine import Request
from pyaici.engines.vllm.frontend import ControllerCall
from pyaici.engines.vllm.scheduling import request_state
from pyaici.scripting.script import LANGUAGE_NAMES, interpreter_file, read_request
from tests.pyaici.engines.vllm.requests import scheduler_of

pytestmark = [pytest.mark.slow, pytest.mark.any_worker]
#: tokens of the sequences when they are suspended: the prompt, and those of the first `gen`
PROMPT, TEXT = list(range(1000, 1090)), 8
#: sequences that wait for the first one
WAITING = 7
#: the first sequence goes on; the others are suspended until it has ended
SCRIPT = f"""
from aici import fork, gen, set_var, wait

async def main():
    await gen(max_tokens={TEXT})
    if await fork({WAITING + 1}) == 0:
        await gen(max_tokens=40)
        set_var("done", "yes")
    else:
        await wait("done")
        await gen(max_tokens=5)
"""
#: each sequence writes a text of its own before, so that all of them do not fit
LONG = SCRIPT.replace(
    f"    if await fork({WAITING + 1})",
    f"    mine = await fork({WAITING + 1})\n    await gen(regex=f' {{mine}}.*', max_tokens=60)\n    if mine",
)
SECONDS = "AICI_KEEP_BLOCKS_S"
caching = pytest.mark.parametrize("configuration", ["async", "async-no-prefix-cache"])
scarce = pytest.mark.parametrize("configuration", ["async-preempted", "sync-preempted"])


def run(engine: Any, module: str, source: str = SCRIPT) -> list[Any]:
    """Returns the tokens and ends of all sequences."""
    arg = read_request({"language": "python", "source": source})[1]
    results = engine.run([Request(PROMPT, controller=module, arg=arg, max_tokens=120)])
    assert [result.error for result in results] == [None] * (WAITING + 1)
    return sorted((result.new_tokens, result.finish_reason.value) for result in results)


@pytest.fixture(scope="session")
def module(runtime: Runtime) -> str:
    """The interpreter of scripts, at the shared daemon."""
    return runtime.upload(interpreter_file(LANGUAGE_NAMES["python"])).id


@pytest.fixture(scope="session")
def expected(hf: Any, module: str) -> list[Any]:
    return run(hf, module)


@pytest.fixture
def engine(llm: Any) -> VllmEngine:
    return VllmEngine(llm, max_sequences=WAITING + 1)


@caching
def test_blocks_are_kept(
    engine: VllmEngine, module: str, expected: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECONDS, "3600")
    assert run(engine, module) == expected
    assert engine.stats.read_again == 0


@caching
def test_blocks_that_are_not_kept_are_read_again(
    engine: VllmEngine, module: str, expected: list[Any], monkeypatch: pytest.MonkeyPatch, configuration: str
) -> None:
    """With prefix caching, only the tokens after the last whole block."""
    monkeypatch.setenv(SECONDS, "0")
    assert run(engine, module) == expected
    tokens = len(PROMPT) + TEXT - 1
    each = tokens if configuration == "async-no-prefix-cache" else tokens % 32
    assert engine.stats.read_again == WAITING * each


@caching
def test_blocks_are_given_back_after_their_time(
    engine: VllmEngine, module: str, expected: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(monotonic=lambda: clock.now, now=0.0)
    monkeypatch.setattr(request_state, "time", clock)
    monkeypatch.setenv(SECONDS, "10")
    step = engine.step

    def step_later() -> Any:
        clock.now += 2
        return step()

    monkeypatch.setattr(engine, "step", step_later)
    assert run(engine, module) == expected
    assert engine.stats.read_again > 0


@scarce
def test_more_waiting_sequences_than_blocks_starve_nobody(
    engine: VllmEngine, llm: Any, hf: Any, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """17 blocks of 32 tokens for eight sequences with three blocks of their own, and two for all."""
    monkeypatch.setenv(SECONDS, "3600")
    assert run(engine, module, LONG) == run(hf, module, LONG)
    manager = scheduler_of(llm).kv_cache_manager
    assert manager.block_pool.get_num_free_blocks() == manager.block_pool.num_gpu_blocks - 1
    assert engine.stats.read_again > 0


def test_a_request_that_the_step_has_scheduled_keeps_its_blocks() -> None:
    """Another request looks for blocks before the step has been scheduled, when this one is forgotten."""
    requests = {
        name: SimpleNamespace(request_id=name, status=status, num_computed_tokens=64)
        for name, status in (
            ("scheduled", RequestStatus.RUNNING),
            ("suspended", RequestStatus.WAITING),
            ("new", RequestStatus.WAITING),
        )
    }
    freed = list[Any]()
    scheduler = SimpleNamespace(
        requests=requests,
        kv_holding_waiting=[],
        kv_cache_manager=SimpleNamespace(allocate_slots=lambda request: None),
        encoder_cache_manager=SimpleNamespace(free=lambda request: None),
        _free_request_blocks=freed.append,
    )
    blocks = request_state.KeptBlocks(scheduler)
    for name in ("scheduled", "suspended"):
        blocks.keep_for(requests[name], 3600)
    assert scheduler.kv_cache_manager.allocate_slots(requests["new"]) is None
    assert freed == [requests["suspended"]]


def test_a_wrong_number_of_seconds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep(**extra: Any) -> float:
        call = ControllerCall.from_extra_args({"aici_controller": "yesno", **extra})
        assert call is not None
        return call.keep

    assert (keep(), keep(aici_keep=0), keep(aici_keep="2.5")) == (5, 0, 2.5)
    for wrong in (-1, 3601, True, "soon", float("nan"), [1]):
        with pytest.raises(ValueError, match=r"aici_keep is .* number of seconds from 0 to 3600"):
            keep(aici_keep=wrong)
    monkeypatch.setenv(SECONDS, "7")
    assert keep() == 7
