"""Fixtures: a real aicirt with a real guest (tests/guests/guest.c) and a small vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aicirt.contract.abi import Verb
from aicirt.contract.messages import StepInput
from pyaici.build import build_controller
from pyaici.client.results import MidResult, StepResult
from pyaici.client.runtime import Runtime
from pyaici.tokens import TokenizerBlob, Vocabulary

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


@pytest.fixture(scope="session")
def guest_wasm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_controller(GUESTS / "guest.c", tmp_path_factory.mktemp("guests") / "guest.wasm").path


@pytest.fixture(scope="session")
def shared_runtime(guest_wasm: Path) -> Iterator[Runtime]:
    with Runtime(limits={"max_suspended_steps": 5, "max_idle_steps": 8}) as runtime:
        runtime.register(VOCABULARY)
        runtime.tag(runtime.upload(guest_wasm).id, "guest")
        yield runtime


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

    def close(self) -> None:
        self.runtime.free(self.seqs)
        self.seqs.clear()


@pytest.fixture
def player(shared_runtime: Runtime) -> Iterator[Player]:
    player = Player(shared_runtime)
    yield player
    player.close()


@pytest.fixture
def new_player() -> Iterator[Callable[[Runtime], Player]]:
    yield Player
