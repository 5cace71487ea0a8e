"""Accounting of the variables and logs that an owner's requests keep in a worker."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicirt.contract.errors import OwnerLimitError
from aicirt.settings import RequestLimits, WorkerSettings
from aicirt.worker.hostapi import Log
from aicirt.worker.owners import Owner, Owners, RequestState

SETTINGS = WorkerSettings(owner_variable_bytes=100, owner_log_bytes=50)
WRITES = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([b"a", b"b"]), st.binary(max_size=60), st.booleans())
)


@given(WRITES)
def test_variable_bytes_equal_the_stored_names_and_values(
    writes: list[tuple[int, bytes, bytes, bool]],
) -> None:
    owner = Owner("o", SETTINGS, Counter(), set())
    requests = [RequestState(RequestLimits(), owner) for _ in range(3)]
    for number, name, value, append in writes:
        variables = requests[number].variables
        before = {key: variables.get(key) for key in (b"a", b"b")}
        try:
            (variables.append if append else variables.set)(name, value)
        except OwnerLimitError:
            assert {key: variables.get(key) for key in (b"a", b"b")} == before
        stored = [(r.variables.get(n), n) for r in requests for n in (b"a", b"b")]
        assert owner.variable_bytes == sum(len(v) + len(n) for (version, v), n in stored if version) <= 100
    for request in requests:
        request.left(by_engine=False)
    assert owner.variable_bytes == 0


@given(st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=30))))
def test_log_bytes_equal_the_pending_output(parts: list[tuple[int, bytes]]) -> None:
    counters: Counter[str] = Counter()
    owner = Owner("o", SETTINGS, counters, set())
    logs = [Log(40, owner) for _ in range(3)]
    waiting = [b""] * 3
    for number, data in parts:
        room = min(50 - sum(map(len, waiting)), 40 - len(waiting[number]))
        logs[number].add_output(data)
        waiting[number] += data[:room]
        assert owner.log_bytes == sum(map(len, waiting))
    dropped = ["dropped" in log.take_text() for log in logs]
    assert owner.log_bytes == 0 and counters["log_dropped"] == sum(dropped)


def test_message_about_dropped_output_names_the_limit() -> None:
    owner = Owner("o", SETTINGS, Counter(), set())
    one, two = Log(40, owner), Log(40, owner)
    one.add_output(b"x" * 41)
    two.add_output(b"y" * 11)
    assert one.take_text().endswith("\n[1 byte of output dropped: over the limit of 40 per step]\n")
    assert two.take_text().endswith("over the limit of 50 for all waiting output of owner 'o']\n")


def test_owner_is_forgotten_with_its_last_request() -> None:
    owners = Owners(SETTINGS, Counter())
    owner = owners.get("a")
    assert owners.get("a") is owner and owners.get("b") is not owner
    owner.keep_variables(10)
    with pytest.raises(OwnerLimitError, match=r"would take 101 bytes; the limit is 100 \(owner_variable"):
        owner.keep_variables(91)
    del owner
    assert owners.get("a").variable_bytes == 0


def test_short_pieces_of_a_log_take_the_memory_that_they_count_for() -> None:
    log = Log(1 << 16)
    tracemalloc.start()
    try:
        for number in range(1 << 15):
            log.add_output(bytes((number & 0xFF, 65)))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 << 16
    assert len(log.take_text()) >= 1 << 15 and not log.waiting
