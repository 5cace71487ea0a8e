"""Generates text with vLLM under the control of a script or a WebAssembly module.

run_hf.py has examples of the options. `pyaici.engines.vllm.program` implements the command.
"""

from __future__ import annotations

from aicirt.system.terminal import exit_process
from pyaici.engines.vllm.program import main

if __name__ == "__main__":
    exit_process(main())
