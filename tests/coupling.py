"""docs/vllm_coupling.md, made from `pyaici.engines.vllm.versions`: ``python -m tests.coupling --write``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

from pyaici.engines.vllm.plugin import Wanted, read_table
from pyaici.engines.vllm.versions import VERSIONS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "vllm_coupling.md"
_HEAD = f"""\
# What AICI uses of vLLM

Controllers steer vLLM from outside, but some of what they do has no public interface. This page lists every
module and name that the plugin uses, why, and which interface would make it unnecessary. It is made from
`pyaici/engines/vllm/versions` by `python -m tests.coupling --write`.

The plugin compares the list with the installed vLLM at every start. If something differs, vLLM runs as
without AICI, and requests with a controller are refused with the reason ([vllm.md](vllm.md#versions)). The
accepted versions are `{VERSIONS}`; the differences between them are in the same module.

Without a request that has a controller, the plugin only passes calls on: five in a step and one for each
token, which a test counts. The outputs are the same.
"""


class Use(NamedTuple):
    """A use of some modules of vLLM."""

    title: str
    modules: str
    #: the reason why AICI needs them
    why: str
    #: the stable interface that would do
    instead: str


USES = [
    Use(
        "Plugins and requests",
        "vllm vllm.entrypoints.llm vllm.sampling_params vllm.outputs vllm.exceptions "
        "vllm.v1.engine.llm_engine vllm.v1.sample.logits_processor "
        "vllm.v1.worker.gpu.sample.logits_processor",
        "The public interface: requests, results, errors, and the check of a request's parameters, for "
        "which AICI is a logits processor. `RequestOutput.add` and `kv_transfer_params` carry events to "
        "clients, and the fields of `SamplingParams` that begin with an underscore name the ends of a text.",
        "a field of outputs that a plugin may fill, which is merged when outputs are",
    ),
    Use(
        "The model",
        "vllm.config.model vllm.config.parallel vllm.config.vllm vllm.tokenizers",
        "The width of the logits, the tokenizer and its ends, and the number of ranks and drafts.",
        "none is needed",
    ),
    Use(
        "The choice of the scheduler",
        "vllm.config.scheduler",
        "The plugin puts its mixin before the class that the engine chooses. `--scheduler-cls` is the "
        "public way, but each user would have to know it, and it replaces the asynchronous scheduler or the "
        "plain one.",
        "a list of mixins, or of hooks that the scheduler calls, in a plugin's entry point",
    ),
    Use(
        "The course of a step",
        "vllm.v1.core.sched.scheduler vllm.v1.core.sched.output vllm.v1.structured_output "
        "vllm.v1.structured_output.backend_types vllm.v1.structured_output.request",
        "A controller is a grammar to vLLM: its masks are computed while the model runs, and its request "
        "waits until it is ready. The mixin adds a request's controller, reads answers before the masks are "
        "filled, and decides what becomes of sampled tokens before vLLM appends them.",
        "structured-output backends from plugins, chosen by request, whose grammars see the accepted tokens "
        "before they are appended and may replace them",
    ),
    Use(
        "Changes of a text",
        "vllm.v1.request vllm.v1.core.sched.request_queue vllm.v1.core.kv_cache_manager "
        "vllm.v1.core.kv_cache_coordinator vllm.v1.core.single_type_kv_cache_manager",
        "Splices and backtracks change the tokens of a running request, forks begin with the tokens of "
        "another, and suspended requests keep their blocks. The counters, the hashes and the blocks have to "
        "follow.",
        "`Scheduler.rewind(request, tokens)`, which cuts a request back, appends tokens and returns what is "
        "still computed, and `Scheduler.hold(request)`, which keeps its blocks until they are needed",
    ),
    Use(
        "Outputs",
        "vllm.v1.engine vllm.v1.outputs vllm.v1.engine.async_llm",
        "Appended tokens reach clients in outputs of their own, with log-probabilities of 0; held answers "
        "arrive in one piece. All choices of a request that forks have to be on one rank. In vLLM 0.32 the "
        "reason of a failure is turned into an exception in `AsyncLLM.generate`.",
        "outputs that a scheduler may add between two steps, and a rank that a request may ask for by name",
    ),
    Use(
        "Workers",
        "vllm.v1.worker.worker_base vllm.v1.worker.gpu_model_runner vllm.v1.worker.gpu.model_runner "
        "vllm.v1.worker.gpu.structured_outputs vllm.v1.worker.gpu.async_utils",
        "Biases and temperatures of a controller change from token to token and arrive with the masks, and "
        "controllers ask for log-probabilities before the mask. Logits processors get their parameters "
        "once, when a request begins.",
        "a field of `GrammarOutput` that a logits processor gets in each step, and one of "
        "`ModelRunnerOutput` that it may fill",
    ),
    Use(
        "Sleep while all requests wait",
        "vllm.v1.engine.core",
        "An engine whose requests all wait for calls sleeps until a controller is woken. A message to its "
        "process ends the sleep, too.",
        "a method of the scheduler that vLLM calls when its input queue gets a message",
    ),
    Use(
        "A recording",
        "vllm.v1.engine.core_client",
        "`aici run --engine vllm --record` replaces the runtime of an engine in its own process.",
        "none is needed: this is for tests",
    ),
]


def page() -> str:
    """Returns the page."""
    table = read_table()
    paragraphs = (" ".join(part.splitlines()) for part in _HEAD.strip().split("\n\n"))
    parts = ["\n\n".join(paragraphs) + "\n"]
    for use in USES:
        lines = [f"## {use.title}", "", use.why, "", f"**What would do:** {use.instead}.", ""]
        lines += ["| module | names |", "|---|---|"]
        for module in use.modules.split():
            names = [_row(name, wanted) for (where, name), wanted in table.items() if where == module]
            lines.append(f"| `{module}` | {'; '.join(names)} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _row(name: str, wanted: Wanted) -> str:
    members = ", ".join(f"`{member}`" for member in wanted.members if member != "__init__")
    return f"`{name}`: {members}" if members else f"`{name}`"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.coupling", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the page instead of comparing it")
    if parser.parse_args().write:
        PAGE.write_text(page(), "utf-8")
        return 0
    return int(PAGE.read_text("utf-8") != page())


if __name__ == "__main__":
    sys.exit(main())
