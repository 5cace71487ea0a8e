"""Generates text with a Transformers model under the control of a script or a WebAssembly module.

    python harness/run_hf.py
    python harness/run_hf.py --controller yesno --prompt "Is the sky blue?"
    python harness/run_hf.py --controller my_script.py --arg '{"words": 3}' --prompt "..."
    python harness/run_hf.py --controller my_ctrl.wasm --arg "..." --prompt "..." --n 3 --temperature 0.8

`pyaici.engines.hf.program` implements the command.
"""

from __future__ import annotations

from aicirt.system.terminal import exit_process
from pyaici.engines.hf.program import main

if __name__ == "__main__":
    exit_process(main())
