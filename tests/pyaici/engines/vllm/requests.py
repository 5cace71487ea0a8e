"""Requests to an engine of vLLM in this process, and their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab.system.waiting import wait_until

FRANCE = "The capital of France is"
#: a pattern with short matches only
YEAR = " [A-Z][a-z]{2,9}, [0-9]{4}"


def parameters(controller: str = "", arg: Any = "", **options: Any) -> Any:
    """Returns parameters for greedy sampling, with a controller if one is named."""
    from vllm import SamplingParams

    extra = {"aici_controller": controller, "aici_arg": arg} if controller else None
    return SamplingParams(**{"temperature": 0, "max_tokens": 40, "extra_args": extra, **options})


def generate(llm: Any, requests: list[tuple[Any, Any]], **options: Any) -> list[Any]:
    """Returns the first choice of each request. `options`: further ones of `LLM.generate`."""
    prompts, settings = zip(*requests, strict=True)
    outputs = llm.generate(list(prompts), list(settings), use_tqdm=False, **options)
    return [output.outputs[0] for output in outputs]


def texts(llm: Any, requests: list[tuple[str, Any]]) -> list[str]:
    return [choice.text for choice in generate(llm, requests)]


def ends(llm: Any, requests: list[tuple[str, Any]]) -> list[tuple[str, str | int | None]]:
    """Returns the finish reason and the stop reason of each request."""
    return [(choice.finish_reason, choice.stop_reason) for choice in generate(llm, requests)]


def counter(llm: Any, name: str) -> int:
    """Returns the value of one of the engine's metrics."""
    return sum(int(metric.value) for metric in llm.get_metrics() if metric.name == f"vllm:{name}")


def scheduler_of(llm: Any) -> Any:
    """Returns the scheduler of an engine in this process."""
    return llm.llm_engine.engine_core.engine_core.scheduler


def driver_of(llm: Any) -> Any:
    """Returns the part of the scheduler that steers requests, which exists after the first controlled one."""
    scheduler = scheduler_of(llm)
    if scheduler._aici.driver is None:
        generate(llm, [(FRANCE, parameters("yesno", max_tokens=1))])
    return scheduler._aici.driver


def step_when_prepared(llm: Any, step: Callable[[], Any]) -> Any:
    """Calls a step of the engine when the controllers of all its requests are prepared."""
    scheduler = scheduler_of(llm)
    if (driver := scheduler._aici.driver) is not None:
        waiting = [scheduler.requests[name].structured_output_request for name in driver.requests]
        wait_until(lambda: all(one.is_grammar_ready for one in waiting))
    return step()
