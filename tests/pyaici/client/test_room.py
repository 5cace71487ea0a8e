"""The limit on a worker's sequences applies to starts, clones and forks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aicirt.contract.abi import Verb
from aicirt.contract.errors import SpaceError
from aicirt.contract.messages import StepInput
from tests.simulation import World

from .conftest import Player, guest_runtime, thoroughly_real


@pytest.fixture
def small(world: World | None, guest_wasm: Path) -> Iterator[Player]:
    """A worker with room for four sequences."""
    with guest_runtime(guest_wasm, max_sequences=4) as runtime:
        yield Player(runtime)


def sequences(player: Player) -> int:
    (worker,) = player.runtime.health()["workers"]
    return int(worker["sequences"])


def test_starts_and_clones_beyond_the_limit_are_refused(small: Player) -> None:
    seqs = [small.start("ok") for _ in range(3)]
    seqs.append(small.runtime.clone(seqs[0]))
    with pytest.raises(SpaceError, match="4 sequences; the limit is 4"):
        small.start("ok")
    with pytest.raises(SpaceError, match="4 sequences; the limit is 4"):
        small.runtime.clone(seqs[0])
    assert all(mid.verb == Verb.SAMPLE for mid in small.answers(*seqs).values())
    assert sequences(small) == 4
    small.runtime.free(seqs[:1])
    assert small.mid(small.runtime.clone(seqs[1])).verb == Verb.SAMPLE


def test_copies_asked_for_beyond_the_limit_are_refused(small: Player) -> None:
    """Copies that wait for init_prompt count, so that they cannot pile up."""
    slow = small.start("prompt_slow 60", wait=False)
    copies = [small.runtime.begin_clone(slow) for _ in range(100)]
    refused = 0
    for copy in copies:
        try:
            assert small.runtime.cloned(copy, 10)
        except SpaceError:
            refused += 1
    assert refused == 97 and sequences(small) == 4


def test_cloning_several_leaves_out_those_without_room(small: Player) -> None:
    """A sequence that is freed or in a step is left out too."""
    runtime = small.runtime
    one, two, gone = (small.start("ok") for _ in range(3))
    small.step(one, two, gone)
    runtime.free([gone])
    step = runtime.begin_step([StepInput(two, tokens=[1])])
    assert set(runtime.clone_each([one, two, gone])) == {one}
    step.wait()
    copies = runtime.clone_each([two, one])
    assert set(copies) == {two} and sequences(small) == 4
    rows = [small.mid(seq, 2).row for seq in (two, copies[two])]
    assert rows[0] is not None and rows[1] is not None
    assert rows[0].bits is not None and (rows[0].bits == rows[1].bits).all()


@thoroughly_real
def test_a_fork_beyond_the_limit_ends_its_sequence(small: Player) -> None:
    """Two sequences want two children each, and there is room only for the children of the first."""
    first, second = small.start("fork 3"), small.start("fork 3")
    small.step(first, second)
    step = small.runtime.begin_step([StepInput(seq, tokens=[1]) for seq in (first, second)])
    verdicts = step.wait_pre()
    children = verdicts[first].children
    assert (verdicts[first].verb, len(children)) == (Verb.FORK, 2)
    assert verdicts[second].verb == Verb.ERROR and isinstance(verdicts[second].error, SpaceError)
    assert set(step.wait().mid) == {first, *children}
    assert sequences(small) == 3
    assert all(mid.verb == Verb.SAMPLE for mid in small.answers(first, *children).values())
