from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aicirt.errors import VariableLimitError
from aicirt.settings import RequestLimits
from aicirt.worker.log import Log
from aicirt.worker.request import Request
from aicirt.worker.variables import Variables

LIMITS = RequestLimits(max_variables=4, max_variable_name=8, max_variable_bytes=64, max_suspended_steps=2)
NAMES = st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"toolongname"])
GUESSES = st.sampled_from([None, 0, 1, 2])


class VariablesModel(RuleBasedStateMachine):
    """Against a plain dictionary of (version, value)."""

    def __init__(self) -> None:
        super().__init__()
        self.variables = Variables(LIMITS)
        self.model: dict[bytes, tuple[int, bytes]] = {}

    @rule(name=NAMES, value=st.binary(max_size=40), append=st.booleans(), guess=GUESSES)
    def write(self, name: bytes, value: bytes, append: bool, guess: int | None) -> None:
        version, old = self.model.get(name, (0, b""))
        new = old + value if append else value
        fits = guess is None or guess == version
        after = {**self.model, name: (version + 1, new)}
        legal = (
            len(name) <= 8
            and len(after) <= 4
            and sum(len(n) + len(v) for n, (_, v) in after.items()) <= LIMITS.max_variable_bytes
        )
        write = self.variables.append if append else self.variables.set
        if fits and not legal:
            with pytest.raises(VariableLimitError):
                write(name, value, guess)
        else:
            assert write(name, value, guess) == (version + 1 if fits else 0)
            if fits:
                self.model = after

    @invariant()
    def same(self) -> None:
        for name in (b"a", b"b", b"c", b"d", b"e"):
            assert self.variables.get(name) == self.model.get(name, (0, b""))


TestVariables = VariablesModel.TestCase


@given(st.lists(st.binary(max_size=20), max_size=20))
def test_a_log_keeps_the_beginning(parts: list[bytes]) -> None:
    log = Log(50)
    for part in parts:
        log.write(part)
    whole = b"".join(parts)
    assert log.waiting == bool(whole)
    text = log.take()
    assert text.startswith(whole[:50].decode("utf-8", "replace"))
    assert (f"{len(whole) - 50} bytes of output dropped" in text) == (len(whole) > 50)
    assert not log.waiting and log.take() == ""


def test_idle_rounds_count_only_when_nothing_can_change() -> None:
    request = Request(LIMITS, seed=0)
    request.live = 2
    assert not request.round_over(2, 2)
    assert not request.round_over(2, 2)
    request.variables.set(b"x", b"1")  # somebody may be waiting for it
    assert not request.round_over(2, 2)
    assert not request.round_over(1, 1)  # the other one did not take part
    assert [request.round_over(2, 2) for _ in range(3)] == [False, False, True]
