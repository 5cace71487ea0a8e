"""The entry point that vLLM calls in each of its processes: adds controllers to its scheduler and workers.

This module imports nothing heavy and raises nothing: an installed plugin must not keep an engine from
starting.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from multiprocessing import current_process

from pyaici.engines.vllm.frontend import arguments

log = logging.getLogger("vllm.aici")


def register() -> None:
    """Puts `SchedulerMixin` before the scheduler class that an engine chooses, if AICI supports this vLLM."""
    try:
        from pyaici.engines.vllm.compatibility import installed_problem

        problem = installed_problem()
        if problem is None:
            _register()
    except Exception as error:
        problem = f"controllers cannot be used: AICI does not support this version of vLLM ({error!r})"
    arguments.problem = problem
    if problem is not None and _accepts_requests():
        log.warning("%s; requests without a controller run as usual", problem)


def _register() -> None:
    from vllm.config.scheduler import SchedulerConfig

    if hasattr(SchedulerConfig, "_aici_choose"):
        return
    choose = SchedulerConfig.get_scheduler_cls

    def get_scheduler_cls(config: SchedulerConfig) -> type:
        chosen: type = choose(config)
        try:
            from pyaici.engines.vllm.scheduling.scheduler import SchedulerMixin
        except Exception as error:
            log.warning("controllers cannot be used: %r", error)
            return chosen
        return (
            chosen
            if issubclass(chosen, SchedulerMixin)
            else type(f"Aici{chosen.__name__}", (SchedulerMixin, chosen), {})
        )

    SchedulerConfig._aici_choose = choose
    SchedulerConfig.get_scheduler_cls = get_scheduler_cls
    _attach_to_workers()
    if _accepts_requests():
        from pyaici.engines.vllm.frontend.events import change_clients

        change_clients()  # the engine's own processes have no clients


def _attach_to_workers() -> None:
    """Lets workers apply what masks cannot express.

    If this fails, the scheduler refuses controllers that need it.
    """
    try:
        from pyaici.engines.vllm.workers.runners import install

        install()
    except Exception as error:
        log.warning("controllers cannot use biases and temperatures: %r", error)


def _accepts_requests() -> bool:
    """Returns whether this may be a process that accepts requests, not one of an engine's own.

    vLLM names its processes, and its workers if they are actors of Ray. Any other actor may be a server.
    """
    name = current_process().name
    with contextlib.suppress(Exception):
        if (ray := sys.modules.get("ray")) is not None:
            name = ray.get_runtime_context().get_actor_name() or name
    return not name.startswith(("EngineCore", "Worker", "VllmWorker", "vllm_Worker"))
