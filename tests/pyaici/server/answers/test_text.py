"""The text of a sequence for clients without forks: stop strings, backtracking, other sequences."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicirt.contract.errors import MemoryLimitError
from pyaici.engines.engine import Backtracked, Event, Finished, FinishReason, Origin, Started, TokensAppended
from pyaici.engines.record import TextTrail
from pyaici.server.answers.calls import Call
from pyaici.server.answers.formats import CallFormat
from pyaici.server.answers.plan import AnswerPlan, Marks, Start
from pyaici.server.answers.reader import Event as AnswerEvent
from pyaici.server.answers.reader import Reasoning, Text, open_reader
from pyaici.server.answers.stops import Stop, StopFinder
from pyaici.server.answers.text import AnswerText, TextDelta, TextToken
from pyaici.server.http.errors import ApiError
from tests.pyaici.server.answers.events import joined

#: tokens by id: two letters, the two halves of é, a special token, and a longer token
_BYTES = [b"a", b"b", b"\xc3", b"\xa9", b"", b"ab!"]


def _answer(stop: list[str] | None = None, plan: AnswerPlan | None = None) -> AnswerText:
    """Returns an answer; its vocabulary matters only for events with several tokens."""
    reader = StopFinder(stop or []) if plan is None else open_reader(plan)
    return AnswerText(_BYTES * 50, reader)


def _follow(answer: AnswerText, steps: list[list[Event]]) -> tuple[str, list[TextDelta]]:
    """Returns the text that a client assembles, and the deltas that it receives."""
    text, deltas = "", []
    for events in steps:
        delta = answer.follow(events)
        deltas.append(delta)
        text = text[: len(text) - delta.backtrack] + delta.text
        if delta.finish is not None:
            break
    return text, deltas


def _tokens(deltas: list[TextDelta]) -> list[TextToken]:
    """Returns the tokens that a client has at the end."""
    tokens: list[TextToken] = []
    for delta in deltas:
        assert delta.backtrack_tokens <= len(tokens)
        tokens = tokens[: len(tokens) - delta.backtrack_tokens] + delta.tokens
    return tokens


def _append(text: str, seq: int = 0, token: int = 1) -> TokensAppended:
    return TokensAppended(0, seq, [token], text, Origin.SAMPLED)


_START = [Started(0, 0, [5], "prompt")]
_END = [Finished(0, 0, FinishReason.EOS, None)]


@given(
    st.lists(st.text("abc", max_size=4), max_size=12),
    st.lists(st.text("abc", min_size=1, max_size=3), max_size=3),
)
def test_text_ends_at_the_stop_string_that_ends_first(pieces: list[str], stops: list[str]) -> None:
    whole = "".join(pieces)
    ends = [(whole.find(stop) + len(stop), -len(stop)) for stop in stops if stop in whole]
    steps: list[list[Event]] = [_START, *([_append(piece)] for piece in pieces), list(_END)]
    text, deltas = _follow(_answer(stops), steps)
    if not ends:
        assert text == whole and deltas[-1].finish == "stop" and deltas[-1].stop is None
    else:
        end, minus_length = min(ends)
        assert text == whole[: end + minus_length] and deltas[-1].stop == whole[end + minus_length : end]
    assert all(delta.backtrack == 0 for delta in deltas)


@given(st.lists(st.text("ab<", max_size=3), max_size=10))
def test_only_possible_beginnings_of_stop_strings_are_held_back(pieces: list[str]) -> None:
    answer = _answer(["<end>"])
    answer.follow(_START)
    so_far = sent = ""
    for piece in pieces:
        so_far += piece
        sent += answer.follow([_append(piece)]).text
        assert sent == (so_far[:-1] if so_far.endswith("<") else so_far)


def test_backtracked_text_is_retracted() -> None:
    answer = _answer()
    steps: list[list[Event]] = [
        _START,
        [_append("one ")],
        [_append("two")],
        [Backtracked(0, 0, 1, "two"), _append("three")],  # both begin with the same letter
        _END,
    ]
    text, deltas = _follow(answer, steps)
    assert text == "one three"
    assert [delta.backtrack for delta in deltas] == [0, 0, 0, 2, 0]
    assert sum(delta.grown for delta in deltas) == 2
    assert [token.start for token in _tokens(deltas)] == [0, 4]


def test_text_that_is_written_again_is_not_sent_twice() -> None:
    answer = _answer()
    answer.follow(_START)
    assert answer.follow([_append("abc")]).text == "abc"
    delta = answer.follow([Backtracked(0, 0, 1, "abc"), _append("abcd")])
    assert (delta.backtrack, delta.text) == (0, "d")
    assert (delta.backtrack_tokens, len(delta.tokens), delta.grown) == (1, 1, 0)


def test_other_sequences_are_ignored() -> None:
    answer = _answer()
    answer.follow(_START)
    assert answer.follow([_append("x"), _append("y", seq=1)]).text == "x"
    assert answer.follow([Finished(0, 1, FinishReason.STOP, None)]).finish is None
    assert answer.follow([Finished(0, 0, FinishReason.LENGTH, None)]).finish == "length"


def test_backtracked_stop_string_does_not_count() -> None:
    answer = _answer(["!!"])
    answer.follow(_START)
    assert answer.follow([_append("a!")]).text == "a"
    delta = answer.follow([Backtracked(0, 0, 1, "a!"), _append("!")])
    assert delta.finish is None
    assert answer.follow([_append("b")]).text == "!b"


def test_tokens_backtracked_while_held_back_are_never_sent() -> None:
    answer = _answer(["!!"])
    steps: list[list[Event]] = [
        _START,
        [_append("a", token=10)],
        [_append("!", token=11)],
        [Backtracked(0, 0, 1, "!")],
        [_append("", token=2)],  # half a character
        [Backtracked(0, 0, 1, "")],
        [_append("b", token=13)],
        _END,
    ]
    text, deltas = _follow(answer, steps)
    assert text == "ab" and [token.token for token in _tokens(deltas)] == [10, 13]
    assert not any(delta.backtrack_tokens for delta in deltas)
    assert [delta.grown for delta in deltas] == [0, 1, 1, -1, 1, -1, 1, 0]


def test_tokens_of_a_stop_string_are_counted_but_not_sent() -> None:
    steps: list[list[Event]] = [
        _START,
        [_append("one<", token=10)],
        [_append("/", token=11)],
        [_append("s>", token=12)],
    ]
    text, deltas = _follow(_answer(["</s>"]), steps)
    assert text == "one" and [token.token for token in _tokens(deltas)] == [10]
    assert sum(delta.grown for delta in deltas) == 3


def test_tokens_of_one_event_have_separate_offsets() -> None:
    event = TokensAppended(0, 0, [0, 2, 3, 4, 5, 0, 1], "aéab!ab", Origin.FORCED)
    _, deltas = _follow(_answer(), [_START, [event], _END])
    assert [(token.token, token.start) for token in _tokens(deltas)] == [
        *((0, 0), (2, 1), (3, 1), (4, 2), (5, 2), (0, 5), (1, 6))
    ]
    _, deltas = _follow(_answer(["!a"]), [_START, [event]])
    assert [token.token for token in _tokens(deltas)] == [0, 2, 3, 4, 5]
    assert sum(delta.grown for delta in deltas) == 6  # the last token comes after the stop string


def test_character_that_begins_in_the_prompt_has_its_token() -> None:
    steps: list[list[Event]] = [
        [Started(0, 0, [5, 2], "ab!")],
        [TokensAppended(0, 0, [3, 0], "éa", Origin.FORCED)],
        _END,
    ]
    _, deltas = _follow(_answer(), steps)
    assert [(token.token, token.start) for token in _tokens(deltas)] == [(3, 0), (0, 1)]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.lists(st.integers(0, len(_BYTES) - 1), max_size=3)),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([[], ["!"], ["ba", "a!"], ["é"], ["abab"]]),
)
def test_deltas_add_up_to_the_final_text_and_tokens(
    steps: list[tuple[int, list[int]]], stops: list[str]
) -> None:
    """After any backtracking and appending, the client has the tokens and the text of the whole answer."""
    trail, tokens, shown = TextTrail(_BYTES), list[int](), ""
    events: list[list[Event]] = [list(_START)]
    for count, more in steps:
        count = min(count, len(tokens))
        del tokens[len(tokens) - count :]
        removed, added = trail.backtrack(count), trail.append(more)
        shown = shown[: len(shown) - len(removed)] + added
        tokens += more
        step: list[Event] = [Backtracked(0, 0, count, removed)] if count else []
        step += [TokensAppended(0, 0, more, added, Origin.FORCED)] if more else []
        events.append(step)
    text, deltas = _follow(_answer(stops), [*events, list(_END)])
    if deltas[-1].stop is None:
        assert [token.token for token in _tokens(deltas)] == tokens and text == shown
        assert sum(delta.grown for delta in deltas) == len(tokens)
    assert all(token.start < len(text) or deltas[-1].stop is None for token in _tokens(deltas))


CALL, FOUND = '{"name": "f.", "arguments": "\\n\\n <al"}', Call("f.", "\n\n <al")
DOT, LINES = Stop("."), Stop("\n\n")


def _found(plan: AnswerPlan, text: str) -> list[AnswerEvent]:
    """Returns what the plan's reader finds in a text, which does not depend on how it is cut."""
    results = []
    for pieces in ([text], list(text)):
        deltas = _follow(_answer(plan=plan), [_START, *([_append(piece)] for piece in pieces), list(_END)])[1]
        results.append(joined(event for delta in deltas for event in delta.events))
    assert results[0] == results[1], text
    return results[0]


def test_stop_strings_do_not_count_in_reasoning_and_calls() -> None:
    stop = (".", "\n\n", "\n\nU:")
    plan = AnswerPlan(Start(Marks("<t>", "</t>")), CallFormat("brackets", "[", "]"), stop=stop)
    for text, expected in (
        ("<t>a.b</t>c.d", [Reasoning("a.b"), Text("c"), DOT]),
        ("a<t>b.c</t>", [Text("a<t>b"), DOT]),  # not at the beginning
        (f"a[{CALL}]d.e", [Text("a"), FOUND, Text("d"), DOT]),
        (f"[{CALL}][{CALL}] x.", [FOUND, FOUND, Text("x"), DOT]),
        ("a[b.c", [Text("a[b"), DOT]),
        (" <t", [Text(" <t")]),
        (" <t.", [Text(" <t"), DOT]),
        ("<t>a</t>\n\nb\n\nc", [Reasoning("a"), Text("b"), LINES]),  # not in blanks after such a part
        (f"[{CALL}]\n\n[{CALL}]\n\n", [FOUND, FOUND]),
        (f"a\n\n[{CALL}]", [Text("a"), LINES]),
        (f"[{CALL}]\n\nU:b", [FOUND, Stop("\n\nU:")]),
    ):
        assert _found(plan, text) == expected, text
    opened = AnswerPlan(Start(Marks("<t>", "</t>"), open=True), stop=stop)
    assert _found(opened, "a.b</t>c.d") == [Reasoning("a.b"), Text("c"), DOT]
    whole = AnswerPlan(Start(Marks("<t>", "</t>")), CallFormat("whole", "", ""), stop=stop)
    for text, expected in (
        (CALL, [FOUND]),
        (f"<t>.</t> {CALL}", [Reasoning("."), FOUND]),
        ("a{.", [Text("a{"), DOT]),
    ):
        assert _found(whole, text) == expected, text


def test_marks_before_calls_contain_no_stop_string() -> None:
    for stop in (("<", "al"), ("<", "al", "<call")):
        plan = AnswerPlan(form=CallFormat("marked", "<call>", "</call>"), stop=stop)
        for text, expected in (
            (f"<call>{CALL}</call>b<c", [FOUND, Text("b"), Stop("<")]),
            (f"x<call>{CALL}</call>", [Text("x"), FOUND]),
            ("x<calm>", [Text("x"), Stop("<")]),
            ("x <ca", [Text("x "), Stop("<")]),
            (f"x<<call>{CALL}", [Text("x"), Stop("<")]),
            ("al", [Stop("al")]),
            (f"<call>{CALL}</call> all", [FOUND, Stop("al")]),
            ("l<call>x", [Text("l"), Stop("<")]),  # no call
        ):
            assert _found(plan, text) == expected, text


def test_reasoning_can_be_backtracked() -> None:
    answer = _answer(plan=AnswerPlan(Start(Marks("<t>", "</t>")), stop=(".",)))
    steps: list[list[Event]] = [
        _START,
        [_append("<t>")],
        [_append("x.")],
        [Backtracked(0, 0, 2, "<t>x.")],
        [_append("y")],
        [_append(".")],
    ]
    text, deltas = _follow(answer, steps)
    assert text == "y" and deltas[-1].stop == "."
    assert [delta.reread for delta in deltas] == [False, False, False, True, False, False]


def test_memory_of_stop_strings_is_bounded_by_their_length() -> None:
    """A request may have 16 stop strings of 1024 characters, and 32 answers."""
    stops = [chr(ord("a") + number) * 1023 + "!" for number in range(16)]
    answer = _answer(stops)  # fills caches of compiled patterns
    tracemalloc.start()
    try:
        made = [_answer(stops) for _ in range(32)]
        assert tracemalloc.get_traced_memory()[0] < 32 * sum(map(len, stops))
    finally:
        tracemalloc.stop()
    for one in (answer, made[-1]):
        assert (
            _follow(one, [_START, [_append("x" + stops[3][:-1])], [_append("a")]])[0] == "x" + stops[3][:-1]
        )


def test_error_names_the_field_with_the_controller() -> None:
    answer = AnswerText([], StopFinder(), "script")
    with pytest.raises(ApiError, match="out of memory") as caught:
        answer.follow([*_START, Finished(0, 0, FinishReason.ERROR, MemoryLimitError("out of memory"))])
    assert (caught.value.code, caught.value.param) == ("memory_limit", "script")
