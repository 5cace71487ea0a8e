"""A logits processor with controllers, for both of vLLM's model runners.

vLLM imports this module as a plugin into processes that may never have a controlled request, and does not
start if the import fails. So imports that are slow or may fail wait until a request has a controller.
"""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, Any, ClassVar

from pyaici.engines.vllm.frontend.arguments import LOGITS, ControllerCall
from pyaici.engines.vllm.frontend.refusals import (
    engine_refusal,
    overlapped_refusal,
    plugin_refusal,
    request_refusal,
)

if TYPE_CHECKING:
    import torch

    from pyaici.engines.vllm.logits.batches import DeviceSlots, SharedLists


logger = logging.getLogger("vllm.aici")


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


class AiciLogitsProcessor(*_interfaces()):  # type: ignore[misc]
    """Applies the rows of controllers of requests with ``aici_path: "logits"``.

    vLLM loads the processor if AICI is installed. ``--logits-processors`` or ``LLM(logits_processors=[...])``
    may also name it, and must do so under async scheduling of model runner V1.
    """

    #: the processor that serves requests, by id of the engine's configuration; an engine may have two
    _serving: ClassVar[weakref.WeakValueDictionary[int, AiciLogitsProcessor]] = weakref.WeakValueDictionary()

    def __init__(self, vllm_config: Any, *runner: Any) -> None:
        """`runner`: (device, is_pin_memory) of model runner V1, or the request states of V2."""
        self._vllm_config = vllm_config
        self._states = runner[0] if len(runner) == 1 else None
        #: created for the first controlled request
        self._shared: SharedLists | None = None
        self._slots: DeviceSlots | None = None

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Raises ValueError for a request with invalid controller parameters; clients get HTTP 400."""
        extra_args = sampling_params.extra_args
        if not extra_args:
            return
        call = ControllerCall.from_extra_args(extra_args)
        if call is None:
            return
        if call.path == LOGITS:
            refusal = request_refusal(sampling_params)
        else:
            refusal = overlapped_refusal(sampling_params, fork=call.fork)
        if call.copies > sampling_params.n:
            refusal = (
                f"aici_copies is {call.copies}, but the request has only {sampling_params.n} choices (n)"
            )
        refusal = refusal or plugin_refusal()
        if refusal is not None:
            raise ValueError(refusal)

    def is_argmax_invariant(self) -> bool:
        """Returns False: a controller may forbid the most likely token."""
        return False

    # -- model runner V1 ------------------------------------------------------------------------

    def update_state(self, batch_update: Any) -> None:
        """Applies the changes of the batch and posts to the controllers. Called before each forward pass."""
        if batch_update is not None:
            calls = {}
            for index, params, _, _ in batch_update.added:
                call = _call(params)
                if call is not None:
                    calls[index] = call
            if calls and self._shared is None and self._serves():
                self._shared = self._share()
            if self._shared is not None:
                self._shared.update(batch_update, calls)
        if self._shared:
            self._shared.prepare()

    # -- model runner V2 ------------------------------------------------------------------------

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """Assigns a slot to a request. Returns whether `apply` must be called for the request."""
        call = _call(sampling_params)
        if call is not None and self._slots is None and self._serves():
            self._slots = self._enter()
        if self._slots is None:
            return False
        self._slots.enter(req_idx, sampling_params, call)
        return call is not None

    # -- both -----------------------------------------------------------------------------------

    def apply(self, logits: torch.Tensor, ctx: Any = None) -> torch.Tensor:
        """Applies the controllers' rows to the logits in place. Called after each forward pass."""
        if self._shared:
            self._shared.apply(logits)
        elif self._slots:
            self._slots.apply(logits, ctx)
        return logits

    def _serves(self) -> bool:
        """Returns whether this processor serves the engine's requests.

        An engine has two processors if it was started with this class while AICI is installed.
        """
        return self._serving.setdefault(id(self._vllm_config), self) is self

    def _share(self) -> SharedLists:
        from pyaici.engines.vllm.logits.batches import SharedLists

        return SharedLists(self._constraints(v2=False))

    def _enter(self) -> DeviceSlots:
        from pyaici.engines.vllm.logits.batches import DeviceSlots

        return DeviceSlots(self._constraints(v2=True), self._states)

    def _constraints(self, *, v2: bool) -> Any:
        from pyaici.engines.vllm.logits.constraints import Constraints

        constraints = Constraints(self._vllm_config, engine_refusal(self._vllm_config, v2=v2))
        # closes at the end of the process too. If the process is killed, the runtime notices by itself
        weakref.finalize(self, constraints.close)
        return constraints


def _call(params: Any) -> ControllerCall | None:
    """Returns the controller call of a request on the logits-processor path, or None for other requests."""
    extra_args = params.extra_args
    if not extra_args:
        return None
    try:
        call = ControllerCall.from_extra_args(extra_args)
    except ValueError as error:
        # usually `validate_params` has refused the request. If a caller bypassed it, the empty name ends the
        # request, because no module has that name
        logger.error("a request has invalid aici_ parameters and will fail: %s", str(error))
        return ControllerCall("", path=LOGITS)
    return call if call is not None and call.path == LOGITS else None
