"""vLLM engines, which are kept while tests ask for the same configuration."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.vllm.reasoning import register_marker
from lab.vllm.shims import fork_server
from lab.vllm.shims.async_scheduling import async_scheduling_on_cpu
from lab.vllm.shims.fork_server import engines_are_forked
from lab.vllm.shims.second_engine import (
    hide_functions_of_llvmlite,
    inspect_models_here,
    kernels_replaced_once,
    load_vocabularies_once,
    tokenizers_copied_once,
)

if TYPE_CHECKING:
    from vllm import LLM

#: environment of every process with vLLM, set before vLLM is imported
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "AICI_TRUST_OWNERS": "1",
    # Numba finds drafts. The number of its threads would hold for all operations of the model, too: they
    # spin, and on a busy machine a step takes ten times as long
    "NUMBA_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    # drafts would start a C++ compiler, which takes longer than the tests
    "TORCH_COMPILE_DISABLE": "1",
    # in GiB, the default
    "VLLM_CPU_KVCACHE_SPACE": "1",
    # seconds that parts of vLLM wait for others. A busy machine must not end what the tests wait for
    "VLLM_ENGINE_READY_TIMEOUT_S": "3600",
    "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "3600",
    "VLLM_REGEX_COMPILATION_TIMEOUT_S": "3600",
    "VLLM_CHAT_TEMPLATE_RENDER_TIMEOUT": "3600",
    # a worker that is killed leaves names in /dev/shm
    "VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS": "60",
    # otherwise the workers of all engines would share the first processor
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
#: size of the cache, which vLLM fills with zeros at the start: 170 blocks with all layers of the model
CACHE_BYTES = 256 << 20
#: float32: "auto" casts such weights to bfloat16. 32 is the smallest block that attention takes on a CPU
OPTIONS: dict[str, Any] = {
    "dtype": "float32",
    "enforce_eager": True,
    "max_model_len": 512,
    "max_num_seqs": 8,
    "block_size": 32,
    "async_scheduling": False,
    "disable_log_stats": False,
    "kv_cache_memory_bytes": CACHE_BYTES,
}


class Engines:
    """Makes engines when called. An engine with another configuration is closed first.

    ::

        llm = engines(num_gpu_blocks_override=20)
    """

    def __init__(self, model: Path) -> None:
        self._model = model
        self._key: tuple[Any, ...] = ()
        self._llm: LLM | None = None

    def __call__(
        self,
        *,
        model: Path | None = None,
        multiprocess: bool = False,
        env: dict[str, str | None] | None = None,
        **options: Any,
    ) -> LLM:
        """Returns an engine with `OPTIONS` and these options, in this process or in separate processes.

        `model`: the folder of another model than usual. `async_scheduling=True` has an effect, although vLLM
        ignores it on a CPU. `env`: variables while the engine is made, which its processes inherit; None
        removes one.
        """
        options = OPTIONS | options
        env = env or {}
        socket = os.environ.get("AICI_SOCKET")  # an engine keeps its connection to one daemon
        key = (model, multiprocess, socket, repr(sorted(env.items())), repr(sorted(options.items())))
        if self._llm is not None and (key != self._key or self._llm.llm_engine.has_unfinished_requests()):
            self.close()
        if self._llm is None:
            from vllm import LLM
            from vllm.envs import disable_envs_cache

            # an engine in this process that was not made here, such as one of docs/vllm.md, has fixed the
            # environment
            disable_envs_cache()
            # VLLM_CPU_KVCACHE_SPACE would override `CACHE_BYTES`
            variables = {
                "VLLM_ENABLE_V1_MULTIPROCESSING": str(int(multiprocess)),
                "VLLM_CPU_KVCACHE_SPACE": None,
            }
            hide_functions_of_llvmlite()
            inspect_models_here()
            if options.get("reasoning_parser") == "marker":
                register_marker()
            load_vocabularies_once()
            gc.freeze()  # also what has been imported since
            with (
                _modules_frozen(),
                _environment(variables | env),
                async_scheduling_on_cpu(),
                kernels_replaced_once(),
                tokenizers_copied_once(),
                engines_are_forked(),
            ):
                self._llm = LLM(str(model or self._model), **options)
            self._key = key
        return self._llm

    def close(self) -> None:
        """Ends the engine, if there is one, and waits for its processes."""
        if self._llm is None:
            return
        from vllm.distributed.parallel_state import destroy_distributed_environment, destroy_model_parallel

        with _modules_frozen():
            self._llm.llm_engine.engine_core.shutdown()
            self._llm = None
            fork_server.stop()
            # not `cleanup_dist_env_and_memory`, which unfreezes the objects of all modules and looks at them
            destroy_model_parallel()
            destroy_distributed_environment()
            gc.collect()


@contextlib.contextmanager
def _modules_frozen() -> Iterator[None]:
    """Keeps frozen objects, those of all modules, out of the collections of garbage: vLLM starts with five.

    vLLM itself freezes the objects of an engine, and unfreezes all objects when the engine ends.
    """
    freeze, unfreeze = gc.freeze, gc.unfreeze
    gc.freeze = gc.unfreeze = lambda: None
    try:
        yield
    finally:
        gc.freeze, gc.unfreeze = freeze, unfreeze


@contextlib.contextmanager
def _environment(variables: dict[str, str | None]) -> Iterator[None]:
    """Sets or removes environment variables until the block ends."""
    before = {name: os.environ.get(name) for name in variables}
    _set(variables)
    try:
        yield
    finally:
        _set(before)


def _set(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
