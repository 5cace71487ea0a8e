"""Changes vLLM's classes for clients, in the processes that accept requests.

The scheduler ends a failed request with a reason, which becomes an exception here; merged outputs keep the
events of both; and with data parallelism all choices of a request that may fork go to one engine process.
"""

from __future__ import annotations

import copy
import functools
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from typing import Any

from pyaici.engines.calls import PREFIX
from pyaici.engines.vllm.frontend.arguments import TEMPLATE, may_fork
from pyaici.engines.vllm.frontend.events import KEY, OF_CONTROLLER, OF_RUNTIME, events_of


def change_clients() -> None:
    """Changes vLLM's classes `AsyncLLM` and `RequestOutput`."""
    from vllm.outputs import RequestOutput
    from vllm.v1.engine.async_llm import AsyncLLM

    from pyaici.engines.vllm.versions import ERRORS_ARE_CARRIED

    if not ERRORS_ARE_CARRIED:
        raise_failures(AsyncLLM)
    keep_choices_together(AsyncLLM)
    tell_template(AsyncLLM)
    keep_all(RequestOutput)


def raise_failures(engine: type) -> None:
    """Makes `generate` of vLLM's AsyncLLM raise the failures of controllers.

    Requests without a controller are not affected.
    """
    generate: Callable[..., AsyncGenerator[Any, None]] = engine.generate  # type: ignore[attr-defined]

    @functools.wraps(generate)
    def generate_or_raise(
        self: Any, prompt: Any, sampling_params: Any, *args: Any, **keywords: Any
    ) -> AsyncGenerator[Any, None]:
        outputs = generate(self, prompt, sampling_params, *args, **keywords)
        extra = getattr(sampling_params, "extra_args", None)
        if not extra or not any(str(key).startswith(PREFIX) for key in extra):
            return outputs
        return _checked(outputs)

    engine.generate = generate_or_raise  # type: ignore[attr-defined]


async def _checked(outputs: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    try:
        async for output in outputs:
            for choice in output.outputs:
                if choice.finish_reason == "error" and isinstance(choice.stop_reason, str):
                    _raise(choice.stop_reason)
            yield output
    finally:
        await outputs.aclose()  # as if the caller closed the generator: aborts the request


def _raise(why: str) -> None:
    from vllm.exceptions import RetryableRequestError, VLLMValidationError

    if why.startswith(OF_CONTROLLER):
        raise VLLMValidationError(why)
    if why.startswith(OF_RUNTIME):
        raise RetryableRequestError(why)


def keep_all(output_class: type) -> None:
    """Makes `add` of vLLM's RequestOutput, which merges two outputs, keep the events of both."""
    add = output_class.add  # type: ignore[attr-defined]

    def add_both(self: Any, next_output: Any, *args: Any, **keywords: Any) -> None:
        earlier = events_of(self)
        add(self, next_output, *args, **keywords)
        if earlier:
            self.kv_transfer_params = {**(self.kv_transfer_params or {}), KEY: [*earlier, *events_of(self)]}

    output_class.add = add_both  # type: ignore[attr-defined]


def keep_choices_together(engine: type) -> None:
    """Makes `generate` of vLLM's AsyncLLM pass a rank for requests that may fork, unless the caller does.

    vLLM distributes the `n` choices of a request over its data-parallel ranks, each with a scheduler of its
    own. A fork needs the choices in the scheduler of its controller. Other requests, and engines with a
    single rank, are not affected.
    """
    generate: Callable[..., AsyncGenerator[Any, None]] = engine.generate  # type: ignore[attr-defined]

    @functools.wraps(generate)
    def generate_on_one_rank(
        self: Any, prompt: Any, sampling_params: Any, *args: Any, **keywords: Any
    ) -> AsyncGenerator[Any, None]:
        def generate_on(**rank: int) -> AsyncGenerator[Any, None]:
            return generate(self, prompt, sampling_params, *args, **keywords | rank)

        choices = getattr(sampling_params, "n", 1)
        if choices == 1 or not may_fork(sampling_params.extra_args):
            return generate_on()
        ranks = _ranks(self.vllm_config.parallel_config)
        if ranks == 1 or keywords.get("data_parallel_rank") is not None:
            return generate_on()
        if not hasattr(self, "_aici_loads"):
            self._aici_loads = RankLoads()
        return _placed(self._aici_loads, ranks, choices, generate_on)

    engine.generate = generate_on_one_rank  # type: ignore[attr-defined]


def tell_template(engine: type) -> None:
    """Makes `generate` of vLLM's AsyncLLM pass the variables of a chat's template to its scheduler.

    A reasoning parser may need them to find the end of the thinking. vLLM passes them to its own grammars
    only.
    """
    generate: Callable[..., AsyncGenerator[Any, None]] = engine.generate  # type: ignore[attr-defined]

    @functools.wraps(generate)
    def generate_with_template(
        self: Any, prompt: Any, sampling_params: Any, *args: Any, **keywords: Any
    ) -> AsyncGenerator[Any, None]:
        extra = getattr(sampling_params, "extra_args", None) or {}
        variables = (keywords.get("reasoning_parser_kwargs") or {}).get("chat_template_kwargs")
        if variables and extra.get("aici_after_thinking") and TEMPLATE not in extra:
            sampling_params = copy.copy(sampling_params)
            sampling_params.extra_args = {**extra, TEMPLATE: variables}
        return generate(self, prompt, sampling_params, *args, **keywords)

    engine.generate = generate_with_template  # type: ignore[attr-defined]


def _ranks(config: Any) -> int:
    """Returns the number of ranks that this process sends requests to. `config`: vLLM's ParallelConfig."""
    return int(config.data_parallel_size_local if config.local_engines_only else config.data_parallel_size)


async def _placed(
    loads: RankLoads, ranks: int, choices: int, start: Callable[..., AsyncGenerator[Any, None]]
) -> AsyncGenerator[Any, None]:
    rank = loads.choose_rank(ranks, choices)
    outputs = start(data_parallel_rank=rank)
    try:
        async for output in outputs:
            yield output
    finally:
        loads.give_back(rank, choices)
        await outputs.aclose()  # as if the caller closed the generator: aborts the request


class RankLoads:
    """Chooses ranks for requests that may fork: the one with the fewest choices of such requests.

    Ranks with equally many take turns. Other requests need no attention: vLLM sends them to the rank with the
    fewest unfinished choices, and counts those that were placed here.
    """

    def __init__(self) -> None:
        self._choices: Counter[int] = Counter()
        self._next = 0

    def choose_rank(self, ranks: int, choices: int) -> int:
        """Returns a rank below `ranks`, to which the choices are then charged."""
        rank = min(range(ranks), key=lambda rank: (self._choices[rank], (rank - self._next) % ranks))
        self._choices[rank] += choices
        self._next = rank + 1
        return rank

    def give_back(self, rank: int, choices: int) -> None:
        """Takes the choices of an ended request off its rank."""
        self._choices[rank] -= choices
