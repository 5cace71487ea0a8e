"""Controllers that look at a distribution before they decide: answers, rows for logits, and limits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from aicirt.contract.abi import RowKind, Verb
from aicirt.contract.errors import CapabilityError, LivelockError, SpaceError
from aicirt.contract.messages import StepInput
from pyaici.client.arguments import Capabilities
from pyaici.client.results import Look, MidResult
from pyaici.client.runtime import Runtime
from tests.simulation import World

from .conftest import VOCABULARY, Player, thoroughly_real

#: dense rows of a worker
ROWS = 2


@pytest.fixture
def looking(world: World | None, guest_wasm: Path) -> Iterator[Player]:
    limits = {"max_idle_steps": 8, "step_deadline_ms": 60_000}
    with Runtime(workers=1, limits=limits, num_dense=ROWS) as runtime:
        runtime.register(VOCABULARY)
        runtime.tag(runtime.upload(guest_wasm).id, "guest")
        yield Player(runtime)


def begin(player: Player, mode: str) -> int:
    """Starts a sequence of the guest, and steps it to where it looks."""
    seq = player.start(mode)
    player.mid(seq)
    return seq


def look(player: Player, seq: int) -> Look:
    """Steps a sequence, which looks."""
    answer = player.mid(seq, 9)
    assert isinstance(answer, Look), answer
    return answer


def show(player: Player, seq: int, look: Look, value: float = 0.5) -> MidResult:
    """Answers a look; returns the next result."""
    if look.logits is not None:
        look.logits[:] = value
        return player.mid(seq, top_logprobs=[])
    return player.mid(seq, top_logprobs=[(7, -0.25)] * look.top_logprobs)


@thoroughly_real
def test_all_logits(looking: Player) -> None:
    seq = begin(looking, "look 0")
    asked = look(looking, seq)
    assert asked.top_logprobs == 0 and asked.logits is not None
    assert asked.logits.shape == (VOCABULARY.vocab_size,) and asked.logits.dtype == np.float32
    answer = show(looking, seq, asked)
    assert answer.verb == Verb.SAMPLE and answer.row is not None and answer.row.kind == RowKind.BITMASK
    size = 4 * VOCABULARY.vocab_size
    assert looking.logs[seq] == f"blind 0 bytes, 0.0, top 0\nlooked {size} bytes, 0.5, top 0\n"


def test_the_most_likely_tokens(looking: Player) -> None:
    seq = begin(looking, "look 3")
    asked = look(looking, seq)
    assert (asked.top_logprobs, asked.logits) == (3, None)
    assert show(looking, seq, asked).verb == Verb.SAMPLE
    assert looking.logs[seq].endswith("looked 0 bytes, 0.0, top 3\n")


def test_a_list_is_no_longer_than_the_engine_allows(looking: Player) -> None:
    assert look(looking, begin(looking, "look 1000")).top_logprobs == 64


def test_rows_for_logits_are_free_after_the_answer(looking: Player) -> None:
    """Each sequence looks in every step, and there are fewer rows than sequences."""
    seqs = [begin(looking, "look 0") for _ in range(ROWS + 2)]
    for _ in range(4):
        for seq in seqs:
            assert show(looking, seq, look(looking, seq)).verb == Verb.SAMPLE


def test_a_sequence_that_finds_no_row_ends_alone(looking: Player) -> None:
    seqs = [begin(looking, "look 0") for _ in range(ROWS + 1)]
    asked = [look(looking, seq) for seq in seqs[:ROWS]]
    last = looking.mid(seqs[ROWS], 9)
    assert isinstance(last.error, SpaceError)
    for seq, each in zip(seqs, asked, strict=False):
        assert show(looking, seq, each).verb == Verb.SAMPLE


def test_rows_of_sequences_that_end_while_they_look_are_free(looking: Player) -> None:
    for _ in range(2 * ROWS):
        seq = begin(looking, "look 0")
        look(looking, seq)
        looking.runtime.free([seq])


def test_a_step_that_is_abandoned_gives_the_row_back(looking: Player) -> None:
    """The controller is asked again, and is told nothing that nobody has shown it."""
    seq, other = begin(looking, "look 0"), begin(looking, "ok")
    for _ in range(2 * ROWS):
        looking.runtime.begin_step([StepInput(seq, [9])]).abandon()
        looking.mid(other, 3)  # reads what was abandoned
    asked = look(looking, seq)
    assert show(looking, seq, asked).verb == Verb.SAMPLE
    assert looking.logs[seq].count("looked") == 1


def test_who_is_not_answered_sees_no_logits(looking: Player) -> None:
    """A row has what it had for another sequence before."""
    one, other = begin(looking, "look 0"), begin(looking, "look 0")
    show(looking, one, look(looking, one), 77.0)
    look(looking, other)
    again = looking.mid(other, 3)
    assert isinstance(again, Look)
    assert looking.logs[other] == "blind 0 bytes, 0.0, top 0\n" * 2


def test_a_copy_sees_no_logits_of_its_original(looking: Player) -> None:
    seq = begin(looking, "look 0")
    asked = look(looking, seq)
    copy = looking.runtime.clone(seq)
    looking.seqs.append(copy)
    assert isinstance(looking.mid(copy, top_logprobs=[]), Look)
    assert "blind 0 bytes" in looking.logs[copy]
    assert show(looking, seq, asked).verb == Verb.SAMPLE


def test_looking_forever_ends(looking: Player) -> None:
    seq = begin(looking, "look_on 0")
    answer: MidResult = look(looking, seq)
    shown = 0
    while isinstance(answer, Look):
        answer, shown = show(looking, seq, answer), shown + 1
    assert isinstance(answer.error, LivelockError) and shown == 8


def test_a_late_answer_keeps_the_logits(looking: Player, world: World) -> None:
    seq = begin(looking, "look_slow 0")
    answer = show(looking, seq, look(looking, seq))
    late = 0
    while answer.verb == Verb.LATE:
        answer, late = looking.mid(seq), late + 1
    assert answer.verb == Verb.SAMPLE and late
    assert "looked 1200 bytes, 0.5" in looking.logs[seq]
    for _ in range(2 * ROWS):
        other = begin(looking, "look 0")
        assert show(looking, other, look(looking, other)).verb == Verb.SAMPLE


@pytest.mark.parametrize(
    ("level", "mode", "message"),
    [(0, "look 3", "cannot show the distribution"), (1, "look 0", "ask for some of them"), (1, "look 3", "")],
)
def test_levels_of_engines(looking: Player, level: int, mode: str, message: str) -> None:
    seq = looking.runtime.instantiate("guest", mode, [1], capabilities=Capabilities(look=level))
    looking.seqs.append(seq)
    looking.mid(seq)
    answer = looking.mid(seq, 9)
    if message:
        assert isinstance(answer.error, CapabilityError) and message in answer.error.message
    else:
        assert isinstance(answer, Look)
