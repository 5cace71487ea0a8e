"""Runs the Triton kernels of vLLM's V2 model runner on a CPU, with Triton's interpreter."""

from __future__ import annotations

import os
import sys
from typing import Any

from tests.fetch import pypi_unpacked

#: files that only a GPU needs, more than a third of the package
_LEFT_OUT = ("triton/backends/nvidia/bin/", "triton/backends/nvidia/lib/")


def install() -> None:
    """Enables the V2 runner in this process. Call it before vLLM is imported."""
    assert "vllm" not in sys.modules
    os.environ["TRITON_INTERPRET"] = "1"
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1"
    sys.path.insert(0, str(pypi_unpacked("triton", leave_out=_LEFT_OUT)))
    import triton.backends
    from triton.runtime.interpreter import InterpreterBuilder

    class Driver:
        @staticmethod
        def is_active() -> bool:
            return True

    triton.backends.backends["cpu"] = triton.backends.Backend(compiler=None, driver=Driver)
    for name, position in (("create_masked_load", 1), ("create_masked_store", 2)):
        setattr(InterpreterBuilder, name, _with_bool_mask(getattr(InterpreterBuilder, name), position))


def _with_bool_mask(method: Any, position: int) -> Any:
    """Converts integer masks to booleans, since the interpreter would use them as indices."""
    import numpy as np

    def masked(self: Any, *args: Any, **kwargs: Any) -> Any:
        mask = args[position]
        if getattr(mask.data, "dtype", None) != np.bool_:
            mask.data = np.asarray(mask.data).astype(np.bool_)
        return method(self, *args, **kwargs)

    return masked
