"""The pace is that of the machine, at least 1 and bounded."""

from __future__ import annotations

import pytest

from aicirt.settings import WorkerConfig
from aicirt.system.pace import MAX_PACE, pace, paced


@pytest.mark.parametrize(("seconds", "expected"), [(0.01, 1), (0.3, 1), (3, 10), (99, MAX_PACE)])
def test_pace_is_relative_to_the_reference_machine_and_bounded(seconds: float, expected: float) -> None:
    assert paced(seconds) == expected


def test_pace_is_measured_once() -> None:
    assert 1 <= pace() <= MAX_PACE and pace() == pace()


def test_limits_on_work_allow_for_the_pace_and_others_do_not() -> None:
    usual, slow = WorkerConfig.with_overrides({}), WorkerConfig.with_overrides({"pre_ms": 3}, pace=2.5)
    assert (slow.pace, slow.limits.mid_ms, slow.limits.pre_ms) == (2.5, 50.0, 3.0)
    assert (slow.request.step_deadline_ms, slow.worker.silence_seconds) == (250, 25)
    assert slow.worker.warm_budget_ms == 2.5 * usual.worker.warm_budget_ms
    assert slow.limits.memory_bytes == usual.limits.memory_bytes
    assert slow.request.max_late_steps == usual.request.max_late_steps
    assert slow.daemon == usual.daemon
    assert WorkerConfig.from_json(slow.to_json()) == slow
