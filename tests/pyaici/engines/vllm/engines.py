"""vLLM engines with the default model, kept as long as tests ask for the same one."""

from __future__ import annotations

import contextlib
import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.pyaici.engines.vllm.shims.async_scheduling import async_scheduling_on_cpu
from tests.pyaici.engines.vllm.shims.second_engine import hide_functions_of_llvmlite

if TYPE_CHECKING:
    from vllm import LLM

#: of every process that has to do with vLLM; set before it is imported
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    # else the workers of all engines would share the first processor
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
#: float32: "auto" casts such weights to bfloat16. 32 is the smallest block that attention takes on a CPU
OPTIONS: dict[str, Any] = {
    "dtype": "float32",
    "enforce_eager": True,
    "max_model_len": 512,
    "max_num_seqs": 8,
    "block_size": 32,
    "async_scheduling": False,
    "disable_log_stats": False,
}


class Engines:
    """Call it for an engine; an engine in another configuration ends when the next one is made.

    ::

        llm = engines(num_gpu_blocks_override=20)
    """

    def __init__(self, model: Path) -> None:
        self._model = model
        self._key: tuple[Any, ...] = ()
        self._llm: LLM | None = None

    def __call__(
        self, *, multiprocess: bool = False, env: dict[str, str] | None = None, **options: Any
    ) -> LLM:
        """An engine with `OPTIONS` and these, in this process or in processes of its own.

        `async_scheduling=True` is obeyed, which vLLM itself does not on a CPU. `env`: variables while the
        engine is made, which its processes inherit.
        """
        options = OPTIONS | options
        key = (multiprocess, repr(sorted((env or {}).items())), repr(sorted(options.items())))
        if self._llm is not None and (key != self._key or self._llm.llm_engine.has_unfinished_requests()):
            self.close()
        if self._llm is None:
            from vllm import LLM

            variables = {"VLLM_ENABLE_V1_MULTIPROCESSING": str(int(multiprocess)), **(env or {})}
            hide_functions_of_llvmlite()
            with _environment(variables), async_scheduling_on_cpu():
                self._llm = LLM(str(self._model), **options)
            self._key = key
        return self._llm

    def close(self) -> None:
        """Ends the engine, if there is one, and waits for its processes."""
        if self._llm is None:
            return
        from vllm.distributed import cleanup_dist_env_and_memory

        self._llm.llm_engine.engine_core.shutdown()
        self._llm = None
        cleanup_dist_env_and_memory()
        gc.collect()


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Any:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
