"""Imports vLLM, in the process that forks programs with it."""

from __future__ import annotations

import setproctitle
from vllm.entrypoints.openai import api_server as api_server

setproctitle.getproctitle()  # it finds the title's place only before the environment changes
