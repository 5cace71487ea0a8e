"""What clients hear of a request that failed because of its controller.

vLLM's answer to such a request is "Internal server error". The seat puts the reason beside it
(`stop_reason`), and here it becomes an error of the front end, which the server turns into a status and a
message.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable
from typing import Any

from pyaici.engines.vllm.arguments import PREFIX

#: what reasons begin with: the controller's or its argument's fault, and that of what runs controllers
OF_CONTROLLER, OF_RUNTIME = "controller ", "controllers "


def describe(controller: str, error: BaseException) -> str:
    """Why a request failed, for `stop_reason`."""
    from aicirt.contract.errors import AiciError, RuntimeFailure

    if isinstance(error, AiciError) and not isinstance(error, RuntimeFailure):
        return f"{OF_CONTROLLER}{controller}: {error}"
    return f"{OF_RUNTIME}cannot be run at present; try again later, or tell who runs the server: {error}"


def raise_failures(engine: type) -> None:
    """Has `generate` of vLLM's AsyncLLM raise what controllers fail with; requests without one pass by."""
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
        await outputs.aclose()  # as when the caller closes it: the request is aborted


def _raise(why: str) -> None:
    from vllm.exceptions import RetryableRequestError, VLLMValidationError

    if why.startswith(OF_CONTROLLER):
        raise VLLMValidationError(why)
    if why.startswith(OF_RUNTIME):
        raise RetryableRequestError(why)
