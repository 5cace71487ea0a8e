"""Requests that come from another worker: whatever that one says, nothing of it is left if it is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aicirt.contract.errors import AiciError, ProtocolError, RuntimeFailure
from aicirt.contract.messages import StepInput
from aicirt.settings import MOST_MOVED_BYTES
from aicirt.system.files import Descriptor, sealed_bytes
from aicirt.wasm.program import Program
from aicirt.worker.moving import arrive, depart
from aicirt.worker.sequence import Sequence
from bench.host import LocalWorker, load_for_guests
from pyaici.build import build_controller
from tests.pyaici.client.conftest import GUESTS, VOCABULARY


@pytest.fixture(scope="module")
def worker() -> Iterator[LocalWorker]:
    with LocalWorker(load_for_guests(VOCABULARY)) as worker:
        yield worker


@pytest.fixture(scope="module")
def program(worker: LocalWorker, tmp_path_factory: pytest.TempPathFactory) -> Program:
    wasm = build_controller(GUESTS / "mover.c", tmp_path_factory.mktemp("mover") / "mover.wasm").path
    return worker.program(wasm)


@pytest.fixture
def family(worker: LocalWorker, program: Program) -> Iterator[list[Sequence]]:
    """A sequence that has written a variable and printed, and a clone of it."""
    seq = worker.start(worker.template(program, "500"), (1, 2))
    worker.step([StepInput(seq.id, [ord("V")])])
    seq.context.write_log(1, b"not fetched yet")
    family = [seq, worker.clone(seq)]
    yield family
    worker.free(list(worker.client.sequences.values()))
    assert not worker.worker.num_sequences


class Sent:
    """A request on its way: it has left, and not arrived."""

    def __init__(self, worker: LocalWorker, family: list[Sequence]) -> None:
        self.numbers = [seq.id for seq in family]
        answer, files, seqs = depart(worker.client, self.numbers)
        assert seqs == family
        self.state = msgpack.unpackb(os.pread(files[0].fd, answer["state_bytes"], 0), strict_map_key=False)
        self.files = files[1:]
        for seq in seqs:
            worker.client.drop(seq)

    def arrive(self, worker: LocalWorker, program: Program, state: Any) -> None:
        data = msgpack.packb(state)
        files = [Descriptor(sealed_bytes("state", data)), *self.files]
        arrive(worker.worker, worker.client, program, self.numbers, len(data), files)


def test_a_request_goes_on(worker: LocalWorker, program: Program, family: list[Sequence]) -> None:
    before = [(seq.length, seq.step, seq.has_row, seq.context.sources) for seq in family]
    value = family[0].request.variables.get(b"v")
    sent = Sent(worker, family)
    sent.arrive(worker, program, sent.state)
    seqs = [worker.client.sequences[number] for number in sent.numbers]
    assert [(seq.length, seq.step, seq.has_row, seq.context.sources) for seq in seqs] == before
    request = seqs[0].request
    assert request is seqs[1].request and (request.live, request.clones) == (2, 1)
    assert request.variables.get(b"v") == value and value[0] == 1
    assert [seq.context.log.take() for seq in seqs] == ["not fetched yet", ""]
    assert len(worker.step([StepInput(number, [5]) for number in sent.numbers])) == 2


def test_the_owner_goes_along(worker: LocalWorker, program: Program) -> None:
    template = worker.template(program, "500")
    template.owner = "ann"
    seq = worker.start(template, (1, 2))
    worker.step([StepInput(seq.id, [ord("V")])])
    sent = Sent(worker, [seq, worker.clone(seq)])
    assert worker.worker.owners.get("ann").sequences == 0
    state = dict(sent.state)
    state["request"] = [*sent.state["request"][:2], 7]
    with pytest.raises(ProtocolError, match="without a name"):
        sent.arrive(worker, program, state)
    sent.arrive(worker, program, sent.state)
    ann = worker.worker.owners.get("ann")
    assert ann.sequences == 2 and ann.variable_bytes > 0
    worker.free(list(worker.client.sequences.values()))
    assert (ann.sequences, ann.variable_bytes) == (0, 0)


def test_a_number_is_no_source(worker: LocalWorker, program: Program, family: list[Sequence]) -> None:
    """Of which so many bytes would be made."""
    sent = Sent(worker, family)
    with pytest.raises(ProtocolError, match="sources that are none"):
        sent.arrive(worker, program, {**sent.state, "sources": [1 << 40] * 7})


def test_forks_move_together(worker: LocalWorker, family: list[Sequence]) -> None:
    for numbers in ([family[0].id], [family[1].id], [*(seq.id for seq in family), 99]):
        with pytest.raises(RuntimeFailure):
            depart(worker.client, numbers)
    assert len(worker.step([StepInput(seq.id, [5]) for seq in family])) == 2


def test_other_sequences_than_were_to_come(
    worker: LocalWorker, program: Program, family: list[Sequence]
) -> None:
    sent = Sent(worker, family)
    sent.numbers.reverse()
    with pytest.raises(ProtocolError, match="other sequences"):
        sent.arrive(worker, program, sent.state)
    sent.numbers.reverse()
    sent.arrive(worker, program, sent.state)
    with pytest.raises(ProtocolError, match="exists already"):
        sent.arrive(worker, program, sent.state)


def test_too_many_bytes(worker: LocalWorker, program: Program) -> None:
    for nbytes, files in ((0, 2), (MOST_MOVED_BYTES + 1, 2), (1 << 60, 2), (5, 1)):
        some = [Descriptor(sealed_bytes("state", b"12345")) for _ in range(files)]
        with pytest.raises(ProtocolError):
            arrive(worker.worker, worker.client, program, [1], nbytes, some)


@pytest.mark.parametrize("outcome", [{}, [], "", b"", 0.0, 0.5, -1, 1 << 32])
def test_what_is_no_outcome(
    worker: LocalWorker, program: Program, family: list[Sequence], outcome: Any
) -> None:
    """Which the next step would have taken for the result of a callback."""
    sent = Sent(worker, family)
    described = [[*fields[:8], outcome, *fields[9:]] for fields in sent.state["sequences"]]
    with pytest.raises(ProtocolError, match="numbers are none"):
        sent.arrive(worker, program, {**sent.state, "sequences": described})


@pytest.mark.parametrize("data", [b"\xc1", b"\xdc", b"\x93\x01", b"\x01\x02", b"\xff" * 40, b"\x91" * 5000])
def test_what_is_no_message(worker: LocalWorker, program: Program, data: bytes) -> None:
    files = [Descriptor(sealed_bytes("state", some)) for some in (data, b"")]
    with pytest.raises(ProtocolError):
        arrive(worker.worker, worker.client, program, [1], len(data), files)


_ANYTHING = st.recursive(
    st.none() | st.integers(-5, 1 << 63) | st.binary(max_size=20) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=5,
)


def _damage(wire: Any, data: st.DataObject) -> Any:
    """Something else somewhere in it."""
    if isinstance(wire, dict) and wire and data.draw(st.integers(0, 20)):
        key = data.draw(st.sampled_from(sorted(wire)))
        return {**wire, key: _damage(wire[key], data)}
    if isinstance(wire, list) and wire and data.draw(st.integers(0, 6)):
        place = data.draw(st.integers(0, len(wire) - 1))
        return [*wire[:place], _damage(wire[place], data), *wire[place + 1 :]]
    return data.draw(_ANYTHING)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_description_harms_the_receiver(
    worker: LocalWorker, program: Program, data: st.DataObject
) -> None:
    seq = worker.start(worker.template(program, "500"), (1, 2))
    worker.step([StepInput(seq.id, [ord("V")])])
    sent = Sent(worker, [seq, worker.clone(seq)])
    owner = worker.worker.owners.get(worker.client.owner)
    files = len(list(Path("/proc/self/fd").iterdir()))
    state = sent.state
    for _ in range(data.draw(st.integers(1, 2))):
        state = _damage(state, data)
    try:
        sent.arrive(worker, program, state)
    except AiciError:
        pass
    if worker.client.sequences:
        worker.step([StepInput(number, [5]) for number in sent.numbers])
        worker.free(list(worker.client.sequences.values()))
    else:
        assert len(list(Path("/proc/self/fd").iterdir())) <= files + 1
    assert not worker.worker.num_sequences and not worker.client.written
    assert (owner.sequences, owner.variable_bytes, owner.log_bytes) == (0, 0, 0)
