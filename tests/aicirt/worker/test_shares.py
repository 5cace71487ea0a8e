"""Owners get their share of a step, and pay later for what they have used beyond it."""

from __future__ import annotations

import time
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from aicirt.settings import WorkerSettings
from aicirt.worker.owners import Owner, Owners, StepShares, used_time

LONG = 1e9


def _owners(*names: str) -> tuple[Owners, list[Owner]]:
    owners = Owners(WorkerSettings(), Counter())
    return owners, [owners.get(name) for name in names]


def test_an_owner_beside_others_has_its_share() -> None:
    owners, (greedy, modest) = _owners("greedy", "modest")
    shares = StepShares(owners, 5.0, LONG)
    assert shares.has_time(greedy)
    shares.charge(greedy, 4_999_999)
    assert shares.has_time(greedy)
    shares.charge(greedy, 1)
    assert not shares.has_time(greedy) and shares.has_time(modest)


def test_an_owner_alone_does_not_share() -> None:
    owners, _ = _owners("only")
    assert not StepShares(owners, 5.0, LONG).shared
    owners.get("another")
    assert not StepShares(owners, 5.0, LONG).shared, "it has nothing here"


def test_a_step_is_over_at_some_time() -> None:
    owners, _ = _owners("only")
    now = time.monotonic_ns()
    assert now <= StepShares(owners, 5.0, 0.0).over_at < now + 10**12
    assert StepShares(owners, 5.0, LONG).over_at > now + 10**12


def test_short_calls_cost_what_the_clock_says_and_long_ones_what_they_were_charged() -> None:
    assert used_time(1000, 51_000, 0) == 50_000
    assert used_time(0, 500_000_000, 0) == 2_000_000, "a machine that stood still is not the guest's"
    assert used_time(0, 8_000_000, 5_000_000) == 7_000_000
    assert used_time(0, 8_000_000, 7_500_000) == 8_000_000


def test_requests_without_an_owner_share_as_one() -> None:
    owners, _ = _owners("a", "b")
    shares = StepShares(owners, 1.0, LONG)
    shares.charge(None, 10**6)
    assert not shares.has_time(None)
    shares.leave_debts(owners)


@given(st.lists(st.integers(0, 30_000_000), min_size=1, max_size=60))
def test_over_many_steps_an_owner_gets_no_more_than_its_share(wishes: list[int]) -> None:
    """A call that has begun is not interrupted; what it used beyond the share comes off later steps."""
    owners, (greedy, _other) = _owners("greedy", "other")
    used = 0
    for wish in wishes:
        shares = StepShares(owners, 5.0, LONG)
        shares.take_debts(owners)
        if shares.has_time(greedy):
            shares.charge(greedy, wish)
            used += wish
        shares.leave_debts(owners)
    assert used <= 5_000_000 * len(wishes) + max(wishes)
    for _ in range(10):
        shares = StepShares(owners, 5.0, LONG)
        shares.take_debts(owners)
        shares.leave_debts(owners)
    assert not owners.in_debt, "debts are paid off by steps in which it does nothing"
