"""Limits on the memory of all guests of an owner, and of all guests of a worker.

The owner above a limit loses sequences; other owners do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from aicirt.contract.abi import Verb
from aicirt.contract.errors import AiciError, OwnerLimitError, SpaceError
from aicirt.contract.messages import StepInput
from lab.system.waiting import wait_until
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime
from pyaici.toolchain import build_controller
from tests.simulation import World

from .conftest import GUESTS, VOCABULARY, poll, post_prepare, real

MIB = 1 << 20
OWNER, WORKER = 64 * MIB, 100 * MIB
#: memory above a limit that may go unnoticed: the growth within one call, and memory that is not counted
SLACK = 80 * MIB


@pytest.fixture(scope="session")
def memory_wasm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_controller(GUESTS / "memory.c", tmp_path_factory.mktemp("guests") / "memory.wasm").path


class Client:
    """The requests of one owner, stepped together."""

    def __init__(self, runtime: Runtime, module: str) -> None:
        self.runtime = runtime
        self._module = module
        self.live: list[int] = []
        self.errors: list[AiciError] = []

    def start(self, arg: str, count: int = 1) -> None:
        for _ in range(count):
            try:
                self.live.append(self.runtime.instantiate(self._module, arg, (1, 2, 3)))
            except AiciError as error:
                self.errors.append(error)

    def step(self) -> None:
        step = self.runtime.begin_step([StepInput(seq, [1]) for seq in self.live])
        ended = set()
        for seq, verdict in step.wait_pre().items():
            self.live += verdict.children
            if verdict.verb == Verb.ERROR:
                assert verdict.error is not None
                self.errors.append(verdict.error)
                ended.add(seq)
        for seq, result in step.wait().mid.items():
            if result.verb == Verb.ERROR:
                assert result.error is not None
                self.errors.append(result.error)
                ended.add(seq)
        self.live = [seq for seq in self.live if seq not in ended]

    @property
    def memory(self) -> dict[str, int]:
        (worker,) = self.runtime.health()["workers"]
        found: dict[str, int] = worker["memory"]
        return found

    @property
    def resident(self) -> int:
        (worker,) = self.runtime.health()["workers"]
        return int(worker["rss_kib"]) << 10


Join = Callable[[str], Client]


@pytest.fixture
def join(world: World | None, memory_wasm: Path, tmp_path: Path) -> Iterator[Join]:
    # high time limits, so that the memory limits apply first, also in a real worker
    limits = {
        "owner_memory_bytes": OWNER,
        "worker_memory_bytes": WORKER,
        "pre_ms": 1e6,
        "owner_critical_ms": 1e6,
        "mid_ms": 1e5,
        "init_ms": 1e5,
        "step_deadline_ms": 100_000,
    }
    with ExitStack() as stack:
        daemon = stack.enter_context(Daemon(workers=1, limits=limits, store=tmp_path / "store"))

        def join(owner: str) -> Client:
            runtime = stack.enter_context(Runtime(daemon.socket_path, owner=owner))
            runtime.register(VOCABULARY)
            return Client(runtime, runtime.upload(memory_wasm).id)

        yield join


@pytest.mark.parametrize("where", ["pre", "mid", "prompt", "scatter"])
def test_owner_with_too_much_memory_loses_the_largest_sequences(join: Join, where: str) -> None:
    good, bad = join("good"), join("bad")
    good.start("once 1", 4)
    good.step()
    before = bad.resident
    bad.start(f"{where} 12", 12)
    while not bad.errors:  # on a busy machine most sequences are late in most steps
        bad.step()
        good.step()
        assert bad.resident - before < OWNER + SLACK
    assert all(isinstance(error, OwnerLimitError) for error in bad.errors)
    assert "'bad'" in str(bad.errors[0]) and f"the limit is {OWNER}" in str(bad.errors[0])
    assert bad.live, "all sequences have ended"
    assert not good.errors and len(good.live) == 4
    assert bad.memory["owner_bytes"] <= OWNER
    # of sequences that grow before their first step, some may be refused before any must end
    assert bad.memory["ended"] >= 1 or where == "prompt"
    bad.runtime.free(bad.live)
    bad.live.clear()
    good.step()
    wait_until(lambda: bad.memory["bytes"] <= 40 * MIB and bad.resident - before <= 45 * MIB)


@pytest.mark.parametrize("arg", ["fork 12", "copy 30", "copy 0"])
def test_memory_of_forks_counts(join: Join, arg: str) -> None:
    good, bad = join("good"), join("bad")
    good.start("once 1")
    bad.start(arg, 4)
    while not bad.errors if arg != "copy 0" else len(bad.live) < 32:  # many sequences are late in a step
        bad.step()
        good.step()
    assert not good.errors
    assert bool(bad.errors) == (arg != "copy 0")
    assert all(isinstance(error, OwnerLimitError) for error in bad.errors), bad.errors
    assert bad.memory["owner_bytes"] <= OWNER


@real
def test_memory_of_ended_sequences_causes_no_error_in_the_next(join: Join) -> None:
    """A thread of the worker frees the memory. Without waiting for it, the total would be twice the limit."""
    owners = [join("ann"), join("bob")]
    before = owners[0].resident
    for turn in range(20):
        owner = owners[turn % 2]
        owner.start("once 55")
        while owner.resident - before < 55 * MIB:
            owner.step()
        assert owner.resident - before < WORKER + SLACK
        owner.runtime.free(owner.live)
        owner.live.clear()
        assert not owner.errors


def test_clones_and_starts_are_refused_while_the_owner_has_too_much(join: Join) -> None:
    bad = join("bad")
    bad.start("mid 40")
    bad.step()
    with pytest.raises(OwnerLimitError, match="owner_memory_bytes"):
        bad.runtime.clone(bad.live[0])
    with pytest.raises(OwnerLimitError, match="owner_memory_bytes"):
        bad.runtime.instantiate(bad._module, "init 30")
    bad.step()
    assert bad.live and not bad.errors, "the sequence that could not be cloned must go on"


def test_worker_with_too_much_memory_ends_sequences_of_the_owner_with_most(join: Join) -> None:
    others, large = [join(name) for name in ("ann", "bob", "cat")], join("large")
    for owner in others:
        owner.start("once 5", 4)
    large.start("once 5", 6)
    for owner in (*others, large):
        owner.step()
    # now the worker is above its limit, but no owner is above theirs, even when all memory is counted
    large.start("once 5", 4)
    while not large.errors:
        for owner in (large, *others):
            owner.step()
        # a step counts memory only after more growth than this; a health call counts it
        large.runtime.health()
    assert isinstance(large.errors[0], SpaceError)
    assert "worker_memory_bytes" in str(large.errors[0]) and "'large' has the most" in str(large.errors[0])
    assert not any(owner.errors for owner in others)
    assert large.memory["bytes"] <= WORKER


def test_the_builder_has_the_same_limits(join: Join) -> None:
    good, bad = join("good"), join("bad")
    calls = [post_prepare(bad.runtime, bad._module, f"slow_init 40 {number}") for number in range(4)]
    good.start("init 20")
    errors = [error for number in calls if (error := poll(bad.runtime, number)) is not None]
    assert not good.errors and good.live
    assert {type(error) for error in errors} == {OwnerLimitError}
    builder = good.runtime.health()["builder"]
    assert builder["memory"]["ended"] >= 1 and builder["counters"]["owner_limit"] >= 1
