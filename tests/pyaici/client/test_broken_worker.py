"""A compromised worker can send anything, but only its own sequences end.

The rings, rows and doorbells are real; the test writes the worker's side of them.
"""

from __future__ import annotations

import math
import os
import select
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aicirt.contract.abi import MID_DRAFTS, RowKind, Verb
from aicirt.contract.errors import AiciError, ProtocolError, RuntimeFailure
from aicirt.contract.messages import (
    MID,
    NOTICE,
    PRE,
    WOKEN,
    Mid,
    Notice,
    Pre,
    Reply,
    StepInput,
    Woken,
    encode,
)
from aicirt.ipc.frames import FrameSocket
from aicirt.ipc.ring import Doorbell
from aicirt.ipc.segment import Layout
from pyaici.client import step as steps
from pyaici.client.control import WorkerAddress
from pyaici.client.masks import apply_row, count_allowed
from pyaici.client.results import StepResult
from pyaici.client.sequences import Alarm, Outstanding, Sequences, WorkerLink
from pyaici.client.step import Step, StepPart
from tests.thorough import cases

VOCAB = 300
LAYOUT = Layout(VOCAB, num_rows=8, num_dense=2, ring_bytes=1 << 14)
#: sequences of the compromised worker, and of the good one
BROKEN, GOOD = (1, 2), (3, 4)
NUMBER = 7


class Bench:
    """The links of two workers, and a step in which both take part."""

    def __init__(self, stack: ExitStack) -> None:
        self.live = Sequences()
        self.links = []
        #: the workers' ends
        self.wakers: list[socket.socket] = []
        stack.callback(lambda: [waker.close() for waker in self.wakers])
        for index in (0, 1):
            bell = Doorbell.create()
            stack.callback(bell.close)
            link = WorkerLink(index + 5, WorkerAddress(index, 1, os.getpid()), LAYOUT)
            stack.callback(link.close)
            assert bell.file is not None
            with link.open_waker() as theirs:
                FrameSocket(theirs).send(Reply(0, None, None), [bell.file.fd])
                self.wakers.append(theirs.dup())
            link.attached()
            self.links.append(link)
        for link, seqs in zip(self.links, (BROKEN, GOOD), strict=True):
            for seq in seqs:
                self.live.add_sequence(seq, link, has_pre=True, has_post=True)

    def write(self, index: int, data: bytes) -> None:
        ring = self.links[index].segment.to_client
        for payload, more in ring.frames(data):
            if not ring.try_write(payload, more):
                return
        self.links[index].bell.ring()

    def step(self, late: bool = False) -> Step:
        """`late`: the compromised worker answers an earlier step."""
        parts = [
            StepPart(link, [StepInput(seq) for seq in seqs], critical=True)
            for link, seqs in zip(self.links, (BROKEN, GOOD), strict=True)
        ]
        if late:
            parts[0].late = True
            self.links[0].outstanding[NUMBER] = Outstanding(BROKEN, parts[0].patience, pre=True)
        return Step(self.live, NUMBER, parts)

    def answer_well(self) -> None:
        """Sends the answers of the good worker."""
        self.write(1, encode(Pre(PRE, NUMBER, [])))
        token = [[seq, Verb.SAMPLE, RowKind.TOKEN, 9, 0, 0, 0.0, None, 0] for seq in GOOD]
        self.write(1, encode(Mid(MID, NUMBER, token, [[GOOD[0], "text"]])))

    def check(self, result: StepResult) -> None:
        """Checks that the good worker's results arrived, and that the engine can apply all rows safely."""
        for seq in GOOD:
            row = result.mid[seq].row
            assert seq in self.live and row is not None and row.token == 9
        assert result.logs.get(GOOD[0]) == "text" and not set(result.variables) & set(GOOD)
        for seq, answer in result.mid.items():
            assert seq in (*BROKEN, *GOOD) or seq >> 24 == 128 | 5
            if answer.row is not None:
                apply_row(np.zeros(VOCAB, np.float32), answer.row)
                count_allowed(answer.row, VOCAB)
            assert all(0 <= token < VOCAB for token in answer.ff_tokens)
            assert answer.verb != Verb.ERROR or isinstance(answer.error, AiciError)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(steps, "STEP_TIMEOUT", 0.0002)
    with ExitStack() as stack:
        yield Bench(stack)


def play(*messages: bytes) -> None:
    """Runs a step in which the compromised worker sends these messages. Nothing may be raised."""
    play_step(messages, late=False)
    play_step(messages, late=True)


def play_step(messages: Sequence[bytes], late: bool) -> None:
    with ExitStack() as stack:
        bench = Bench(stack)
        bench.answer_well()
        for message in messages:
            bench.write(0, message)
        step = bench.step(late)
        verdicts = step.wait_pre()
        for seq, verdict in verdicts.items():
            assert seq in BROKEN and verdict.verb in (Verb.STOP, Verb.CONTINUE, Verb.SUSPEND, Verb.FORK, 7)
            assert all(child in bench.live or child in verdict.children for child in verdict.children)
        bench.check(step.wait())
        # nothing that remains may disturb a later step
        with suppress(RuntimeFailure):  # as `Step.abandon` does
            bench.links[0].abandon(NUMBER + 1) if not bench.links[0].dead else None
        bench.live.free([*BROKEN, *GOOD])


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.integers(0, 9), inner, max_size=2),
    max_leaves=8,
)
number = st.sampled_from([*BROKEN, *GOOD, 0x85000001, 0x85000002, 0x86000001, 0, -1, NUMBER]) | anything
small = st.sampled_from([0, 1, 2, 3, 4, 5, 6, 7, 8, -1, VOCAB, 1 << 31, 1.5, True, None]) | anything
row = st.tuples(number, st.just(4) | small, small, small, small, small, small, small, small).map(list)
result = (
    row
    | st.tuples(number, st.just(8) | small, small, small, small).map(list)
    | st.tuples(number, st.just(9) | small, number, st.floats() | small).map(list)
    | st.tuples(number, st.just(5) | small, small, st.lists(small, max_size=4) | anything).map(list)
    | st.tuples(number, small, small).map(list)
    | st.lists(small, max_size=10)
)
error = (
    st.tuples(st.sampled_from(["trap", "module", "x"]), st.text(max_size=3), st.just({})).map(list) | anything
)
verdict = st.tuples(number, small, st.lists(number, max_size=3) | error).map(list) | anything
pre = st.tuples(st.just(PRE), st.just(NUMBER), st.lists(verdict, max_size=4) | anything).map(list)
named = st.tuples(number, st.text(max_size=3) | anything).map(list) | anything
written = (
    st.tuples(number, st.lists(st.tuples(small, small, small).map(list), max_size=2)).map(list) | anything
)
mid = st.tuples(
    st.just(MID),
    st.just(NUMBER),
    st.lists(result, max_size=5) | anything,
    st.lists(named, max_size=2) | anything,
    st.lists(written, max_size=2) | anything,
    st.lists(st.tuples(number, small).map(list), max_size=2) | anything,
).map(list)
message = pre | mid | st.lists(small, min_size=1, max_size=6) | anything
fast = settings(max_examples=cases(37, 150), deadline=None, suppress_health_check=list(HealthCheck))


@fast
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=3))
def test_random_bytes(bench: Bench, messages: list[bytes]) -> None:
    play(*messages)


@fast
@given(st.lists(message, min_size=1, max_size=3))
def test_messages_with_random_fields(bench: Bench, messages: list[Any]) -> None:
    play(*(msgpack.packb(fields) for fields in messages))


@fast
@given(st.lists(result, max_size=5), st.lists(written, max_size=2))
def test_answers_in_time_with_random_results(bench: Bench, results: list[Any], variables: list[Any]) -> None:
    play(encode(Pre(PRE, NUMBER, [])), msgpack.packb([MID, NUMBER, results, [], variables]))


@fast
@given(st.lists(verdict, max_size=4))
def test_verdicts_with_random_fields(bench: Bench, verdicts: list[Any]) -> None:
    play(msgpack.packb([PRE, NUMBER, verdicts]), encode(Mid(MID, NUMBER, [], [])))


ROWS: dict[str, list[Any]] = {
    "a mask row beyond the last": [RowKind.BITMASK, 8, 1, 0, 0.0, None, 0],
    "a negative mask row": [RowKind.BITMASK, -1, 1, 0, 0.0, None, 0],
    "a dense row beyond the last": [RowKind.DENSE, 2, 1, 0, 0.0, None, 0],
    "a sparse row beyond the last": [RowKind.SPARSE, 8, 1, 1, 0.0, None, 0],
    "too many entries": [RowKind.SPARSE, 0, 1, 1 << 40, 0.0, None, 0],
    "negative entries": [RowKind.SPARSE, 0, 1, -1, 0.0, None, 0],
    "a default of NaN": [RowKind.SPARSE, 0, 1, 1, float("nan"), None, 0],
    "a token beyond the vocabulary": [RowKind.TOKEN, VOCAB, 0, 0, 0.0, None, 0],
    "a token that is a text": [RowKind.TOKEN, "x", 0, 0, 0.0, None, 0],
    "an unknown kind": [17, 0, 0, 0, 0.0, None, 0],
    "a generation that is a text": [RowKind.BITMASK, 0, "x", 0, 0.0, None, 0],
    "a temperature of NaN": [RowKind.ALL, 0, 0, 0, 0.0, float("nan"), 0],
    "a top_logprobs of millions": [RowKind.ALL, 0, 0, 0, 0.0, None, 1 << 22],
    "a top_logprobs of None": [RowKind.ALL, 0, 0, 0, 0.0, None, None],
    "a truncation of None": [RowKind.ALL, 0, 0, 0, 0.0, None, 0, None],
    "a truncation of three numbers": [RowKind.ALL, 0, 0, 0, 0.0, None, 0, [0.5, 0, 0.0]],
    "a top_p of 2": [RowKind.ALL, 0, 0, 0, 0.0, None, 0, [2.0, 0, 0.0, 0.0, 0.0]],
    "a min_p of nan": [RowKind.ALL, 0, 0, 0, 0.0, None, 0, [0.0, 0, math.nan, 0.0, 0.0]],
    "a negative top_k": [RowKind.ALL, 0, 0, 0, 0.0, None, 0, [0.0, -1, 0.0, 0.0, 0.0]],
    "an infinite top_n_sigma": [RowKind.ALL, 0, 0, 0, 0.0, None, 0, [0.0, 0, 0.0, 0.0, math.inf]],
}


@pytest.mark.parametrize("fields", ROWS.values(), ids=ROWS)
def test_invalid_rows_end_the_link(bench: Bench, fields: list[Any]) -> None:
    bench.answer_well()
    bench.write(0, encode(Pre(PRE, NUMBER, [])))
    bench.write(0, encode(Mid(MID, NUMBER, [[BROKEN[0], Verb.SAMPLE, *fields]], [])))
    found = bench.step().wait()
    bench.check(found)
    for seq in BROKEN:
        assert isinstance(found.mid[seq].error, ProtocolError) and seq not in bench.live
    assert bench.links[0].gone and not bench.links[1].gone
    with pytest.raises(ProtocolError, match=r"worker 0 .* has sent an invalid message"):
        bench.links[0].take_message(MID, 1)


@pytest.mark.parametrize(
    "fields",
    [
        *[(GOOD[0], 1.0, ""), (77, 1.0, ""), ("x", 1.0, ""), (BROKEN[1], float("nan"), "")],
        *[(BROKEN[1], 1, ""), (BROKEN[1], 1.0), (BROKEN[1], 1.0, 5), (BROKEN[1], 1.0, "x" * 65)],
    ],
)
def test_invalid_leaders_end_the_link(bench: Bench, fields: tuple[Any, ...]) -> None:
    bench.answer_well()
    bench.write(0, encode(Pre(PRE, NUMBER, [])))
    bench.write(0, encode(Mid(MID, NUMBER, [[BROKEN[0], Verb.FOLLOW, *fields]], [])))
    found = bench.step().wait()
    bench.check(found)
    assert isinstance(found.mid[BROKEN[0]].error, ProtocolError) and bench.links[0].gone


@pytest.mark.parametrize(
    "fields",
    [
        *[(0, 2, 1, False), (0, -1, 1, False), (3, 0, 1, False), (-1, -1, 0, False), (1 << 22, -1, 0, False)],
        *[("x", 0, 1, False), (0, 0, "x", False), (0, 1.5, 1, False), (2, -1, 0), (2, -1, 0, 1)],
    ],
)
def test_invalid_looks_end_the_link(bench: Bench, fields: tuple[Any, ...]) -> None:
    bench.answer_well()
    bench.write(0, encode(Pre(PRE, NUMBER, [])))
    bench.write(0, encode(Mid(MID, NUMBER, [[BROKEN[0], Verb.LOOK, *fields]], [])))
    found = bench.step().wait()
    bench.check(found)
    assert isinstance(found.mid[BROKEN[0]].error, ProtocolError) and bench.links[0].gone


def test_a_worker_answers_for_its_own_sequences_only(bench: Bench) -> None:
    bench.answer_well()
    stop, child = [GOOD[0], Verb.STOP, None], 128 << 24 | 6 << 24 | 1
    bench.write(0, encode(Pre(PRE, NUMBER, [[GOOD[1], Verb.STOP, None], [GOOD[0], Verb.SUSPEND, None]])))
    written = [GOOD[0], [[b"name", 1, b"value"]]]
    bench.write(0, encode(Mid(MID, NUMBER, [stop], [[GOOD[0], "forged"]], [written])))
    step = bench.step()
    assert step.wait_pre() == {}
    bench.check(step.wait())
    for children in ([GOOD[0]], [child], [child - (1 << 24), child - (1 << 24)], [], ["x"], [-1]):
        play(encode(Pre(PRE, NUMBER, [[BROKEN[0], Verb.FORK, children]])))


def test_tokens_of_a_sparse_row_are_copied_before_the_check(bench: Bench) -> None:
    """Otherwise the worker could change them in the segment after the check."""
    bench.answer_well()
    bench.write(0, encode(Pre(PRE, NUMBER, [])))
    rows = bench.links[0].rows._rows
    rows[0, :2] = 5, 0
    sparse = [BROKEN[0], Verb.SAMPLE, RowKind.SPARSE, 0, 1, 1, float("-inf"), None, 0]
    bench.write(0, encode(Mid(MID, NUMBER, [sparse], [])))
    found = bench.step().wait()
    rows[0, :2] = 0xFFFFFFFF, 0x7FC00000
    bench.check(found)
    sparse_row = found.mid[BROKEN[0]].row
    assert sparse_row is not None and sparse_row.tokens is not None and sparse_row.tokens.tolist() == [5]


@pytest.mark.parametrize("place", [0, 8, 16, 64])
@pytest.mark.parametrize("value", [1, 1 << 20, (1 << 64) - 1, (1 << 64) - 8])
def test_ring_positions_changed_by_the_worker_do_no_harm(bench: Bench, place: int, value: int) -> None:
    bench.answer_well()
    bench.write(0, encode(Pre(PRE, NUMBER, [])))
    layout = bench.links[0].segment.layout
    for ring in (layout.to_client, layout.to_worker):
        bench.links[0].segment.memory[ring + place : ring + place + 8] = value.to_bytes(8, "little")
    step = bench.step()
    step.wait_pre()
    bench.check(step.wait())
    bench.live.free([*BROKEN, *GOOD])


@pytest.mark.parametrize(
    ("verb", "drafts"),
    [
        (Verb.SAMPLE, [1] * 65),
        (Verb.SAMPLE, [VOCAB]),
        (Verb.SAMPLE, 7),
        (Verb.STOP, [1]),
        (Verb.ERROR, [1]),
    ],
)
def test_drafts_that_no_controller_may_have_end_the_link(bench: Bench, verb: Verb, drafts: Any) -> None:
    """The engine computes and keeps the logits after each draft: many would take all memory."""
    fields: dict[Verb, list[Any]] = {
        Verb.SAMPLE: [RowKind.TOKEN, 9, 0, 0, 0.0, None, 0],
        Verb.ERROR: [["trap", "it has failed", {}]],
    }
    bench.answer_well()
    bench.write(0, encode(Pre(PRE, NUMBER, [])))
    entry = [BROKEN[0], verb, *fields.get(verb, [None])]
    bench.write(0, encode(Mid(MID, NUMBER, [entry], [], [], [[BROKEN[0], MID_DRAFTS, drafts]])))
    found = bench.step().wait()
    bench.check(found)
    assert isinstance(found.mid[BROKEN[0]].error, ProtocolError) and bench.links[0].gone


def test_a_doorbell_rung_endlessly_does_not_block_the_engine(bench: Bench) -> None:
    link = bench.links[0]
    for _ in range(200_000):
        link.bell.ring()
    with pytest.raises(RuntimeFailure, match="did not answer"):
        link.expect(MID, NUMBER, 0.02)


def test_a_worker_neither_holds_a_client_that_sleeps_nor_keeps_others_from_waking_it(bench: Bench) -> None:
    """A worker with the client's own eventfd could fill it, and have the next thread that rings wait."""
    alarm = Alarm()
    broken, good = bench.wakers
    broken.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            broken.send(bytes(1 << 16))
    broken.setblocking(True)
    for _ in range(3):
        alarm.ring()
        alarm.sleep(0.01, bench.links)
    broken.close()
    while bench.links[0].waker >= 0:
        alarm.sleep(0.01, bench.links)
    good.send(b"\0")
    alarm.sleep(1000, bench.links)
    alarm.ring()
    alarm.sleep(1000, bench.links)
    alarm.close()


def test_a_worker_that_wakes_in_vain_is_not_listened_to(bench: Bench) -> None:
    """Otherwise it has an engine all of whose sequences wait use as much processor time as it likes."""
    alarm, link = Alarm(), bench.links[0]

    def is_heard() -> bool:
        with suppress(BlockingIOError):
            bench.wakers[0].send(b"\0")
        alarm.sleep(0.0, bench.links)
        return not select.select([link.waker], [], [], 0)[0]

    assert sum(is_heard() for _ in range(1500)) == 1000
    bench.write(0, encode(Woken(WOKEN, 1, [GOOD[0]])))
    assert bench.live.take_woken(bench.links) == [] and not is_heard()
    bench.write(0, encode(Woken(WOKEN, 1, [BROKEN[0]])))
    assert bench.live.take_woken(bench.links) == [BROKEN[0]] and is_heard()
    alarm.close()


def test_a_flood_of_messages_ends_the_link(bench: Bench) -> None:
    ring = bench.links[0].segment.to_client
    bench.answer_well()
    for _ in range(5000):
        ring.try_write(b"\x93\x06\x01\xc2")
    step = bench.step()
    assert isinstance(step.wait_pre()[BROKEN[0]].error, RuntimeFailure)
    bench.check(step.wait())


@pytest.mark.parametrize("code", ["closed", "foreign_daemon", "supervisor_died", "worker_died"])
def test_an_error_about_the_runtime_is_not_believed(bench: Bench, code: str) -> None:
    """An engine may give up the runtime for it."""
    bench.answer_well()
    error = [code, "gone", {}]
    bench.write(0, encode(Pre(PRE, NUMBER, [[BROKEN[0], Verb.ERROR, error]])))
    bench.write(0, encode(Mid(MID, NUMBER, [[BROKEN[1], Verb.ERROR, error]], [])))
    step = bench.step()
    errors = [answer.error for answer in step.wait_pre().values()]
    result = step.wait()
    bench.check(result)
    errors += [result.mid[seq].error for seq in BROKEN if seq in result.mid]
    assert {type(error) for error in errors if error is not None} == {ProtocolError}
    bench.write(0, encode(Notice(NOTICE, 0, error)))
    with pytest.raises(ProtocolError):
        bench.links[0].take_message(MID, NUMBER + 1)
