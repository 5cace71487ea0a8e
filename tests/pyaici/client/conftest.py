"""Fixtures: simulated and real daemons with a real guest (tests/guests/guest.c) and a small vocabulary."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aicirt.contract.abi import Verb
from aicirt.contract.errors import AiciError, error_from_wire
from aicirt.contract.messages import REPLY_ERROR, StepInput
from aicirt.settings import WorkerSettings
from lab.system import waiting
from pyaici.client.arguments import ALL
from pyaici.client.results import MidResult, StepResult
from pyaici.client.runtime import Runtime
from pyaici.tokens import TokenizerBlob, Vocabulary
from pyaici.toolchain import build_controller
from tests.simulation import World

GUESTS = Path(__file__).resolve().parents[2] / "guests"

#: one token per byte, then some longer ones; 300 ids, of which the last ones are padding
VOCABULARY = Vocabulary(
    tokens=[b"" if i == 0 else bytes([i]) for i in range(256)] + [b"he", b"hello", b"ll"],
    special_names={0: "<end>"},
    eos=(0,),
    vocab_size=300,
    name="bytes and three words",
    tokenizer=TokenizerBlob("longest"),
)


#: time for warming as usual, which $AICI_LIMITS sets to 0 in tests
BUDGET = {"warm_budget_ms": WorkerSettings().warm_budget_ms}


@pytest.fixture(scope="session")
def guest_wasm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_controller(GUESTS / "guest.c", tmp_path_factory.mktemp("guests") / "guest.wasm").path


#: runs a test with a real daemon
real = pytest.mark.parametrize("world", ["real"], indirect=True)
#: runs a test with both kinds, to show that they are alike: each file has such a test
also_real = pytest.mark.parametrize("world", ["simulated", "real"], indirect=True)
#: the same for tests that start a daemon of their own: `also_real` and test_orders.py prove it for less
thoroughly_real = pytest.mark.parametrize(
    "world", ["simulated", pytest.param("real", marks=pytest.mark.thorough)], indirect=True
)


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World | None]:
    """Makes every daemon of the test a simulated one, and `time` in these files the clock of the simulation.

    So `wait_until` waits in the simulation's time.

    None: with `also_real`, daemons are real in the second run.
    """
    if getattr(request, "param", "simulated") == "real":
        yield None
        return
    folder = __name__.rpartition(".")[0]
    modules = [module for name, module in sys.modules.items() if name.startswith(folder)]
    with World(None, *modules, waiting) as world:
        yield world


@contextmanager
def guest_runtime(guest_wasm: Path, workers: int = 1, **limits: float) -> Iterator[Runtime]:
    """Yields a runtime in which the guest has the tag "guest"."""
    # a worker that has to wait for a processor is not late
    limits = {"max_suspended_steps": 5, "max_idle_steps": 8, "step_deadline_ms": 60_000, **limits}
    with Runtime(workers=workers, limits=limits) as runtime:  # type: ignore[arg-type]
        runtime.register(VOCABULARY)
        runtime.tag(runtime.upload(guest_wasm).id, "guest")
        yield runtime


@pytest.fixture(scope="session")
def shared_runtime(guest_wasm: Path) -> Iterator[Runtime]:
    """A real daemon, which tests share that have no world."""
    with guest_runtime(guest_wasm) as runtime:
        yield runtime


def post_prepare(runtime: Runtime, module: str, arg: str, owner: str | None = None) -> int:
    """Calls `Runtime.prepare` without waiting; returns the number of the call, for `poll`."""
    args = runtime._template(arg, ALL, owner)
    return runtime._control.post("prepare", **args, module=module)


def poll(runtime: Runtime, number: int) -> AiciError | None:
    """Waits for the answer to a call; returns its error."""
    answer = runtime._control.poll(number, waiting.PATIENCE)
    assert answer is not None, "there is no answer"
    return None if answer[REPLY_ERROR] is None else error_from_wire(answer[REPLY_ERROR])


class Player:
    """A minimal engine: steps sequences, and keeps their output in `logs`."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.logs: dict[int, str] = {}
        self.seqs: list[int] = []

    def start(self, arg: str, prompt: tuple[int, ...] = (1, 2, 3), *, wait: bool = True) -> int:
        seq = self.runtime.instantiate("guest", arg, prompt, seed=7, wait=wait)
        self.seqs.append(seq)
        return seq

    def step(self, *inputs: StepInput | int) -> StepResult:
        """Runs a whole step. `mid` of the result also has errors, stops and suspensions from pre_process."""
        items = [i if isinstance(i, StepInput) else StepInput(i) for i in inputs]
        step = self.runtime.begin_step(items)
        pre = step.wait_pre()
        result = step.wait()
        for seq, verdict in pre.items():
            self.seqs += verdict.children
            if verdict.verb in (Verb.ERROR, Verb.STOP, Verb.SUSPEND):
                result.mid[seq] = MidResult(verdict.verb, error=verdict.error)
        for seq, text in result.logs.items():
            self.logs[seq] = self.logs.get(seq, "") + text
        return result

    def mid(self, seq: int, *tokens: int, **fields: object) -> MidResult:
        """Runs a step of one sequence and returns its result."""
        return self.step(StepInput(seq, tokens=list(tokens), **fields)).mid[seq]  # type: ignore[arg-type]

    def answers(self, *inputs: StepInput | int) -> dict[int, MidResult]:
        """Runs a step, and further ones of sequences that are late, until each has answered without waiting.

        For steps of several sequences where time is real: on a busy machine any of them may be late, since
        the others do not wait for it.
        """
        answers = self.step(*inputs).mid
        waiting = (Verb.LATE, Verb.SUSPEND)  # suspended: so is pre_process
        while late := [seq for seq, answer in answers.items() if answer.verb in waiting]:
            answers |= self.step(*late).mid
        return answers

    def close(self) -> None:
        self.runtime.free(self.seqs)
        self.seqs.clear()


@pytest.fixture
def player(world: World | None, guest_wasm: Path, request: pytest.FixtureRequest) -> Iterator[Player]:
    if world is None:
        player = Player(request.getfixturevalue("shared_runtime"))
        yield player
        player.close()
        return
    with guest_runtime(guest_wasm) as runtime:
        yield Player(runtime)


@pytest.fixture
def new_player() -> Iterator[Callable[[Runtime], Player]]:
    yield Player
