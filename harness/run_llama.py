"""Generates text with a GGUF model under the control of a script or a WebAssembly module.

    python harness/run_llama.py
    python harness/run_llama.py --model my_model.gguf --controller yesno --prompt "Is the sky blue?"

run_hf.py has more examples. `pyaici.engines.llama.program` implements the command.
"""

from __future__ import annotations

from aicirt.system.terminal import exit_process
from pyaici.engines.llama.program import main

if __name__ == "__main__":
    exit_process(main())
