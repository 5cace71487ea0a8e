"""Constraints in one engine of vLLM, in turn: none, ours, and those of one of vLLM's own backends.

Runs with the Python of .venv-vllm and prints JSON; the suite `vllm` starts it once for each backend:

    .venv-vllm/bin/python -m bench.vllm_race xgrammar --batches 1 8 --rounds 5
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from bench.measure import alternate
from pyaici.models import default_model_path

#: of this process; the scheduler runs in it, so that nothing but the constraint differs
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_KVCACHE_SPACE": "1",
}
#: no text ends before the tokens that a round makes, and none is forced: all make the same steps
REGEX = r"( [A-Za-z]+[,.]?){400,500}"
#: as a request would have it: much of it is forced
SCHEMA = {
    "type": "array",
    "minItems": 40,
    "items": {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    },
}
PROMPT = "Write about number {} and what it means to the people of the town:"


class Steps:
    """Looks at an engine's clock: how long parts of its steps take. It stays for the rest of the process."""

    def __init__(self, llm: Any) -> None:
        from vllm.v1.worker import gpu_model_runner

        scheduler = llm.llm_engine.engine_core.engine_core.scheduler
        #: of each step the milliseconds of each part
        self.steps: list[Counter[str]] = []
        for name in ("start", "hear", "follow_drafts", "take", "note", "end_step"):
            self._watch(scheduler._aici, name, "seat")
        self._watch(scheduler, "get_grammar_bitmask", "bitmask")
        self._watch(gpu_model_runner, "apply_grammar_bitmask", "apply")
        schedule = scheduler.schedule

        def begin(*args: Any, **keywords: Any) -> Any:
            self.steps.append(Counter())
            return schedule(*args, **keywords)

        scheduler.schedule = begin

    def _watch(self, owner: Any, name: str, part: str) -> None:
        call = getattr(owner, name)

        @functools.wraps(call)
        def timed(*args: Any, **keywords: Any) -> Any:
            before, begin = self.steps[-1]["seat"], time.perf_counter()
            try:
                return call(*args, **keywords)
            finally:
                spent = (time.perf_counter() - begin) * 1e3
                # what the seat takes within a method of vLLM's is not vLLM's
                self.steps[-1][part] += spent - (self.steps[-1]["seat"] - before)

        setattr(owner, name, timed)


class Race:
    """One engine, and what its requests are asked for."""

    def __init__(self, backend: str, most: int) -> None:
        from vllm import LLM

        self.backend = backend
        self.llm = LLM(
            str(default_model_path("float32")),
            dtype="float32",
            enforce_eager=True,
            max_model_len=512,
            max_num_seqs=most,
            structured_outputs_config={"backend": backend},
        )

    def settings(self, engine: str, kind: str, value: Any, tokens: int) -> Any:
        """SamplingParams of a contestant. `kind`: regex or json."""
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        options: dict[str, Any] = {"temperature": 0, "max_tokens": tokens}
        if engine == "free":
            options["ignore_eos"] = True
        elif engine == "aici":
            name = {"regex": "regex", "json": "json_schema"}[kind]
            options["extra_args"] = {"aici_controller": name, "aici_arg": value}
        else:
            options["structured_outputs"] = StructuredOutputsParams(**{kind: value})
        return SamplingParams(**options)

    def run(self, settings: Any, batch: int) -> tuple[float, int]:
        """Seconds, and tokens that came of it."""
        prompts = [PROMPT.format(i) for i in range(batch)]
        begin = time.perf_counter()
        outputs = self.llm.generate(prompts, settings, use_tqdm=False)
        seconds = time.perf_counter() - begin
        for output in outputs:
            if output.outputs[0].finish_reason == "error":
                raise RuntimeError(str(output.outputs[0].stop_reason))
        return seconds, sum(len(output.outputs[0].token_ids) for output in outputs)

    def throughput(self, kind: str, value: Any, batch: int, tokens: int, rounds: int) -> dict[str, Any]:
        """Of each contestant the milliseconds for a token of each sequence, one sample a round."""

        def contestant(engine: str) -> Callable[[], float]:
            settings = self.settings(engine, kind, value, tokens)

            def once() -> float:
                seconds, made = self.run(settings, batch)
                return seconds * 1e3 * batch / made

            return once

        names = ("free", "aici", self.backend)
        return alternate({name: contestant(name) for name in names}, rounds)

    def parts(self, batch: int, tokens: int, rounds: int) -> dict[str, list[float]]:
        """Milliseconds of steps of a batch under a pattern: of ours, of vLLM's own handling of the masks."""
        steps = Steps(self.llm)
        settings = self.settings("aici", "regex", REGEX, tokens)
        for _ in range(rounds):
            self.run(settings, batch)
        whole = [step for step in steps.steps if step["apply"]]
        return {
            "seat": [step["seat"] for step in whole],
            "masks": [step["bitmask"] + step["apply"] for step in whole],
        }

    def first_token(self, rounds: int) -> dict[str, Any]:
        """Milliseconds to the first token under a schema that has not been seen."""
        count = 0

        def contestant(engine: str) -> Callable[[], float]:
            def once() -> float:
                nonlocal count
                count += 1
                properties = {f"field_{count}_{i}": {"type": "string"} for i in range(8)}
                value = {"type": "object", "properties": properties, "required": list(properties)}
                return self.run(self.settings(engine, "json", value, 1), 1)[0] * 1e3

            return once

        return alternate({name: contestant(name) for name in ("free", "aici", self.backend)}, rounds)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("backend", choices=["xgrammar", "guidance"])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 16])
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    race = Race(arguments.backend, max(arguments.batches))
    found: dict[str, Any] = {"first_token": race.first_token(arguments.rounds)}
    for batch in arguments.batches:
        for kind, value in (("regex", REGEX), ("json", SCHEMA)):
            found[f"b{batch}.{kind}"] = race.throughput(
                kind, value, batch, arguments.tokens, arguments.rounds
            )
    batch = max(b for b in arguments.batches if b <= 8)
    found[f"b{batch}.parts"] = race.parts(batch, arguments.tokens, arguments.rounds)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
