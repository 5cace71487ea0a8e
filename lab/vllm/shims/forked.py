"""Starts vLLM's processes on a CPU by fork, as they start on a GPU, and runs programs with vLLM so.

    python -m lab.vllm.shims.forked MODULE OR FILE, ITS ARGUMENTS

On a CPU vLLM spawns them, and each of them imports vLLM again: 10 s of a processor.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from typing import Any

from lab.vllm.shims.second_engine import inspect_models_here
from lab.vllm.shims.sleeping import sleep_while_waiting

_METHOD = "VLLM_WORKER_MULTIPROC_METHOD"


def fork_processes() -> None:
    """Has all engines of this process fork theirs.

    It must have no other threads: a lock that one of them holds stays locked in a fork.
    """
    from vllm.platforms.cpu import CpuPlatform

    original = CpuPlatform.__dict__["check_and_update_config"]

    def check_and_update_config(cls: Any, config: Any) -> None:
        original.__func__(cls, config)
        os.environ[_METHOD] = "fork"

    CpuPlatform.check_and_update_config = classmethod(check_and_update_config)
    os.environ[_METHOD] = "fork"  # otherwise the server itself asks for spawn


if __name__ == "__main__":
    from vllm.entrypoints.launchers import launcher

    del sys.argv[0]
    # a server that ends names the process with its port. That may be a fork, which also has the socket, and
    # vLLM fails if the fork has ended meanwhile
    launcher.find_process_using_port = lambda port: None
    fork_processes()
    inspect_models_here()
    sleep_while_waiting()
    if Path(sys.argv[0]).is_file():
        sys.path[0] = str(Path(sys.argv[0]).parent)
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
