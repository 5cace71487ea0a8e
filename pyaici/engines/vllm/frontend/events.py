"""Events and failures of a controlled request, and the changes to vLLM's classes that carry them to clients.

A client gets events if it asks for `aici_events`.

The events are in `RequestOutput.kv_transfer_params`, a dictionary that vLLM carries from its engine to its
clients for cache connectors. Requests with controllers have no such connector. The key `aici` holds the list
of events since the last output of the same sequence, oldest first. Each event is a list of a word and values:

==============================  ===========================================================================
``["sampled", tokens]``         token ids that were sampled
``["sampled", [token], count]`` the same with `aici_counts`: the controller allowed so many tokens
``["forced", tokens]``          token ids that the controller appended
``["back", count]``             number of tokens that were removed from the end
``["forked", indices]``         sequences of the request that begin as copies of this one. Their outputs begin
                                with the tokens that this sequence had generated, without events for them
``["copied", indices]``         the same for copies that the engine makes before the first step
``["suspended"]``               the sequence skips steps; its next event ends that
``["read_again", count]``       after a suspension: tokens that the cache had lost, and that are read again
``["log", text]``               output of the controller
``["variables", values]``       variables that controllers of the request wrote, shared by all its sequences:
                                base64 texts by name; names as in `VariablesChanged`
``["error", error]``            why it failed: code, message and details, as `AiciError.to_wire` writes them
==============================  ===========================================================================

In the processes that accept requests, `change_clients` changes vLLM's classes: an end with the reason of a
failure becomes an exception; merged outputs keep the events of both; and with data parallelism all choices of
a request that may fork go to one engine process.
"""

from __future__ import annotations

import base64
import copy
import functools
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from aicirt.contract.errors import AiciError, RuntimeFailure
from pyaici.client.arguments import by_name
from pyaici.engines.calls import PREFIX
from pyaici.engines.vllm.frontend.arguments import TEMPLATE, may_fork

#: the key of the events in `kv_transfer_params`
KEY = "aici"


class Events:
    """The events of a sequence that have not been sent."""

    __slots__ = ("_list",)

    def __init__(self) -> None:
        self._list: list[list[Any]] = []

    def add(self, word: str, *what: Any) -> None:
        """Adds an event, unless a value is an empty list or text or a count of 0."""
        if not what or all(what):
            self._list.append([word, *what])

    def tokens(self, word: str, tokens: Sequence[int]) -> None:
        """Adds tokens."""
        for token in tokens:
            self.token(word, token)

    def token(self, word: str, token: int) -> None:
        """Adds a token. Consecutive tokens with the same word share an event."""
        if self._list and self._list[-1][0] == word and len(self._list[-1]) == 2:
            self._list[-1][1].append(token)
        else:
            self._list.append([word, [token]])

    def take_events(self) -> list[list[Any]]:
        """Returns the events and forgets them."""
        events, self._list = self._list, []
        return events


def variables_to_wire(values: Mapping[bytes, bytes]) -> dict[str, str]:
    """Returns variables in the form of an event: HTTP clients get JSON, which has no bytes."""
    return {name: base64.b64encode(value).decode() for name, value in by_name(values).items()}


def variables_of(wire: Mapping[str, str]) -> dict[str, bytes]:
    """Returns the variables of an event."""
    return {name: base64.b64decode(value) for name, value in wire.items()}


def error_to_wire(error: BaseException) -> list[Any]:
    """Returns an error in the form of an event."""
    return (error if isinstance(error, AiciError) else AiciError(repr(error))).to_wire()


def events_of(output: Any) -> list[list[Any]]:
    """Returns the events of a `RequestOutput`."""
    parameters = output.kv_transfer_params
    events: list[list[Any]] = parameters.get(KEY, []) if parameters else []
    return events


#: beginnings of failure reasons: errors of the controller or its argument, and errors of the runtime
OF_CONTROLLER, OF_RUNTIME = "controller ", "controllers "


def failure_reason(controller: str, error: BaseException) -> str:
    """Returns the reason of a failed request, for `stop_reason`."""
    if isinstance(error, AiciError) and not isinstance(error, RuntimeFailure):
        return f"{OF_CONTROLLER}{controller}: {error}"
    return f"{OF_RUNTIME}cannot be run at present; try again later, or notify the administrator: {error}"


def change_clients() -> None:
    """Changes vLLM's classes `AsyncLLM` and `RequestOutput`."""
    from vllm.outputs import RequestOutput
    from vllm.v1.engine.async_llm import AsyncLLM

    from pyaici.engines.vllm.versions import ERRORS_ARE_CARRIED

    change_generate(AsyncLLM, check=not ERRORS_ARE_CARRIED)
    keep_all(RequestOutput)


def change_generate(engine: type, *, check: bool) -> None:
    """Changes `generate` of vLLM's AsyncLLM for requests with a controller; others are not affected.

    It gets the variables of the chat's template and the rank that the request needs. `check`: it raises the
    failures of controllers.
    """
    generate: Callable[..., AsyncGenerator[Any, None]] = engine.generate  # type: ignore[attr-defined]

    @functools.wraps(generate)
    def generate_controlled(
        self: Any, prompt: Any, sampling_params: Any, *args: Any, **keywords: Any
    ) -> AsyncGenerator[Any, None]:
        extra = getattr(sampling_params, "extra_args", None)
        if not extra or not any(str(key).startswith(PREFIX) for key in extra):
            return generate(self, prompt, sampling_params, *args, **keywords)
        told = _tell_template(sampling_params, keywords.get("reasoning_parser_kwargs"))
        start = functools.partial(generate, self, prompt, told, *args, **keywords)
        ranks = 1 if keywords.get("data_parallel_rank") is not None else _ranks_for(self, sampling_params)
        outputs = start() if ranks == 1 else _placed(_loads_of(self), ranks, sampling_params.n, start)
        return _checked(outputs) if check else outputs

    engine.generate = generate_controlled  # type: ignore[attr-defined]


async def _checked(outputs: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    async with aclosing(outputs):  # as if the caller closed the generator: aborts the request
        async for output in outputs:
            for choice in output.outputs:
                if choice.finish_reason == "error" and isinstance(choice.stop_reason, str):
                    _raise(choice.stop_reason)
            yield output


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


def _tell_template(sampling_params: Any, parser: dict[str, Any] | None) -> Any:
    """Returns parameters with the variables of a chat's template, if the controller begins after thinking.

    A reasoning parser may need them to find the end of the thinking. vLLM passes them to its own grammars
    only. `parser`: vLLM's `reasoning_parser_kwargs`.
    """
    extra, variables = sampling_params.extra_args, (parser or {}).get("chat_template_kwargs")
    if not variables or not extra.get("aici_after_thinking") or TEMPLATE in extra:
        return sampling_params
    told = copy.copy(sampling_params)
    told.extra_args = {**extra, TEMPLATE: variables}
    return told


def _ranks_for(engine: Any, sampling_params: Any) -> int:
    """Returns the number of ranks between which this process has to choose for a request; 1 if it need not.

    vLLM distributes the `n` choices of a request over its data-parallel ranks, each with a scheduler of its
    own. A fork needs the choices in the scheduler of its controller.
    """
    if getattr(sampling_params, "n", 1) == 1 or not may_fork(sampling_params.extra_args):
        return 1
    config = engine.vllm_config.parallel_config
    return int(config.data_parallel_size_local if config.local_engines_only else config.data_parallel_size)


def _loads_of(engine: Any) -> RankLoads:
    if not hasattr(engine, "_aici_loads"):
        engine._aici_loads = RankLoads()
    loads: RankLoads = engine._aici_loads
    return loads


async def _placed(
    loads: RankLoads, ranks: int, choices: int, start: Callable[..., AsyncGenerator[Any, None]]
) -> AsyncGenerator[Any, None]:
    rank = loads.choose_rank(ranks, choices)
    try:
        async with aclosing(start(data_parallel_rank=rank)) as outputs:
            async for output in outputs:
                yield output
    finally:
        loads.give_back(rank, choices)


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
