"""Prepares the process from which engines are forked."""

from __future__ import annotations

from tests.pyaici.engines.vllm.shims import imported as imported
from tests.pyaici.engines.vllm.shims.forked import fork_processes
from tests.pyaici.engines.vllm.shims.sleeping import sleep_while_waiting

fork_processes()
sleep_while_waiting()
