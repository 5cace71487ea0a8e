"""Runs a program with vLLM whose processes are spawned, as vLLM does on a CPU, and sleep while they wait.

    python -m lab.vllm.shims.spawned MODULE, ITS ARGUMENTS

Each process that it spawns imports this module again.
"""

from __future__ import annotations

import runpy
import sys

from lab.vllm.shims.sleeping import sleep_while_waiting

sleep_while_waiting()

if __name__ == "__main__":
    del sys.argv[0]
    # `alter_sys` would have the spawned processes import the program instead of this module
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=False)
