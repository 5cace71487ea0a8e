"""Checks requests before vLLM accepts them, as the logits processor that vLLM asks about parameters.

vLLM imports this module into all its processes, with or without the plugin that puts controllers into its
scheduler, and does not start if the import fails. So it imports nothing heavy. The processor changes no
logits.
"""

from __future__ import annotations

from typing import Any

from pyaici.engines.vllm.frontend import ControllerCall, plugin_refusal, request_refusal


def _interfaces() -> tuple[type, ...]:
    """Returns the base classes of logits processors for the model runners of the installed vLLM."""
    found: list[type] = []
    try:
        from vllm.v1.sample.logits_processor import LogitsProcessor as ForV1

        found.append(ForV1)
    except ImportError:
        pass
    try:
        from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as ForV2

        found.append(ForV2)
    except ImportError:
        pass
    return tuple(found)


class RequestCheck(*_interfaces()):  # type: ignore[misc]
    """A logits processor that only validates parameters, for both of vLLM's model runners."""

    def __init__(self, vllm_config: Any, *runner: Any) -> None:
        """`runner`: (device, is_pin_memory) of model runner V1, or the request states of V2."""

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Raises ValueError for a request with invalid controller parameters; clients get HTTP 400."""
        call = ControllerCall.from_extra_args(sampling_params.extra_args)
        if call is None:
            return
        refusal = request_refusal(sampling_params, fork=call.fork)
        if call.copies > sampling_params.n:
            refusal = (
                f"aici_copies is {call.copies}, but the request has only {sampling_params.n} choices (n)"
            )
        refusal = refusal or plugin_refusal()
        if refusal is not None:
            raise ValueError(refusal)

    def is_argmax_invariant(self) -> bool:
        """Returns True, so that vLLM leaves this processor out where it can."""
        return True

    def update_state(self, batch_update: Any) -> None:
        """Does nothing, for model runner V1."""

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """Returns False, for model runner V2: `apply` need not be called for the request."""
        return False

    def apply(self, logits: Any, ctx: Any = None) -> Any:
        """Returns the logits unchanged."""
        return logits
