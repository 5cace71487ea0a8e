"""Several clients of one daemon, and how clients send steps and receive results."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aicirt.contract.abi import Verb
from aicirt.contract.errors import ProtocolError, RuntimeFailure, UnknownSequenceError
from aicirt.contract.messages import StepInput
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime
from tests.simulation import World

from .conftest import VOCABULARY, Player, guest_runtime, thoroughly_real


@pytest.fixture
def one_worker(world: World | None, guest_wasm: Path) -> Iterator[Daemon]:
    with Daemon(workers=1) as daemon:
        with Runtime(daemon.socket_path) as runtime:
            runtime.tag(runtime.upload(guest_wasm).id, "guest")
        yield daemon


@pytest.fixture
def pair(one_worker: Daemon, new_player: Callable[[Runtime], Player]) -> Iterator[tuple[Player, Player]]:
    """Two clients that share one worker."""
    with Runtime(one_worker.socket_path) as first, Runtime(one_worker.socket_path) as second:
        for runtime in (first, second):
            runtime.register(VOCABULARY)
        yield new_player(first), new_player(second)


@pytest.mark.parametrize(
    "broken",
    [
        {"tokens": [1 << 40]},
        {"tokens": [1, 1 << 40]},
        {"tokens": ["x"]},
        {"tokens": None},
        {"backtrack": -(1 << 40)},
        {"logprob": "high"},
        {"top_logprobs": [(1, "high")]},
    ],
)
def test_a_client_that_sends_an_invalid_step_loses_only_its_own_sequences(
    pair: tuple[Player, Player], broken: dict[str, object]
) -> None:
    good, bad = pair
    good_seq, bad_seq = good.start("ok"), bad.start("ok")
    good.step(good_seq)
    bad.step(bad_seq)
    bad.runtime.begin_step([StepInput(bad_seq)._replace(**broken)])  # type: ignore[arg-type]
    assert good.mid(good_seq, 5).verb == Verb.SAMPLE
    while (worker := good.runtime.health()["workers"][0])["sequences"] > 1:
        time.sleep(0.01)
    assert (worker["sequences"], worker["generation"]) == (1, 1)
    assert good.mid(good_seq, 5).verb == Verb.SAMPLE


def test_a_step_with_an_unknown_sequence_is_not_sent(player: Player) -> None:
    seq = player.start("ok")
    player.step(seq)
    with pytest.raises(UnknownSequenceError, match="4711"):
        player.runtime.begin_step([StepInput(seq, tokens=[1]), StepInput(4711)])
    assert player.mid(seq, 5).verb == Verb.SAMPLE


def test_tokens_may_be_a_tuple(player: Player) -> None:
    seq = player.start("ok")
    player.step(seq)
    assert player.step(StepInput(seq, (5, 6, 7))).mid[seq].verb == Verb.SAMPLE


def test_unneeded_doorbell_rings_do_not_wake_the_client_later(player: Player) -> None:
    """The client reads the ring buffer before it sleeps, so it does not wait for most doorbell rings."""
    seq = player.start("ok")
    player.step(seq)
    for _ in range(50):
        player.mid(seq, 5)
    (link,) = player.runtime._links.all
    while link.bell.wait_for_ring(0.1):
        pass
    assert not link.bell.rung


@pytest.fixture
def two_workers(world: World | None, guest_wasm: Path) -> Iterator[Player]:
    with guest_runtime(guest_wasm, 2) as runtime:
        yield Player(runtime)


@thoroughly_real
def test_children_of_two_workers_have_different_numbers(two_workers: Player) -> None:
    """This also holds when the link numbers have wrapped around to one that is still in use."""
    player = two_workers
    player.runtime._links.numbers = itertools.chain([5], itertools.cycle([5, 6]))
    parents = [player.start("fork 3") for _ in range(2)]
    player.step(*parents)
    verdicts = player.runtime.begin_step([StepInput(seq, tokens=[1]) for seq in parents]).wait_pre()
    assert {index for index, _ in player.runtime._links._links} == {0, 1}
    children = [child for seq in parents for child in verdicts[seq].children]
    assert len(set(children)) == 4
    assert {child >> 24 for child in children} == {128 + 5, 128 + 6}


def test_a_link_without_a_free_number_is_refused(two_workers: Player) -> None:
    player = two_workers
    player.runtime._links.numbers = itertools.repeat(5)
    seq = player.start("ok")
    with pytest.raises(RuntimeFailure, match="sequences in 1 worker,"):
        player.start("ok")
    assert player.mid(seq).verb == Verb.SAMPLE


def test_a_link_number_out_of_range_is_refused(two_workers: Player) -> None:
    player = two_workers
    player.runtime._links.numbers = itertools.repeat(128)
    with pytest.raises(ProtocolError, match="link 128"):
        player.start("ok")
