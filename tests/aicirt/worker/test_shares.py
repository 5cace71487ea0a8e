"""Owners get their share of a step; time beyond it is subtracted from later steps."""

from __future__ import annotations

import time
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from aicirt.settings import WorkerSettings
from aicirt.worker.owners import Owner, Owners
from aicirt.worker.scheduling import StepShares, used_time

LONG = 1e9


def _owners(*names: str) -> tuple[Owners, list[Owner]]:
    """Returns owners with a sequence each."""
    owners = Owners(WorkerSettings(), Counter())
    found = [owners.get(name) for name in names]
    for owner in found:
        owner.add_sequence()
    return owners, found


def test_owner_next_to_others_has_time_up_to_its_share() -> None:
    owners, (greedy, modest) = _owners("greedy", "modest")
    shares = StepShares(owners, 5.0, LONG)
    assert shares.has_time(greedy)
    shares.charge(greedy, 4_999_999)
    assert shares.has_time(greedy)
    shares.charge(greedy, 1)
    assert not shares.has_time(greedy) and shares.has_time(modest)


def test_owner_shares_only_with_owners_that_have_sequences() -> None:
    owners, _ = _owners("only")
    another = owners.get("another")
    for _ in range(2):
        assert not StepShares(owners, 5.0, LONG).shared
        another.add_sequence()
        another.add_sequence()
        another.remove_sequence()
        assert StepShares(owners, 5.0, LONG).shared
        another.remove_sequence()
    assert not StepShares(owners, 5.0, LONG).shared


def test_step_has_a_deadline() -> None:
    owners, _ = _owners("only")
    now = time.monotonic_ns()
    assert now <= StepShares(owners, 5.0, 0.0).over_at < now + 10**12
    assert StepShares(owners, 5.0, LONG).over_at > now + 10**12


def test_used_time_is_wall_time_for_short_and_charged_time_for_long_calls() -> None:
    assert used_time(1000, 51_000, 0) == 50_000
    assert used_time(0, 500_000_000, 0) == 2_000_000, "the guest is not charged if the machine stood still"
    assert used_time(0, 8_000_000, 5_000_000) == 7_000_000
    assert used_time(0, 8_000_000, 7_500_000) == 8_000_000


def test_requests_without_an_owner_share_as_one() -> None:
    owners, _ = _owners("a", "b")
    shares = StepShares(owners, 1.0, LONG)
    shares.charge(None, 10**6)
    assert not shares.has_time(None)
    shares.leave_debts(owners)


@given(st.lists(st.integers(0, 30_000_000), min_size=1, max_size=60))
def test_owner_gets_no_more_than_its_share_over_many_steps(costs: list[int]) -> None:
    """A running call is not interrupted; time beyond the share is subtracted from later steps."""
    owners, (greedy, _other) = _owners("greedy", "other")
    used = 0
    for cost in costs:
        shares = StepShares(owners, 5.0, LONG)
        shares.take_debts(owners)
        if shares.has_time(greedy):
            shares.charge(greedy, cost)
            used += cost
        shares.leave_debts(owners)
    assert used <= 5_000_000 * len(costs) + max(costs)
    for _ in range(10):
        shares = StepShares(owners, 5.0, LONG)
        shares.take_debts(owners)
        shares.leave_debts(owners)
    assert not owners.in_debt, "steps in which the owner does nothing reduce its debt"
