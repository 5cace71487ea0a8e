"""The text of a sequence for plain clients: stop strings, taking back, forks of others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyaici.engines.events import BackTracked, Event, Finished, Started, TokensAppended
from pyaici.engines.request import FinishReason, Origin
from pyaici.server.speech import Said, Speech


def _tell(speech: Speech, steps: list[list[Event]]) -> tuple[str, list[Said]]:
    """What a client has put together, and what it was told."""
    text, told = "", []
    for events in steps:
        said = speech.follow(events)
        told.append(said)
        text = text[: len(text) - said.retracted] + said.text
        if said.finish is not None:
            break
    return text, told


def _append(text: str, seq: int = 0) -> TokensAppended:
    return TokensAppended(0, seq, [1], text, Origin.SAMPLED)


_START = [Started(0, 0, [5], "prompt")]
_END = [Finished(0, 0, FinishReason.EOS, None)]


@given(
    st.lists(st.text("abc", max_size=4), max_size=12),
    st.lists(st.text("abc", min_size=1, max_size=3), max_size=3),
)
def test_a_text_ends_where_its_first_stop_string_ends_first(pieces: list[str], stops: list[str]) -> None:
    whole = "".join(pieces)
    ends = [(whole.find(stop) + len(stop), -len(stop)) for stop in stops if stop in whole]
    steps: list[list[Event]] = [_START, *([_append(piece)] for piece in pieces), list(_END)]
    text, told = _tell(Speech(stops), steps)
    if not ends:
        assert text == whole and told[-1].finish == "stop" and told[-1].stop is None
    else:
        end, minus_length = min(ends)
        assert text == whole[: end + minus_length] and told[-1].stop == whole[end + minus_length : end]
    assert all(said.retracted == 0 for said in told)


@given(st.lists(st.text("ab<", max_size=3), max_size=10))
def test_no_more_is_held_back_than_a_stop_string_may_begin_with(pieces: list[str]) -> None:
    speech = Speech(["<end>"])
    speech.follow(_START)
    so_far = said = ""
    for piece in pieces:
        so_far += piece
        said += speech.follow([_append(piece)]).text
        assert said == (so_far[:-1] if so_far.endswith("<") else so_far)


def test_what_is_taken_back_is_retracted() -> None:
    speech = Speech()
    steps: list[list[Event]] = [
        _START,
        [_append("one ")],
        [_append("two")],
        [BackTracked(0, 0, 1, "two"), _append("three")],  # they have their first letter in common
        _END,
    ]
    text, told = _tell(speech, steps)
    assert text == "one three"
    assert [said.retracted for said in told] == [0, 0, 0, 2, 0]
    assert speech.tokens == 2


def test_what_is_taken_back_and_written_again_is_not_told_twice() -> None:
    speech = Speech()
    speech.follow(_START)
    assert speech.follow([_append("abc")]).text == "abc"
    said = speech.follow([BackTracked(0, 0, 1, "abc"), _append("abcd")])
    assert (said.retracted, said.text) == (0, "d")


def test_other_sequences_are_not_followed() -> None:
    speech = Speech()
    speech.follow(_START)
    assert speech.follow([_append("x"), _append("y", seq=1)]).text == "x"
    assert speech.follow([Finished(0, 1, FinishReason.STOP, None)]).finish is None
    assert speech.follow([Finished(0, 0, FinishReason.LENGTH, None)]).finish == "length"


def test_a_stop_string_that_is_taken_back_does_not_count() -> None:
    speech = Speech(["!!"])
    speech.follow(_START)
    assert speech.follow([_append("a!")]).text == "a"
    said = speech.follow([BackTracked(0, 0, 1, "a!"), _append("!")])
    assert said.finish is None
    assert speech.follow([_append("b")]).text == "!b"
