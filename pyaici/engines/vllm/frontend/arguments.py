"""The controller parameters of a vLLM request: keys of `extra_args`, or over HTTP of `vllm_xargs`."""

from __future__ import annotations

import difflib
import functools
import json
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aicirt.contract.owners import ANONYMOUS
from pyaici.scripting.script import InterpreterMissingError, read_request

#: environment variable: with 1, clients may name the owner of their requests
TRUST_OWNERS = "AICI_TRUST_OWNERS"
#: prefix of all AICI keys
PREFIX = "aici_"
#: most sequences with which one request can begin
MAX_COPIES = 1024
_FLAGS = ("hold", "fork", "events", "counts", "after_thinking")
_KEYS = (
    "aici_controller",
    "aici_arg",
    "aici_script",
    *(f"aici_{name}" for name in _FLAGS),
    "aici_copies",
    "aici_owner",
)


@dataclass(frozen=True, slots=True)
class ControllerCall:
    """The controller that a request names, its argument and its options.

    ::

        SamplingParams(extra_args={"aici_controller": "regex", "aici_arg": "[0-9]+"})
    """

    #: a bundled controller's name, or the id or tag of a module that was uploaded
    controller: str
    #: the controller's argument
    arg: str = ""
    #: hold the output back until it is complete, so that the controller may backtrack
    hold: bool = False
    #: the request's `n` sequences belong to one controller: one runs, the others are for forks
    fork: bool = False
    #: with `fork`: so many sequences begin, as copies of the controller after it has processed the prompt
    copies: int = 1
    #: outputs include events of each sequence (see the module `events`), so that the controller may backtrack
    events: bool = False
    #: events of sampled tokens include how many tokens the controller allowed
    counts: bool = False
    #: the controller begins when the model has finished its thinking
    after_thinking: bool = False
    #: owner of the request, whose limits apply
    owner: str = ANONYMOUS

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
        for key in ours:
            if key not in _KEYS:
                meant = difflib.get_close_matches(key, _KEYS, n=1)
                hint = f"did you mean {meant[0]}?" if meant else f"the keys are {', '.join(_KEYS)}"
                raise ValueError(f"the request has the unknown key {key}: {hint}")
        controller, arg = _controlled(extra_args, ours)
        flags = {name: _flag(f"aici_{name}", extra_args.get(f"aici_{name}", False)) for name in _FLAGS}
        if flags["hold"] and flags["events"]:
            raise ValueError("aici_hold and aici_events exclude each other: leave one of them out")
        if flags["counts"] and not flags["events"]:
            raise ValueError("aici_counts needs aici_events: set both, or leave aici_counts out")
        copies = _count("aici_copies", extra_args.get("aici_copies", 1))
        if copies > 1 and not flags["fork"]:
            raise ValueError("aici_copies needs aici_fork: set both, or leave aici_copies out")
        owner = extra_args.get("aici_owner")
        if owner is not None and (not isinstance(owner, str) or not owner):
            raise ValueError(f"aici_owner is {owner!r}; it must be the name of an owner")
        if owner is not None and os.environ.get(TRUST_OWNERS) != "1":
            raise ValueError(
                "aici_owner is refused, since any client could name any owner: if only a server that knows "
                f"its users reaches vLLM, start vLLM with {TRUST_OWNERS}=1"
            )
        return cls(controller, arg, **flags, copies=copies, owner=owner or ANONYMOUS)


def _controlled(extra_args: Mapping[str, Any], ours: list[str]) -> tuple[str, str]:
    """Returns the controller and its argument; for a script, its interpreter and the argument that runs it.

    Raises ValueError.
    """
    if (script := extra_args.get("aici_script")) is not None:
        for other in ("aici_controller", "aici_arg"):
            if extra_args.get(other) is not None:
                raise ValueError(
                    f"aici_script and {other} exclude each other: the script is the controller, and "
                    "its argument is the member arg of aici_script"
                )
        try:
            return read_request(script)
        except (ValueError, InterpreterMissingError) as error:
            raise ValueError(f"aici_script: {error}") from None
    controller = extra_args.get("aici_controller")
    if not isinstance(controller, str) or not controller:
        raise ValueError(
            "aici_controller must be a bundled controller's name, or the id or tag of an uploaded one: "
            + (
                f"it is missing, but the request has {ours[0]}"
                if controller is None
                else f"it is {controller!r}"
            )
        )
    return controller, _text(extra_args.get("aici_arg", ""))


def _flag(key: str, value: Any) -> bool:
    """Returns the value of a flag. vLLM's server accepts texts and numbers here, but no booleans.

    Raises ValueError.
    """
    if isinstance(value, bool) or value in (0, 1):
        return bool(value)
    if isinstance(value, str) and value.lower() in ("true", "false", "1", "0"):
        return value.lower() in ("true", "1")
    raise ValueError(f"{key} is {value!r}; it must be true or false")


def _count(key: str, value: Any) -> int:
    """Returns a number of sequences. Raises ValueError."""
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_COPIES:
        raise ValueError(f"{key} is {value!r}; it must be a number from 1 to {MAX_COPIES}")
    return value


def may_fork(extra_args: Mapping[str, Any] | None) -> bool:
    """Returns whether a request has `aici_fork`; False for an invalid value, which the engine refuses."""
    try:
        return _flag("aici_fork", (extra_args or {}).get("aici_fork", False))
    except ValueError:
        return False


def _text(arg: Any) -> str:
    """Returns a text as it is, and other values as JSON. Raises ValueError for values without JSON."""
    if isinstance(arg, str):
        return arg
    try:
        return json.dumps(arg, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"aici_arg must be a text or a JSON value: {error}") from None


#: beginnings of failure reasons: errors of the controller or its argument, and errors of the runtime
OF_CONTROLLER, OF_RUNTIME = "controller ", "controllers "


def describe(controller: str, error: BaseException) -> str:
    """Returns the reason of a failed request, for `stop_reason`."""
    from aicirt.contract.errors import AiciError, RuntimeFailure

    if isinstance(error, AiciError) and not isinstance(error, RuntimeFailure):
        return f"{OF_CONTROLLER}{controller}: {error}"
    return f"{OF_RUNTIME}cannot be run at present; try again later, or notify the administrator: {error}"


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
