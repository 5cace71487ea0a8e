from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aicirt.contract.errors import AiciError, VariableLimitError, counted
from aicirt.settings import RequestLimits
from aicirt.worker.hostapi import Log
from aicirt.worker.owners import RequestState, Variables, Written

LIMITS = RequestLimits(
    max_variables=4, max_variable_name=8, max_variable_bytes=64, max_suspended_steps=2, max_idle_steps=5
)
NAMES = st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"toolongname"])
GUESSES = st.sampled_from([None, 0, 1, 2])


class VariablesModel(RuleBasedStateMachine):
    """Compares variables with a plain dictionary of (version, value)."""

    def __init__(self) -> None:
        super().__init__()
        self.written: Written = {}
        self.variables = Variables(LIMITS, None, self.written)
        self.model: dict[bytes, tuple[int, bytes]] = {}
        self.unreported: dict[bytes, None] = {}

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
                self.unreported[name] = None

    @rule()
    def tell(self) -> None:
        assert self.variables.take_unreported() == [[name, *self.model[name]] for name in self.unreported]
        self.unreported = {}

    @invariant()
    def same(self) -> None:
        for name in (b"a", b"b", b"c", b"d", b"e"):
            assert self.variables.get(name) == self.model.get(name, (0, b""))
        assert list(self.written) == ([self.variables] if self.unreported else [])


TestVariables = VariablesModel.TestCase


@given(st.lists(st.binary(max_size=20), max_size=20))
def test_log_keeps_the_beginning(parts: list[bytes]) -> None:
    log = Log(50)
    for part in parts:
        log.add_output(part)
    whole = b"".join(parts)
    assert log.waiting == bool(whole)
    text = log.take_text()
    assert text.startswith(whole[:50].decode("utf-8", "replace"))
    dropped = len(whole) - 50
    assert (f"{counted(dropped, 'byte')} of output dropped" in text) == (dropped > 0)
    assert not log.waiting and log.take_text() == ""


def test_variables_of_the_library_are_not_reported() -> None:
    variables = Variables(RequestLimits())
    variables.set(b"aici.gather.1.0", b"x")
    variables.set(b"mine", b"y")
    assert variables.get(b"aici.gather.1.0") == (1, b"x")
    assert variables.take_unreported() == [[b"mine", 1, b"y"]]


def test_deadlock_of_one_sequence_says_what_usually_causes_it() -> None:
    request = RequestState(LIMITS)
    error = [request.round_over(1, 0, False) for _ in range(3)][-1]
    assert error is not None and error.message == (
        "the only sequence of the request stayed suspended for 2 rounds and wrote no variable: "
        "does it wait for a variable that no fork writes?"
    )


def kinds(*rounds: AiciError | None) -> list[str | None]:
    return [error and error.code for error in rounds]


def test_suspended_rounds_count_only_when_nothing_can_change() -> None:
    request = RequestState(LIMITS)
    request.live = 2
    assert kinds(*(request.round_over(2, 0, False) for _ in range(2))) == [None] * 2
    request.variables.set(b"x", b"1")  # another sequence may be waiting for it
    assert kinds(request.round_over(2, 0, False)) == [None]
    assert kinds(request.round_over(1, 0, False)) == [None]  # the other sequence did not take part
    assert kinds(*(request.round_over(2, 0, False) for _ in range(3))) == [None, None, "deadlock"]


def test_idle_rounds_count_though_variables_are_written() -> None:
    request = RequestState(LIMITS)
    request.live = 2

    def write() -> AiciError | None:
        request.variables.set(b"x", b"1")
        return request.round_over(2, 0, False)

    assert kinds(*(write() for _ in range(6))) == [None] * 5 + ["livelock"]
    # with tokens, or with a sequence that did not take part
    for harmless in ((1, 1, True), (2, 0, True), (1, 0, False)):
        assert kinds(request.round_over(*harmless)) == [None]
        assert kinds(*(request.round_over(1, 1, False) for _ in range(6))) == [None] * 5 + ["livelock"]
