"""A process that may die: it checks, compiles and runs one damaged module after the other.

``python -m lab.campaigns.sacrifice SUITE SEED STAGE`` reads lines "FIRST LAST" with numbers of cases and
prints a line of JSON for each case. The file STAGE always has the number and the stage of the current case.
"""

from __future__ import annotations

import json
import mmap
import random
import resource
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import wasmtime

from aicirt.contract.abi import Verb
from aicirt.contract.errors import AiciError, ControllerError, ModuleError, SpaceError, error_from_wire
from aicirt.contract.messages import StepInput
from aicirt.modules.compile import CompileLimits
from aicirt.settings import WorkerConfig
from aicirt.wasm import Program
from aicirt.wasm.module.check import check
from aicirt.wasm.program import compile_module, serialize
from lab.campaigns.mutation import mutate
from lab.campaigns.seeds import seed_modules
from lab.measurement.local_worker import LocalWorker, load_for_guests
from pyaici.testing import small_vocabulary

#: number of the case, and its stage
STAGE = struct.Struct("<QI")
CHECKING, COMPILING, RUNNING, DONE = range(4)
#: low limits, so that loops do not take the time of other cases
_LIMITS = {"init_ms": 10, "mid_ms": 2, "max_late_steps": 1, "max_templates": 1, "mid_tokenize_bytes": 400}
_STEPS = 3
#: valid for every undamaged controller: as a list, a pattern, or words
ARGUMENT = '["red", "green"]'


def case(suite: str, seed: int, number: int, seeds: Sequence[bytes]) -> tuple[bytes, list[str]]:
    """Returns the module of a case, and the names of its changes."""
    return mutate(random.Random(f"{suite}/{seed}/{number}"), seeds)


class Sacrifice:
    """Processes modules as the compile child and a worker do."""

    def __init__(self, stage: mmap.mmap) -> None:
        config = WorkerConfig.with_overrides(_LIMITS)
        self._stage = stage
        self._limits = config.limits
        self._worker = LocalWorker(load_for_guests(small_vocabulary()), config=config)
        self._cost = CompileLimits()
        self.number = 0

    def try_module(self, wasm: bytes) -> dict[str, Any]:
        """Returns how a module ended: "check", "compile" or the error's code, and "flaw" for a defect."""
        self._at(CHECKING)
        begun = time.perf_counter()
        try:
            report = check(wasm, self._limits)
            checked = time.perf_counter() - begun
            if not report.accepted:
                return {"end": "check", "check_s": checked}
        except Exception as error:
            return {"end": "check", "flaw": f"the check failed: {error!r}"}
        found: dict[str, Any] = {"check_s": checked}
        self._at(COMPILING)
        begun = time.perf_counter()
        try:
            module = compile_module(self._worker.engine, wasm)
            serialize(module)
        except ModuleError as error:
            found["end"] = "compile"
            if self._valid(wasm):
                found["flaw"] = f"it was valid before it was rewritten: {error}"
            return found
        finally:
            found["compile_s"] = time.perf_counter() - begun
            self._at(RUNNING)
        return found | self._run(module)

    def _at(self, stage: int) -> None:
        """Records the stage, and limits CPU time and memory of compiling as the compile child does."""
        STAGE.pack_into(self._stage, 0, self.number, stage)
        cpu = memory = resource.RLIM_INFINITY
        if stage == COMPILING:
            usage = resource.getrusage(resource.RUSAGE_SELF)
            cpu = int(usage.ru_utime + usage.ru_stime) + self._cost.cpu_s + 1
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            memory = used + self._cost.memory_bytes
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_AS, (memory, resource.RLIM_INFINITY))

    def _valid(self, wasm: bytes) -> bool:
        try:
            wasmtime.Module.validate(self._worker.engine.wasmtime, wasm)
        except wasmtime.WasmtimeError:
            return False
        return True

    def _run(self, module: wasmtime.Module) -> dict[str, Any]:
        """Runs a module in a worker for some steps."""
        worker = self._worker
        program = None
        try:
            program = Program(worker.linker, module)
            template = worker.template(program, ARGUMENT)
            seq = worker.start(template, (1, 2, 3))
            end = "goes on"
            tokens: list[int] = []
            for _ in range(_STEPS):
                inputs = [StepInput(number, tokens) for number in worker.client.sequences]
                for entry in worker.step(inputs):
                    if entry[1] == Verb.ERROR:
                        error = error_from_wire(entry[2])
                        end = error.code
                        if not isinstance(error, ControllerError | SpaceError):
                            return {"end": end, "flaw": f"it ended with {error!r}"}
                if not worker.client.sequences:
                    return {"end": "stops" if end == "goes on" else end}
                tokens = [1]
            if seq.id in worker.client.sequences and seq.mid is None:
                worker.clone(seq)
            return {"end": end}
        except ControllerError as error:
            return {"end": error.code}
        except ModuleError as error:
            return {"end": "load", "flaw": f"the compiled module cannot be loaded: {error}"}
        except AiciError as error:
            return {"end": error.code, "flaw": f"it ended with {error!r}"}
        except Exception as error:
            return {"end": "defect", "flaw": f"running it raised {error!r}"}
        finally:
            worker.free(list(worker.client.sequences.values()))
            if program is not None:
                program.close()

    def __enter__(self) -> Sacrifice:
        self._worker.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._worker.__exit__(*error)


def main(suite: str, seed: int, stage: Path) -> None:
    """Runs cases until standard input ends."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    seeds = seed_modules()
    with stage.open("r+b") as file, mmap.mmap(file.fileno(), STAGE.size) as memory, Sacrifice(memory) as life:
        for line in sys.stdin:
            first, last = map(int, line.split())
            for number in range(first, last):
                life.number = number
                wasm, done = case(suite, seed, number, seeds)
                print(json.dumps({"case": number, "done": done, **life.try_module(wasm)}), flush=True)
            STAGE.pack_into(memory, 0, 0, DONE)
            print("{}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
