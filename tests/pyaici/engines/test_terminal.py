"""Terminal output: pieces of text, markers and colours, and the summary."""

from __future__ import annotations

import io
from collections import deque
from typing import cast

import pytest
from rich.console import Console

from aicirt.contract.errors import TrapError
from pyaici.client.runtime import Runtime
from pyaici.engines.batching.engine import Phase, StepStats
from pyaici.engines.engine import (
    Backtracked,
    Event,
    Finished,
    FinishReason,
    Forked,
    Log,
    Origin,
    Started,
    Suspended,
    TokensAppended,
)
from pyaici.engines.options import find_or_upload
from pyaici.engines.terminal import Kind, Terminal, Transcripts

EVENTS: list[Event] = [
    Started(0, 0, [1], "Say: "),
    TokensAppended(0, 0, [1], "Hel", Origin.SAMPLED),
    TokensAppended(0, 0, [1], "lo wor", Origin.SAMPLED),
    TokensAppended(0, 0, [1], "ld", Origin.FORCED),
    Backtracked(0, 0, 2, "world"),
    TokensAppended(0, 0, [1], "moon", Origin.FORCED),
    Log(0, 0, "one\ntwo\n"),
    Forked(0, 0, [1], False),
    TokensAppended(0, 0, [1], "!", Origin.SAMPLED),
    TokensAppended(0, 1, [1], "?", Origin.SAMPLED),
    Finished(0, 0, FinishReason.EOS, None),
    Suspended(0, 1),
]


def pieces(seq: int, events: list[Event] = EVENTS) -> list[tuple[Kind, str]]:
    transcripts = Transcripts()
    for event in events:
        transcripts.apply_event(event)
    return [(piece.kind, piece.text) for piece in transcripts.by_seq[seq].pieces]


def test_removed_text_stays_in_its_place() -> None:
    assert pieces(0) == [
        (Kind.PROMPT, "Say: "),
        (Kind.SAMPLED, "Hello "),
        (Kind.REMOVED, "world"),
        (Kind.FORCED, "moon"),
        (Kind.SAMPLED, "!"),
    ]


def test_a_fork_begins_with_the_text_before_it() -> None:
    assert pieces(1) == [(Kind.PROMPT, "Say: "), (Kind.SHARED, "Hello moon"), (Kind.SAMPLED, "?")]


def test_text_can_be_removed_twice_and_from_the_prompt() -> None:
    events: list[Event] = [
        Started(0, 0, [1], "abc"),
        TokensAppended(0, 0, [1], "de", Origin.SAMPLED),
        Backtracked(0, 0, 1, "e"),
        Backtracked(0, 0, 3, "bcd"),
        TokensAppended(0, 0, [1], "x", Origin.FORCED),
    ]
    assert pieces(0, events) == [(Kind.PROMPT, "a"), (Kind.REMOVED, "bcde"), (Kind.FORCED, "x")]


def shown(events: list[Event], *, terminal: bool, summary: bool = False) -> str:
    out = io.StringIO()
    console = Console(
        file=out,
        force_terminal=terminal,
        width=100,
        color_system="standard" if terminal else None,
        highlight=False,
    )
    with Terminal(console) as screen:
        for event in events:
            screen.show(event)
    if summary:
        seconds = {phase: 0.001 * number for number, phase in enumerate(Phase, start=1)}
        recent = deque([seconds, {phase: 0.5 * value for phase, value in seconds.items()}])
        stats = StepStats(2, 5, 7, 3, 1, seconds=seconds, recent=recent)
        screen.summary(stats, 2.0, stats.table())
    return out.getvalue()


def test_a_file_gets_markers_instead_of_colours() -> None:
    text = shown(EVENTS, terminal=False)
    assert "\x1b" not in text
    assert text.splitlines()[0] == "prompt  sampled  «forced»  ~removed~  shared"
    assert "#0 (ended: eos)\nSay: Hello ~world~«moon»!\n  | one\n  | two\n" in text
    assert "#1, forked from #0 (suspended)\nHello moon?\n" in text
    assert text.count("#0") == 2, "printed once, at the end"


def test_colours_on_a_terminal() -> None:
    text = shown(EVENTS, terminal=True)
    assert "\x1b[1;36mmoon" in text and "\x1b[9;31mworld" in text and "\x1b[32m!" in text
    assert "«" not in text and "~" not in text


def test_errors_are_shown_and_dropped_beams_are_not() -> None:
    events: list[Event] = [
        *EVENTS[:2],
        Forked(0, 0, [1], True),
        Finished(0, 1, FinishReason.CUT, None),
        Finished(0, 0, FinishReason.ERROR, TrapError("unreachable")),
    ]
    text = shown(events, terminal=False)
    assert "#0 (ended: error)\nSay: Hel\nerror: unreachable" in text and "#1" not in text


def test_long_prompts_and_logs_are_cut() -> None:
    prompt = "".join(f"line {i}\n" for i in range(50))
    log = "".join(f"log {i}\n" for i in range(50))
    text = shown([Started(0, 0, [1], prompt), Log(0, 0, log)], terminal=False)
    assert "line 45" not in text and "...\nline 46\n" in text
    assert "log 29" not in text and "... 30 earlier lines" in text and "log 49" in text


def test_the_summary_has_the_time_of_each_phase() -> None:
    text = shown(EVENTS, terminal=False, summary=True)
    assert "5 tokens sampled, 7 forced, 3 backtracked, 1 fork in 2 steps and 2.00 s (6.0 tokens/s)" in text
    header, medians, means = text.splitlines()[-3:]
    assert (
        " ".join(header.split()) == "ms per step post pre wait forward mid wait mask sample added by control"
    )
    assert medians.split() == ["median", "0.750", "1.500", "2.250", "3.000", "3.750", "4.500", "9.000"]
    assert means.split() == ["mean", "0.500", "1.000", "1.500", "2.000", "2.500", "3.000", "6.000"]


@pytest.mark.parametrize("terminal", [True, False])
def test_control_characters_are_escaped(terminal: bool) -> None:
    hostile = "\x1b]0;title\x07\x9b2J\rX"
    events: list[Event] = [
        Started(0, 0, [1], f"prompt {hostile}"),
        TokensAppended(0, 0, [1], f"sampled {hostile}", Origin.SAMPLED),
        Log(0, 0, f"log {hostile}\n"),
        Finished(0, 0, FinishReason.ERROR, TrapError(f"error {hostile}")),
    ]
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=200, highlight=False)
    with Terminal(console) as screen:
        for event in events:
            screen.show(event)
    written = out.getvalue()
    for name in ("prompt", "sampled", "log", "error"):
        assert rf"{name} \x1b]0;title\x07\x9b2J\x0dX" in written
    assert "\x1b]" not in written and "\x07" not in written and "\x9b" not in written


def test_long_logs_keep_their_end() -> None:
    transcripts = Transcripts()
    transcripts.apply_event(EVENTS[0])
    for number in range(100_000):
        transcripts.apply_event(Log(0, 0, f"{number:9}\n"))
    kept = transcripts.by_seq[0]
    assert kept.log.endswith(" 99999\n") and len(kept.log) < 1 << 18
    assert abs(kept.log_lines_dropped + kept.log.count("\n") - 100_000) <= 1


@pytest.mark.parametrize("terminal", ["0", "1"])
def test_a_terminal_shows_that_a_controller_is_prepared(
    terminal: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", terminal)
    monkeypatch.setenv("TERM", "xterm")

    class Compiled:
        def find(self, _name: str) -> str:
            return "id"

    assert find_or_upload(cast(Runtime, Compiled()), "my_tag") == "id"
    shown = capsys.readouterr().err
    assert "preparing my_tag" in shown if terminal == "1" else not shown
