"""A second replica of an engine: memory and first mask of its controllers, in an own and in a shared daemon.

Measures the part of the vLLM plugin that runs controllers, without vLLM.
"""

from __future__ import annotations

import json
import re
import statistics
import time
from contextlib import ExitStack
from pathlib import Path

from aicirt.contract.messages import StepInput
from lab.inputs.tool_schema import tool_schema
from lab.report import Report
from lab.system.processes import Family, family
from pyaici.client.control import Daemon
from pyaici.engines.connection import Connection
from pyaici.engines.vllm.frontend import ControllerCall
from pyaici.engines.vllm.scheduling.driver import CAPABILITIES
from pyaici.models import default_model_path
from pyaici.tokens import Vocabulary, load_vocabulary

#: the second replica receives the same request as the first one, as one of many users of an application
_CALL = ControllerCall("json_schema", json.dumps(tool_schema()))
_PROMPT = [1, 2, 3]


def run(report: Report) -> None:
    """Reports medians: the MiB by which a second replica makes the memory of all daemons grow (PSS), and the
    milliseconds until its first mask, from a request after which it connects or starts its daemon.
    """
    vocabulary = load_vocabulary(default_model_path())
    for kind in ("private", "shared"):
        found = [
            _second_replica(vocabulary, shared=kind == "shared") for _ in range(1 if report.quick else 9)
        ]
        mib, first, next_ms = (list(values) for values in zip(*found, strict=True))
        report.figure(f"replicas.{kind}.mib", statistics.median(mib), "MiB")
        report.figure(f"replicas.{kind}.first_mask_ms", statistics.median(first), "ms")
        report.figure(f"replicas.{kind}.next_mask_ms", statistics.median(next_ms), "ms")
        report.samples(f"replicas.{kind}.first_mask_ms", first, "ms")


def _second_replica(vocabulary: Vocabulary, *, shared: bool) -> tuple[float, float, float]:
    """Returns its MiB, the ms until its first mask, and the ms until the mask of its next request."""
    with ExitStack() as stack:
        socket = str(stack.enter_context(Daemon(detached=True)).socket_path) if shared else None
        daemons: Family = {}
        used: list[float] = []
        for _ in range(2):
            connection = Connection(lambda: vocabulary, socket=socket)
            stack.callback(connection.close)
            first, daemon = _mask_ms(connection)
            again, _ = _mask_ms(connection)
            daemons |= family(daemon)
            used.append(_pss_mib(daemons))
        return used[1] - used[0], first, again


def _mask_ms(connection: Connection) -> tuple[float, int]:
    """Starts a sequence, waits for its first mask and ends it. Returns the ms, and the pid of the daemon."""
    started = time.perf_counter()
    prepared = connection.prepare(_CALL, CAPABILITIES).result()
    runtime = prepared.session.runtime
    control = runtime.instantiate(prepared.controller, _CALL.arg, _PROMPT, capabilities=CAPABILITIES)
    step = runtime.begin_step([StepInput(control)])
    step.wait_pre()
    answer = step.wait().mid[control]
    took = (time.perf_counter() - started) * 1000
    assert answer.row is not None and answer.error is None, answer
    runtime.free([control])
    return took, int(runtime.health()["pid"])


def _pss_mib(members: Family) -> float:
    """Returns the memory of processes, with pages that several of them map counted once."""
    fields = "".join(Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in members)
    return sum(int(kib) for kib in re.findall(r"^Pss: +(\d+) kB", fields, re.MULTILINE)) / 1024
