"""llama.cpp's own HTTP server, which xllamacpp contains, in a separate process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def llama_cpp_server(model: Path, slots: int, slot_tokens: int, threads: int = 1) -> Iterator[str]:
    """Runs the server until the block ends, and yields its address.

    It keeps no prompts. `slots`: requests at the same time, of up to `slot_tokens` tokens each. `threads`: of
    the model; 0 for as many as the server itself takes. Raises RuntimeError if it does not start.
    """
    numbers = map(str, (slots, slot_tokens, threads))
    with subprocess.Popen(
        [sys.executable, "-m", "lab.servers.llama_cpp", model, *numbers],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            if not address:
                raise RuntimeError("llama.cpp's server did not start")
            yield address
        finally:
            process.terminate()


def _serve(model: str, slots: int, slot_tokens: int, threads: int) -> None:
    """Prints the server's address, then serves until the end of standard input."""
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.port = 0
    parameters.n_parallel = slots
    parameters.n_ctx = slots * slot_tokens
    if threads:
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    parameters.cache_prompt = False
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _serve(sys.argv[1], *map(int, sys.argv[2:5]))
