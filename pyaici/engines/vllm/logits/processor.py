"""Controllers in vLLM after the forward pass: a logits processor for both of its model runners.

vLLM imports this module, as a plugin, into processes that may never see a controlled request, and does
not start if it cannot: what might fail, or takes time, is imported when a controller is wanted.
"""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, Any, ClassVar

from pyaici.engines.vllm.arguments import LOGITS, ControllerCall
from pyaici.engines.vllm.refusals import engine_refusal, plugin_refusal, request_refusal

if TYPE_CHECKING:
    import torch

    from pyaici.engines.vllm.logits.batches import DeviceSlots, SharedLists


logger = logging.getLogger("vllm.aici")


def _interfaces() -> tuple[type, ...]:
    """The base classes by which the model runners of this vLLM know a logits processor."""
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

    It is there when AICI is installed; ``--logits-processors`` and ``LLM(logits_processors=[...])`` may
    name it besides, and under async scheduling of model runner V1 they must.
    """

    #: which of the processors of an engine, if it has two, is the one that serves requests
    _serving: ClassVar[weakref.WeakValueDictionary[int, AiciLogitsProcessor]] = weakref.WeakValueDictionary()

    def __init__(self, vllm_config: Any, *runner: Any) -> None:
        """`runner`: (device, is_pin_memory) of model runner V1, or the request states of V2."""
        self._vllm_config = vllm_config
        self._states = runner[0] if len(runner) == 1 else None
        #: made when a controlled request comes
        self._shared: SharedLists | None = None
        self._slots: DeviceSlots | None = None

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Raises ValueError for a request that names a controller in a wrong way: HTTP 400."""
        extra_args = sampling_params.extra_args
        if not extra_args:
            return
        call = ControllerCall.from_extra_args(extra_args)
        if call is None:
            return
        refusal = request_refusal(sampling_params) if call.path == LOGITS else None
        refusal = refusal or plugin_refusal()
        if refusal is not None:
            raise ValueError(refusal)

    def is_argmax_invariant(self) -> bool:
        """No: what a controller forbids may be the most likely token."""
        return False

    # -- model runner V1 ------------------------------------------------------------------------

    def update_state(self, batch_update: Any) -> None:
        """Before each forward pass."""
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
        """A request has got a slot; says whether `apply` has to be called for it."""
        call = _call(sampling_params)
        if call is not None and self._slots is None and self._serves():
            self._slots = self._enter()
        if self._slots is None:
            return False
        self._slots.enter(req_idx, sampling_params, call)
        return call is not None

    # -- both -----------------------------------------------------------------------------------

    def apply(self, logits: torch.Tensor, ctx: Any = None) -> torch.Tensor:
        """After each forward pass: forbids what the controllers forbid, in place."""
        if self._shared:
            self._shared.apply(logits)
        elif self._slots:
            self._slots.apply(logits, ctx)
        return logits

    def _serves(self) -> bool:
        """An engine that is started with this class while it is installed has two of them."""
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
        # at the end of the process too, unless it is killed: then the runtime notices by itself
        weakref.finalize(self, constraints.close)
        return constraints


def _call(params: Any) -> ControllerCall | None:
    """The controller of a request that is to be constrained here."""
    extra_args = params.extra_args
    if not extra_args:
        return None
    try:
        call = ControllerCall.from_extra_args(extra_args)
    except ValueError as error:
        # `validate_params` has refused it, unless somebody went past it: it ends, for no module is called so
        logger.error("a request names its controller in a wrong way: %s", str(error))
        return ControllerCall("", path=LOGITS)
    return call if call is not None and call.path == LOGITS else None
