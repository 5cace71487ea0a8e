"""A controlled request as the processes that accept requests see it: its parameters, and its events.

The parameters are keys of `extra_args`, or over HTTP of `vllm_xargs`. Requests that vLLM could run only
wrongly are refused before a controller starts: the constraint would be broken or never applied, or vLLM would
apply another parameter to wrong tokens. A client gets events if it asks for `aici_events`.

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
import importlib.metadata
import json
import math
import os
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from aicirt.contract.errors import AiciError, RuntimeFailure
from pyaici.engines.calls import KEYS, PREFIX, Call, read_call

#: environment variable: seconds for which suspended requests keep their blocks, unless they say otherwise
KEEP_BLOCKS = "AICI_KEEP_BLOCKS_S"
_KEEP_S, _MAX_KEEP_S = 5.0, 3600.0
#: key of the variables of a chat's template; vLLM's server has them from `chat_template_kwargs`
TEMPLATE = "aici_template"
#: AICI's name among vLLM's plugins
PLUGIN = "aici"
#: most sequences with which one request can begin
MAX_COPIES = 1024
_FLAGS = ("hold", "fork", "events", "counts", "after_thinking")
_OTHERS = ("copies", "keep", "calls", "name")
_KEYS = (*KEYS, *(f"{PREFIX}{name}" for name in (*_FLAGS, *_OTHERS)), TEMPLATE)

#: the reason why the plugin has left this vLLM unchanged; None if there is none
problem: str | None = None


@dataclass(frozen=True, slots=True)
class ControllerCall(Call):
    """The controller that a request names, its argument and its options.

    ::

        SamplingParams(extra_args={"aici_controller": "regex", "aici_arg": "[0-9]+"})
    """

    #: hold the output back until it is complete, so that the controller may backtrack
    hold: bool = False
    #: the request's `n` sequences belong to one controller: one runs, the others are for forks
    fork: bool = False
    #: outputs include events of each sequence (see above), so that the controller may backtrack
    events: bool = False
    #: events of sampled tokens include how many tokens the controller allowed
    counts: bool = False
    #: the controller begins when the model has finished its thinking
    after_thinking: bool = False
    #: with `fork`: so many sequences begin, as copies of the controller after it has processed the prompt
    copies: int = 1
    #: with `after_thinking`: variables of the chat's template, which reasoning parsers know, as JSON
    template: str = "{}"
    #: seconds for which its suspended sequences keep their blocks of the cache, if nobody else needs them
    keep: float = _KEEP_S

    @property
    def backtrack(self) -> bool:
        """Whether the controller may backtrack, because the client can handle removed tokens."""
        return self.hold or self.events

    @classmethod
    def from_extra_args(cls, extra_args: Mapping[str, Any] | None) -> ControllerCall | None:
        """Reads the keys of a request. Returns None if there is no controller.

        Raises ValueError for invalid keys or values.
        """
        ours = [key for key in extra_args or () if isinstance(key, str) and key.startswith(PREFIX)]
        if not ours:
            return None
        assert extra_args is not None
        call = read_call(extra_args, ours, _KEYS)
        flags = {name: _read_flag(f"aici_{name}", extra_args.get(f"aici_{name}", False)) for name in _FLAGS}
        if flags["hold"] and flags["events"]:
            raise ValueError("aici_hold and aici_events exclude each other: leave one of them out")
        if flags["counts"] and not flags["events"]:
            raise ValueError("aici_counts needs aici_events: set both, or leave aici_counts out")
        copies = _read_copies("aici_copies", extra_args.get("aici_copies", 1))
        if copies > 1 and not flags["fork"]:
            raise ValueError("aici_copies needs aici_fork: set both, or leave aici_copies out")
        if "aici_keep" in extra_args:
            keep = _read_seconds("aici_keep", extra_args["aici_keep"])
        else:
            variable = f"the environment variable {KEEP_BLOCKS} of vLLM's engine"
            keep = _read_seconds(variable, os.environ.get(KEEP_BLOCKS, _KEEP_S))
        template = _read_object(TEMPLATE, extra_args.get(TEMPLATE, "{}"))
        own: dict[str, Any] = {**flags, "copies": copies, "template": template, "keep": keep}
        return cls(call.controller, call.arg, call.owner, call.calls, call.name, **own)


def _read_flag(key: str, value: Any) -> bool:
    """Returns the value of a flag. vLLM's server accepts texts and numbers here, but no booleans.

    Raises ValueError.
    """
    if isinstance(value, bool) or value in (0, 1):
        return bool(value)
    if isinstance(value, str) and value.lower() in ("true", "false", "1", "0"):
        return value.lower() in ("true", "1")
    raise ValueError(f"{key} is {value!r}; it must be true or false")


def _read_seconds(name: str, value: Any) -> float:
    """Returns a number of seconds. Raises ValueError. HTTP requests may have texts, as variables do."""
    try:
        seconds = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        seconds = math.nan
    if not 0 <= seconds <= _MAX_KEEP_S:
        raise ValueError(f"{name} is {value!r}; it must be a number of seconds from 0 to {_MAX_KEEP_S:g}")
    return seconds


def _read_object(name: str, value: Any) -> str:
    """Returns an object as JSON. Raises ValueError. HTTP requests may have it as text."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
        if isinstance(found, dict):
            return json.dumps(found)
    except (TypeError, ValueError, RecursionError):
        pass
    raise ValueError(f"{name} is {value!r:.64}; it must be an object, or its JSON text")


def _read_copies(key: str, value: Any) -> int:
    """Returns a number of sequences. Raises ValueError."""
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_COPIES:
        raise ValueError(f"{key} is {value!r}; it must be a number from 1 to {MAX_COPIES}")
    return value


def may_fork(extra_args: Mapping[str, Any] | None) -> bool:
    """Returns whether a request has `aici_fork`; False for an invalid value, which the engine refuses."""
    try:
        return _read_flag("aici_fork", (extra_args or {}).get("aici_fork", False))
    except ValueError:
        return False


def rows_refusal(vllm_config: Any) -> str | None:
    """Returns why workers of this engine cannot apply controllers' biases and temperatures.

    Returns None if they can.
    """
    speculative = vllm_config.speculative_config
    option = None
    if getattr(vllm_config.parallel_config, "enable_batch_sharded_sampling", False):
        option = "enable_batch_sharded_sampling"
    elif speculative is not None and getattr(speculative, "enable_adaptive_verification", False):
        option = "enable_adaptive_verification"
    if option is None:
        return None
    return (
        "the controller uses biases or a temperature, which do not work together with vLLM's "
        f"option {option}: start the engine without it"
    )


def drafts_refusal(vllm_config: Any, params: Any) -> str | None:
    """Returns why a request with these sampling parameters would end this engine; None if it would not."""
    drafts = vllm_config.speculative_config is not None and not vllm_config.use_v2_model_runner
    if params.top_k > 0 and drafts and vllm_config.device_config.device_type == "cpu":
        # in a pass without drafts, vLLM's model runner V1 takes the largest of no numbers
        return "top_k and drafts exclude each other on a CPU, where vLLM would fail: leave top_k out"
    return None


def request_refusal(params: Any, *, fork: bool) -> str | None:
    """Returns why a request with these sampling parameters cannot have a controller here; None if it can.

    `fork`: whether its controller may fork.
    """
    for name in ("prompt_logprobs", "prompt_logprob_token_ids"):
        # vLLM returns them together with the first sampled token, which a controller may discard
        if getattr(params, name, None) is not None:
            return f"a controller and {name} exclude each other: send two requests"
    if not fork:
        return None
    # vLLM begins a fork as a new request, with all tokens so far as its prompt
    for name in ("presence_penalty", "frequency_penalty", "bad_words", "repetition_detection"):
        if getattr(params, name, None):
            return (
                f"aici_fork and {name} exclude each other, because a fork would not count the tokens from "
                "before it: leave one of them out"
            )
    return None


def plugin_installed() -> bool:
    """Returns whether vLLM finds the plugin in this environment."""
    return bool(importlib.metadata.entry_points(group="vllm.general_plugins", name=PLUGIN))


def plugin_refusal() -> str | None:
    """Returns why the scheduler mixin is not active; None if there is no known reason.

    Without the mixin, requests would run as if they named no controller. With speculative decoding vLLM also
    silently leaves out installed logits processors; then only the mixin can refuse a request.
    """
    chosen = os.environ.get("VLLM_PLUGINS")
    if chosen is None or PLUGIN in chosen.split(","):
        return problem
    return (
        f"the environment variable VLLM_PLUGINS ({chosen!r}) leaves the AICI plugin out, which requests with "
        f"a controller need: add {PLUGIN} to it"
    )


# -- events --------------------------------------------------------------------------------------------

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
    from pyaici.client.arguments import by_name  # imports NumPy, which `validation` must not

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

    from pyaici.engines.vllm.versions import errors_are_carried

    change_generate(AsyncLLM, check=not errors_are_carried())
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
