"""The platform by which vLLM finds the simulated worker."""

from __future__ import annotations

from typing import Any

import torch
from vllm.platforms.interface import Platform, PlatformEnum


class SimulatedPlatform(Platform):
    """A machine without kernels."""

    _enum = PlatformEnum.CPU
    device_name = device_type = "cpu"
    dispatch_key = "CPU"
    dist_backend = "gloo"

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        """Chooses the worker; nothing is compiled."""
        vllm_config.parallel_config.worker_cls = "lab.vllm.simulated.worker.SimulatedWorker"

    @classmethod
    def update_block_size_for_backend(cls, vllm_config: Any) -> None:
        """There is no backend of attention that wants another size."""

    @classmethod
    def get_attn_backend_cls(cls, *args: Any, **keywords: Any) -> str:
        """Raises NotImplementedError: no layer of a model is made."""
        raise NotImplementedError

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        """Returns a number of bytes by which vLLM chooses defaults."""
        return 8 << 30

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        return "simulated"

    @classmethod
    def is_pin_memory_available(cls) -> bool:
        return False

    @classmethod
    def set_device(cls, device: torch.device) -> None:
        """There is only one."""

    @classmethod
    def support_hybrid_kv_cache(cls) -> bool:
        return True

    @classmethod
    def inference_mode(cls) -> Any:
        return torch.no_grad()
