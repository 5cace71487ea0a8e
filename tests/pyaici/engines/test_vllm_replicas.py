"""The ranks that a front end of vLLM with data parallelism chooses for requests that may fork."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest

from pyaici.engines.vllm.frontend import RankLoads, change_generate


def test_the_rank_with_the_fewest_choices_is_taken() -> None:
    loads = RankLoads()
    assert [loads.choose_rank(3, choices) for choices in (4, 2, 3, 1, 1)] == [0, 1, 2, 1, 2]
    loads.give_back(0, 4)
    assert loads.choose_rank(3, 1) == 0


def test_ranks_with_equally_many_choices_take_turns() -> None:
    loads = RankLoads()
    taken = []
    for _ in range(5):
        taken.append(loads.choose_rank(2, 3))
        loads.give_back(taken[-1], 3)
    assert taken == [0, 1, 0, 1, 0]


class Engine:
    """Stands for vLLM's AsyncLLM: records the rank of each request, and its end."""

    def __init__(self, ranks: int, *, local: int | None = None) -> None:
        config = SimpleNamespace(
            data_parallel_size=ranks,
            data_parallel_size_local=ranks if local is None else local,
            local_engines_only=local is not None,
        )
        self.vllm_config = SimpleNamespace(parallel_config=config)
        self.ranks: list[int | None] = []
        self.closed = 0

    async def generate(
        self,
        prompt: str,
        sampling_params: Any,
        request_id: str,
        *,
        priority: int = 0,
        data_parallel_rank: int | None = None,
    ) -> AsyncGenerator[str, None]:
        assert priority == 7, "other arguments are passed on"
        self.ranks.append(data_parallel_rank)
        try:
            yield f"{prompt} {request_id}"
            yield "more"
        finally:
            self.closed += 1


change_generate(Engine, check=False)
FORKING = SimpleNamespace(n=3, extra_args={"aici_controller": "showcase", "aici_fork": "true"})


def ranks(engine: Engine, parameters: list[Any], **keywords: Any) -> list[int | None]:
    """Returns the ranks of requests that run at the same time. Each ends after its first output."""

    async def run() -> None:
        streams = [engine.generate("a", one, "b", priority=7, **keywords) for one in parameters]
        assert [await anext(stream) for stream in streams] == ["a b"] * len(streams)
        for stream in streams:
            await stream.aclose()

    before = len(engine.ranks)
    asyncio.run(run())
    return engine.ranks[before:]


def test_requests_that_may_fork_are_spread_over_the_ranks() -> None:
    engine = Engine(2)
    assert ranks(engine, [FORKING] * 4) == [0, 1, 0, 1]
    assert engine.closed == 4
    assert ranks(engine, [FORKING] * 3) == [0, 1, 0], "ended requests do not count"


def test_a_request_that_was_not_started_does_not_count() -> None:
    engine = Engine(2)

    async def drop() -> None:
        await engine.generate("a", FORKING, "b", priority=7).aclose()

    asyncio.run(drop())
    assert ranks(engine, [FORKING, FORKING]) == [0, 1]


@pytest.mark.parametrize(
    "parameters",
    [
        SimpleNamespace(n=3, extra_args=None),
        SimpleNamespace(n=3, extra_args={"aici_controller": "regex", "aici_arg": "a"}),
        SimpleNamespace(n=3, extra_args={"aici_controller": "regex", "aici_fork": "perhaps"}),
        SimpleNamespace(n=1, extra_args=FORKING.extra_args),
        SimpleNamespace(),
    ],
    ids=["free", "without forks", "invalid", "one choice", "pooling"],
)
def test_vllm_chooses_the_ranks_of_other_requests(parameters: Any) -> None:
    assert ranks(Engine(2), [parameters]) == [None]


def test_the_callers_rank_is_kept() -> None:
    assert ranks(Engine(2), [FORKING] * 2, data_parallel_rank=1) == [1, 1]


def test_engines_behind_another_load_balancer_use_only_their_own_ranks() -> None:
    assert ranks(Engine(1), [FORKING]) == [None]
    assert ranks(Engine(4, local=1), [FORKING]) == [None]
    assert ranks(Engine(4, local=2), [FORKING] * 3) == [0, 1, 0]


def test_the_variables_of_the_template_reach_requests_that_think() -> None:
    class Client:
        def generate(self, prompt: str, sampling_params: Any, request_id: str, **keywords: Any) -> Any:
            return sampling_params.extra_args

    change_generate(Client, check=False)
    thinking = {"aici_controller": "yesno", "aici_after_thinking": True}
    parser = {"chat_template_kwargs": {"enable_thinking": False}}
    found = []
    for extra in (thinking, {"aici_controller": "yesno"}, thinking | {"aici_template": {}}, None):
        given = SimpleNamespace(extra_args=extra)
        found.append(Client().generate("a", given, "b", reasoning_parser_kwargs=parser))
        assert given.extra_args == extra, "the caller keeps its parameters"
    assert found == [
        thinking | {"aici_template": {"enable_thinking": False}},
        {"aici_controller": "yesno"},
        thinking | {"aici_template": {}},
        None,
    ]
    assert Client().generate("a", SimpleNamespace(extra_args=thinking), "b") == thinking
