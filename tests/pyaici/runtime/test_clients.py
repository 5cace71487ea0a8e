"""Several clients of one daemon, and how a step is sent and heard."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aicirt.errors import UnknownSequenceError
from pyaici.runtime import Runtime
from pyaici.step import StepInput, Verb

from .conftest import VOCABULARY, Player


@pytest.fixture
def pair(guest_wasm: Path, new_player: Callable[[Runtime], Player]) -> Iterator[tuple[Player, Player]]:
    """Players of two clients that share one worker."""
    with Runtime(workers=1) as owner:
        assert owner._daemon is not None
        with Runtime(owner._daemon.socket_path) as guest:
            players = []
            for runtime in (owner, guest):
                runtime.register(VOCABULARY)
                runtime.tag(runtime.upload(guest_wasm).id, "guest")
                players.append(new_player(runtime))
            yield players[0], players[1]


@pytest.mark.parametrize(
    "broken",
    [
        {"tokens": [1 << 40]},
        {"tokens": [1, 1 << 40]},
        {"tokens": ["x"]},
        {"tokens": None},
        {"backtrack": -(1 << 40)},
        {"logprob": "high"},
        {"top": [(1, "high")]},
    ],
)
def test_a_client_that_sends_nonsense_loses_its_sequences_only(
    pair: tuple[Player, Player], broken: dict[str, object]
) -> None:
    good, bad = pair
    mine, theirs = good.start("ok"), bad.start("ok")
    good.step(mine)
    bad.step(theirs)
    bad.runtime.begin_step([StepInput(theirs)._replace(**broken)])  # type: ignore[arg-type]
    assert good.mid(mine, 5).verb == Verb.SAMPLE
    deadline = time.monotonic() + 5
    while (worker := good.runtime.health()["workers"][0])["sequences"] > 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (worker["sequences"], worker["generation"]) == (1, 1)
    assert good.mid(mine, 5).verb == Verb.SAMPLE


def test_nothing_is_sent_if_a_sequence_is_unknown(player: Player) -> None:
    seq = player.start("ok")
    player.step(seq)
    with pytest.raises(UnknownSequenceError, match="4711"):
        player.runtime.begin_step([StepInput(seq, tokens=[1]), StepInput(4711)])
    assert player.mid(seq, 5).verb == Verb.SAMPLE


def test_tokens_may_be_any_sequence(player: Player) -> None:
    seq = player.start("ok")
    player.step(seq)
    assert player.step(StepInput(seq, (5, 6, 7))).mid[seq].verb == Verb.SAMPLE


def test_rings_that_nobody_waited_for_cost_nothing_later(player: Player) -> None:
    """The client looks at the ring before it sleeps, so most rings of its bell find nobody waiting."""
    seq = player.start("ok")
    player.step(seq)
    for _ in range(50):
        player.mid(seq, 5)
    (link,) = player.runtime._links.values()
    while link.bell.wait(0.1):
        pass
    assert not link.bell.rung
