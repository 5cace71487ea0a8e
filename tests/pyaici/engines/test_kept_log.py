"""`KeptLog` keeps the newest output of controllers, up to a limit for all forks of a request together."""

from __future__ import annotations

import sys

from pyaici.engines.record import KeptLog


def test_newest_output_is_kept() -> None:
    log = KeptLog(10_000)
    for number in range(1000):
        log.append(number % 2, f"{number:9}\n")
    first, *lines = log.texts()[1].splitlines()
    assert lines[-1].strip() == "999" and len(lines) < 100
    assert first == f"... dropped {10 * (500 - len(lines))} characters of earlier output"


def test_small_logs_are_complete_and_separate() -> None:
    log = KeptLog()
    log.append(1, "a")
    log.append(2, "b")
    log.append(1, "c")
    assert log.texts() == {1: "ac", 2: "b"}


def test_wide_characters_and_small_pieces_count_by_their_bytes() -> None:
    for text, times in (("\N{GRINNING FACE}" * 1000, 100), ("x", 10_000)):
        log = KeptLog(50_000)
        for seq in range(times):
            log.append(seq, text)
        held = sum(sys.getsizeof(piece) + sys.getsizeof(pair) for pair in log._pieces for piece in pair[1:])
        assert held <= 50_000


def test_a_limit_of_zero_keeps_nothing() -> None:
    log = KeptLog(0)
    log.append(1, "abc")
    assert log.texts() == {1: "... dropped 3 characters of earlier output\n"}
