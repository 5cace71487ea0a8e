"""The text of a sequence for plain clients: stop strings, taking back, forks of others."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from pyaici.engines.engine import BackTracked, Event, Finished, FinishReason, Origin, Started, TokensAppended
from pyaici.engines.record import TextTrail
from pyaici.server.apis.stops import Protected
from pyaici.server.apis.text import AnswerText as _Speech
from pyaici.server.apis.text import TextDelta, TextToken

#: some tokens, by their ids: a letter each, two that are half an é, a special one, and a longer one
_BYTES = [b"a", b"b", b"\xc3", b"\xa9", b"", b"ab!"]


def AnswerText(stop: list[str] | None = None, protected: Protected | None = None) -> _Speech:
    """Of a vocabulary that matters only where several tokens come at once."""
    return _Speech(lambda token: _BYTES[token % len(_BYTES)], stop or [], protected)


def _tell(speech: _Speech, steps: list[list[Event]]) -> tuple[str, list[TextDelta]]:
    """What a client has put together, and what it was told."""
    text, told = "", []
    for events in steps:
        said = speech.follow(events)
        told.append(said)
        text = text[: len(text) - said.retracted] + said.text
        if said.finish is not None:
            break
    return text, told


def _tokens(told: list[TextDelta]) -> list[TextToken]:
    """Those that a client counts."""
    tokens: list[TextToken] = []
    for said in told:
        assert said.retracted_tokens <= len(tokens)
        tokens = tokens[: len(tokens) - said.retracted_tokens] + said.tokens
    return tokens


def _append(text: str, seq: int = 0, token: int = 1) -> TokensAppended:
    return TokensAppended(0, seq, [token], text, Origin.SAMPLED)


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
    text, told = _tell(AnswerText(stops), steps)
    if not ends:
        assert text == whole and told[-1].finish == "stop" and told[-1].stop is None
    else:
        end, minus_length = min(ends)
        assert text == whole[: end + minus_length] and told[-1].stop == whole[end + minus_length : end]
    assert all(said.retracted == 0 for said in told)


@given(st.lists(st.text("ab<", max_size=3), max_size=10))
def test_no_more_is_held_back_than_a_stop_string_may_begin_with(pieces: list[str]) -> None:
    speech = AnswerText(["<end>"])
    speech.follow(_START)
    so_far = said = ""
    for piece in pieces:
        so_far += piece
        said += speech.follow([_append(piece)]).text
        assert said == (so_far[:-1] if so_far.endswith("<") else so_far)


def test_what_is_taken_back_is_retracted() -> None:
    speech = AnswerText()
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
    assert sum(said.grown for said in told) == 2
    assert [token.start for token in _tokens(told)] == [0, 4]


def test_what_is_taken_back_and_written_again_is_not_told_twice() -> None:
    speech = AnswerText()
    speech.follow(_START)
    assert speech.follow([_append("abc")]).text == "abc"
    said = speech.follow([BackTracked(0, 0, 1, "abc"), _append("abcd")])
    assert (said.retracted, said.text) == (0, "d")
    assert (said.retracted_tokens, len(said.tokens), said.grown) == (1, 1, 0)


def test_other_sequences_are_not_followed() -> None:
    speech = AnswerText()
    speech.follow(_START)
    assert speech.follow([_append("x"), _append("y", seq=1)]).text == "x"
    assert speech.follow([Finished(0, 1, FinishReason.STOP, None)]).finish is None
    assert speech.follow([Finished(0, 0, FinishReason.LENGTH, None)]).finish == "length"


def test_a_stop_string_that_is_taken_back_does_not_count() -> None:
    speech = AnswerText(["!!"])
    speech.follow(_START)
    assert speech.follow([_append("a!")]).text == "a"
    said = speech.follow([BackTracked(0, 0, 1, "a!"), _append("!")])
    assert said.finish is None
    assert speech.follow([_append("b")]).text == "!b"


def test_tokens_that_are_taken_back_while_their_text_is_held_back_are_never_told() -> None:
    speech = AnswerText(["!!"])
    steps: list[list[Event]] = [
        _START,
        [_append("a", token=10)],
        [_append("!", token=11)],
        [BackTracked(0, 0, 1, "!")],
        [_append("", token=2)],  # half a character
        [BackTracked(0, 0, 1, "")],
        [_append("b", token=13)],
        _END,
    ]
    text, told = _tell(speech, steps)
    assert text == "ab" and [token.token for token in _tokens(told)] == [10, 13]
    assert not any(said.retracted_tokens for said in told)
    assert [said.grown for said in told] == [0, 1, 1, -1, 1, -1, 1, 0]


def test_the_tokens_of_a_stop_string_are_counted_and_not_told() -> None:
    steps: list[list[Event]] = [
        _START,
        [_append("one<", token=10)],
        [_append("/", token=11)],
        [_append("s>", token=12)],
    ]
    text, told = _tell(AnswerText(["</s>"]), steps)
    assert text == "one" and [token.token for token in _tokens(told)] == [10]
    assert sum(said.grown for said in told) == 3


def test_tokens_that_came_at_once_have_places_of_their_own() -> None:
    event = TokensAppended(0, 0, [0, 2, 3, 4, 5, 0, 1], "aéab!ab", Origin.FORCED)
    _, told = _tell(AnswerText(), [_START, [event], _END])
    assert [(token.token, token.start) for token in _tokens(told)] == [
        *((0, 0), (2, 1), (3, 1), (4, 2), (5, 2), (0, 5), (1, 6))
    ]
    _, told = _tell(AnswerText(["!a"]), [_START, [event]])
    assert [token.token for token in _tokens(told)] == [0, 2, 3, 4, 5]
    assert sum(said.grown for said in told) == 6  # the last one came behind the stop string


def test_a_character_that_the_prompt_begins_has_its_token() -> None:
    steps: list[list[Event]] = [
        [Started(0, 0, [5, 2], "ab!")],
        [TokensAppended(0, 0, [3, 0], "éa", Origin.FORCED)],
        _END,
    ]
    _, told = _tell(AnswerText(), steps)
    assert [(token.token, token.start) for token in _tokens(told)] == [(3, 0), (0, 1)]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.lists(st.integers(0, len(_BYTES) - 1), max_size=3)),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([[], ["!"], ["ba", "a!"], ["é"], ["abab"]]),
)
def test_what_is_told_is_what_is_there_in_the_end(
    steps: list[tuple[int, list[int]]], stops: list[str]
) -> None:
    """Whatever a controller takes back and appends, a stream ends with the tokens and the text of a whole."""
    trail, tokens, shown = TextTrail(_BYTES.__getitem__), list[int](), ""
    events: list[list[Event]] = [list(_START)]
    for count, more in steps:
        count = min(count, len(tokens))
        del tokens[len(tokens) - count :]
        removed, added = trail.backtrack(count), trail.append(more)
        shown = shown[: len(shown) - len(removed)] + added
        tokens += more
        step: list[Event] = [BackTracked(0, 0, count, removed)] if count else []
        step += [TokensAppended(0, 0, more, added, Origin.FORCED)] if more else []
        events.append(step)
    text, told = _tell(AnswerText(stops), [*events, list(_END)])
    if told[-1].stop is None:
        assert [token.token for token in _tokens(told)] == tokens and text == shown
        assert sum(said.grown for said in told) == len(tokens)
    assert all(token.start < len(text) or told[-1].stop is None for token in _tokens(told))


def test_stop_strings_do_not_count_in_protected_parts() -> None:
    protected = Protected((("<t>", "</t>"),), inner=("[", "]"))
    for text, expected in (
        ("<t>a.b</t>c.d", "<t>a.b</t>c"),
        ("a<t>b.c</t>", "a<t>b"),  # no such part: it is not at the beginning
        ("a[b.c]d.e", "a[b.c]d"),
        ("[.][.] x.", "[.][.] x"),
        ("a[b.c", "a[b.c"),
        (" <t", " <t"),
        (" <t.", " <t"),
        ("<t>a</t>\n\nb\n\nc", "<t>a</t>\n\nb"),  # blanks behind such a part are not said
        ("[a]\n\n[b]\n\n", "[a]\n\n[b]\n\n"),
        ("a\n\n[b]", "a"),
        ("[a]\n\nU:b", "[a]"),
    ):
        steps: list[list[Event]] = [_START, *([_append(char)] for char in text), list(_END)]
        assert _tell(AnswerText([".", "\n\n", "\n\nU:"], protected), steps)[0] == expected, text
    steps = [_START, *([_append(char)] for char in "a.b</t>c.d"), list(_END)]
    opened = Protected((("<t>", "</t>"),), open=True)
    assert _tell(AnswerText(["."], opened), steps)[0] == "a.b</t>c"
    whole = Protected((("<t>", "</t>"), ("{", "")))
    for text, expected in (("{a.b", "{a.b"), ("<t>.</t> {.}", "<t>.</t> {.}"), ("a{.", "a{")):
        steps = [_START, *([_append(char)] for char in text), list(_END)]
        assert _tell(AnswerText(["."], whole), steps)[0] == expected, text


def test_no_stop_string_is_in_the_mark_that_begins_a_protected_part() -> None:
    protected = Protected(inner=("<call>", "</call>"))
    for text, expected in (
        ("<call>a<</call>b<c", "<call>a<</call>b"),
        ("x<call>a</call>", "x<call>a</call>"),
        ("x<calm>", "x"),
        ("x <ca", "x "),
        ("x<<call>a", "x"),
        ("al", ""),
        ("<call>1</call> all", "<call>1</call> "),
        ("l<call>x", "l<call>x"),
    ):
        for stops in (["<", "al"], ["<", "al", "<call"]):
            for pieces in ([text], list(text)):
                steps: list[list[Event]] = [_START, *([_append(piece)] for piece in pieces), list(_END)]
                assert _tell(AnswerText(stops, protected), steps)[0] == expected, text


def test_a_protected_part_may_be_taken_back() -> None:
    speech = AnswerText(["."], Protected((("<t>", "</t>"),)))
    steps: list[list[Event]] = [
        _START,
        [_append("<t>")],
        [_append("x.")],
        [BackTracked(0, 0, 2, "<t>x.")],
        [_append("y")],
        [_append(".")],
    ]
    text, told = _tell(speech, steps)
    assert text == "y" and told[-1].stop == "."


def test_long_stop_strings_take_no_more_memory_than_they_are_long() -> None:
    """A request may have 16 of 1024 characters, and 32 answers."""
    stops = [chr(ord("a") + number) * 1023 + "!" for number in range(16)]
    speech = AnswerText(stops)  # what is compiled once and kept
    tracemalloc.start()
    try:
        made = [AnswerText(stops) for _ in range(32)]
        assert tracemalloc.get_traced_memory()[0] < 32 * sum(map(len, stops))
    finally:
        tracemalloc.stop()
    for one in (speech, made[-1]):
        assert _tell(one, [_START, [_append("x" + stops[3][:-1])], [_append("a")]])[0] == "x" + stops[3][:-1]
