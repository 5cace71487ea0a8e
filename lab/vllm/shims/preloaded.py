"""Prepares the process from which engines are forked."""

from __future__ import annotations

from lab.vllm.shims.forked import fork_processes
from lab.vllm.shims.sleeping import sleep_while_waiting

fork_processes()
sleep_while_waiting()
