"""Races constraints in one vLLM engine, in turn: none, a controller, and one of vLLM's own backends.

Runs in .venv-vllm and prints JSON. The suite `vllm` starts it once for each backend:

    .venv-vllm/bin/python -m lab.contestants.vllm_race xgrammar --batches 1 8 --rounds 5
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from lab.inputs.constraints import ENDLESS_WORDS
from lab.inputs.lark import lark_of_yacc
from lab.measurement.timing import alternate
from pyaici.bundled import find_grammar
from pyaici.models import default_model_path

#: environment of this process; the scheduler runs in it too, so that only the constraint differs
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_KVCACHE_SPACE": "1",
}


def _list_of(**properties: Any) -> dict[str, Any]:
    """Returns the schema of a list of objects that is too long to end within a round."""
    item = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "array", "minItems": 40, "items": item}


#: like the schema of a real request: some of its text is forced
SCHEMA = _list_of(name={"type": "string", "maxLength": 12}, age={"type": "integer"})
#: most of its text is forced
TEMPLATE = _list_of(
    kind={"const": "an inhabitant of the town"},
    name={"type": "string", "maxLength": 12},
    age={"enum": list(range(10, 100))},
    country_of_birth={"enum": ["France", "Spain", "Italy", "Greece"]},
)


def constraints(backend: str) -> dict[str, dict[str, Any]]:
    """Returns what the contestants write: for each kind, the options of our request and of the backend's."""
    found = {
        "regex": {"aici": ("regex", ENDLESS_WORDS), backend: {"regex": ENDLESS_WORDS}},
        "json_schema": {"aici": ("json_schema", _spaced(SCHEMA)), backend: {"json": SCHEMA}},
        "forced": {"aici": ("json_schema", _spaced(TEMPLATE)), backend: {"json": TEMPLATE}},
    }
    if backend == "guidance":  # the other one has another syntax for grammars
        grammar = find_grammar("c.y")
        assert grammar is not None
        text = grammar.read_text("utf-8")
        found["c"] = {"aici": ("lr1", text), backend: {"grammar": lark_of_yacc(text)}}
    return found


def _spaced(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns our argument for a schema without free white space; vLLM's is `disable_any_whitespace`."""
    return {"schema": schema, "whitespace": "spaced"}


PROMPT = "Write about number {} and what it means to the people of the town:"
#: a controller that writes four texts in forks, and ends with the best score. Its argument is their length
BEST_OF_4 = f"""
from aici import arg, force, gather, generate

async def attempt():
    return (await generate(regex=r{ENDLESS_WORDS!r}, temperature=1, max_tokens=arg)).logprob

async def main():
    await force(f" best: {{max(await gather(attempt, attempt, attempt, attempt)):.3f}}")
"""
#: batches of this size and larger have half the rounds, of half the tokens
_LARGE = 32
#: the batch whose steps are measured inside the engine, besides the largest
_OFFICIAL = 8
#: batches of this size and larger race only under the pattern
_REGEX_ONLY = 64


class Steps:
    """Measures how long parts of an engine's steps take. Patches the engine for the rest of the process."""

    def __init__(self, llm: Any) -> None:
        from vllm.v1.worker import gpu_model_runner

        scheduler = llm.llm_engine.engine_core.engine_core.scheduler
        #: for each step the milliseconds of each part
        self.steps: list[Counter[str]] = []
        names = "start_controllers collect_answers follow_drafts settle_tokens note end_step"
        for name in names.split():
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
                # subtracts the time of AICI ("seat") within a method of vLLM
                self.steps[-1][part] += spent - (self.steps[-1]["seat"] - before)

        setattr(owner, name, timed)


class Race:
    """A vLLM engine with one backend, and the measurements on it."""

    def __init__(self, backend: str, most: int, model: str) -> None:
        from vllm import LLM

        self.backend = backend
        self._numbers = itertools.count()
        self.llm = LLM(
            model,
            dtype="float32",
            enforce_eager=True,
            max_model_len=512,
            max_num_seqs=most,
            structured_outputs_config={"backend": backend, "disable_any_whitespace": True},
        )

    def settings(self, engine: str, constraint: dict[str, Any], tokens: int) -> Any:
        """Returns the SamplingParams of a contestant. `constraint`: see `constraints`."""
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        options: dict[str, Any] = {"temperature": 0, "max_tokens": tokens}
        if engine == "free":
            options["ignore_eos"] = True
        elif engine == "aici":
            name, value = constraint[engine]
            options["extra_args"] = {"aici_controller": name, "aici_arg": value}
        else:
            options["structured_outputs"] = StructuredOutputsParams(**constraint[engine])
        return SamplingParams(**options)

    def run(self, settings: Any, batch: int) -> tuple[float, int]:
        """Generates a batch; returns the seconds and the number of generated tokens."""
        prompts = [PROMPT.format(i) for i in range(batch)]
        begin = time.perf_counter()
        outputs = self.llm.generate(prompts, settings, use_tqdm=False)
        seconds = time.perf_counter() - begin
        for output in outputs:
            if output.outputs[0].finish_reason == "error":
                raise RuntimeError(str(output.outputs[0].stop_reason))
        return seconds, sum(len(output.outputs[0].token_ids) for output in outputs)

    def throughput(self, constraint: dict[str, Any], batch: int, tokens: int, rounds: int) -> dict[str, Any]:
        """Returns, for each contestant, the milliseconds per token of each sequence, one sample a round."""

        def contestant(engine: str) -> Callable[[], float]:
            settings = self.settings(engine, constraint, tokens)

            def once() -> float:
                seconds, made = self.run(settings, batch)
                return seconds * 1e3 * batch / made

            return once

        names = ("free", "aici", self.backend)
        return alternate({name: contestant(name) for name in names}, rounds)

    def parts(self, steps: Steps, batch: int, tokens: int, rounds: int) -> dict[str, list[float]]:
        """Returns the milliseconds that AICI and vLLM's handling of masks take in steps under a pattern."""
        settings = self.settings("aici", {"aici": ("regex", ENDLESS_WORDS)}, tokens)
        steps.steps.clear()
        for _ in range(rounds):
            self.run(settings, batch)
        whole = [step for step in steps.steps if step["apply"]]
        return {
            "seat": [step["seat"] for step in whole],
            "masks": [step["bitmask"] + step["apply"] for step in whole],
        }

    def best_of_4(self, tokens: int, rounds: int) -> dict[str, list[float]]:
        """Returns the milliseconds per token of four texts with the same prompt, which no cache has.

        They are the forks of one controller ("forks"), or `n=4` without a controller ("n4").
        """
        from vllm import SamplingParams

        script = {"language": "python", "source": BEST_OF_4, "arg": tokens}
        extra = {"aici_script": script, "aici_fork": True, "aici_hold": True}
        options: dict[str, Any] = {"n": 4, "temperature": 1}
        settings = {
            "forks": SamplingParams(**options, extra_args=extra, max_tokens=2 * tokens),
            "n4": SamplingParams(**options, ignore_eos=True, max_tokens=tokens),
        }

        def contestant(name: str) -> Callable[[], float]:
            def once() -> float:
                prompt = " ".join(PROMPT.format(next(self._numbers)) for _ in range(12))
                begin = time.perf_counter()
                (output,) = self.llm.generate([prompt], settings[name], use_tqdm=False)
                seconds = time.perf_counter() - begin
                first = output.outputs[0]
                if name == "forks" and not first.text.startswith(" best: "):
                    raise RuntimeError(f"{first.text!r}, {first.stop_reason}")
                return seconds * 1e3 / tokens

            return once

        return alternate({name: contestant(name) for name in settings}, rounds)

    def first_token(self, rounds: int) -> dict[str, Any]:
        """Returns, for each contestant, the milliseconds to the first token.

        Under a schema that is new ("new"), and under the same one again ("again").
        """
        samples: dict[str, dict[str, list[float]]] = {}

        def contestant(engine: str) -> Callable[[], float]:
            again = samples.setdefault(engine, {"new": [], "again": []})

            def once() -> float:
                number = next(self._numbers)
                properties = {f"field_{number}_{i}": {"type": "string"} for i in range(8)}
                schema = {"type": "object", "properties": properties, "required": list(properties)}
                constraint = {"aici": ("json_schema", schema), self.backend: {"json": schema}}
                settings = self.settings(engine, constraint, 1)
                for times in again.values():
                    times.append(self.run(settings, 1)[0] * 1e3)
                return 0.0

            return once

        alternate({name: contestant(name) for name in ("free", "aici", self.backend)}, rounds, warmup=0)
        return samples


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("backend", choices=["xgrammar", "guidance"])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument(
        "--kinds", nargs="+", help="measure only these constraints: regex, json_schema, forced, c"
    )
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--model", help="a folder; default: the default model in float32")
    arguments = parser.parse_args()
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    model = arguments.model or str(default_model_path("float32"))
    race = Race(arguments.backend, max(*arguments.batches, 4), model)
    race.first_token(1)  # warms up
    found: dict[str, Any] = {}
    if not arguments.kinds:
        found["first_token"] = race.first_token(arguments.rounds)
        found["best_of_4"] = race.best_of_4(arguments.tokens, arguments.rounds)
    sizes = {
        batch: (arguments.tokens // 2, (arguments.rounds + 1) // 2)
        if batch >= _LARGE
        else (arguments.tokens, arguments.rounds)
        for batch in arguments.batches
    }
    for batch, size in sizes.items():
        for kind, constraint in constraints(arguments.backend).items():
            if kind in (arguments.kinds or [kind]) and (kind == "regex" or batch < _REGEX_ONLY):
                found[f"b{batch}.{kind}"] = race.throughput(constraint, batch, *size)
    steps = Steps(race.llm)  # patches the engine
    for batch, size in sizes.items():
        if not arguments.kinds and batch in (_OFFICIAL, max(sizes)):
            found[f"b{batch}.parts"] = race.parts(steps, batch, *size)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
