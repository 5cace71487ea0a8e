"""pyctrl, compiled and run: scripts in Python decide, and what goes wrong in them is said."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aicirt.errors import ControllerFailed
from aicirt.wasm import Program
from tests.controllers.host import SAMPLE, STOP, TOKEN, Guest, ascii_vocab

VOCAB = ascii_vocab()


@pytest.fixture
def script(program: Callable[[str], Program]) -> Callable[[str], Guest]:
    """A sequence that a script controls."""
    return lambda source: Guest(program("pyctrl"), VOCAB, source)


def refusal(start: Callable[[], object]) -> str:
    """What a sequence ends with."""
    with pytest.raises(ControllerFailed) as caught:
        start()
    return str(caught.value)


def memory(guest: Guest) -> int:
    """Bytes."""
    guest.instance.refresh()
    return guest.instance.size


def test_a_script_forces_tokens_and_stops(script: Callable[[str], Guest]) -> None:
    guest = script(
        """
seen = []
def mid_process(token):
    print("sampled", token)
    seen.append(token)
    return 7 + token if len(seen) < 3 else -1
"""
    )
    tokens: list[int] = []
    for expected in (6, 13):
        mid = guest.step(tokens).row
        assert (mid.verb, mid.kind, mid.token) == (SAMPLE, TOKEN, expected)
        tokens = [expected]
    assert guest.step(tokens).row.verb == STOP
    assert guest.take_log() == "sampled -1\nsampled 6\nsampled 13\n"


def test_errors_end_the_sequence_with_a_traceback(script: Callable[[str], Guest]) -> None:
    assert "NameError: name 'nothing' isn't defined" in refusal(lambda: script("x = 1\nnothing()\n"))
    assert "line 2, in <module>" in refusal(lambda: script("x = 1\nnothing()\n"))
    assert "SyntaxError" in refusal(lambda: script("def f(:\n"))
    assert "name 'mid_process' isn't defined" in refusal(lambda: script("x = 1\n"))
    guest = script("def mid_process(token):\n    return 1 // 0\n")
    said = refusal(guest.step)
    assert 'File "script", line 2, in mid_process\nZeroDivisionError' in said


def test_errors_can_be_caught_and_recursion_ends(script: Callable[[str], Guest]) -> None:
    guest = script(
        """
def deep(n):
    return deep(n + 1)
def mid_process(token):
    try:
        deep(0)
    except RuntimeError as error:
        print(error)
    try:
        {}["key"]
    except KeyError as error:
        print("no", error)
    return 1
"""
    )
    for _ in range(3):
        assert guest.step([] if _ == 0 else [1]).row.token == 1
        assert guest.take_log() == "maximum recursion depth exceeded\nno key\n"


def test_the_language(script: Callable[[str], Guest]) -> None:
    guest = script(
        """
import aici, array, collections, io, math, struct
print(2 ** 100, 0.1 + 0.2, f"{math.pi:.3f}", struct.pack("<H", 258), array.array("i", [1, 2]))
print(collections.OrderedDict([("a", 1)]), sorted({3, 1, 2}))
print("äöü"[1:], len("äöü"), "%s %5.2f" % ("a", 1.5), (lambda *a, **k: (a, k))(1, b=2))
out = io.StringIO()
print("here", file=out)
print(repr(out.getvalue()))
def squares():
    for i in range(4):
        yield i * i
print(list(squares()))
def mid_process(token):
    return -1
"""
    )
    assert guest.take_log().splitlines() == [
        "1267650600228229401496703205376 0.3 3.142 b'\\x02\\x01' array('i', [1, 2])",
        "OrderedDict({'a': 1}) [1, 2, 3]",
        "öü 3 a  1.50 ((1,), {'b': 2})",
        "'here\\n'",
        "[0, 1, 4, 9]",
    ]


def test_memory_is_collected_between_calls_and_bounded(script: Callable[[str], Guest]) -> None:
    guest = script(
        """
kept = {"a": [1, 2, 3]}
def mid_process(token):
    for i in range(3000):
        garbage = [i] * 100
    assert kept == {"a": [1, 2, 3]}
    return 1
"""
    )
    for step in range(100):
        guest.step([1] if step else [])
    assert memory(guest) < 8 << 20
    bomb = script("def mid_process(token):\n    x = []\n    while True:\n        x.append(bytes(10000))\n")
    assert "MemoryError: memory allocation failed" in refusal(bomb.step)
    assert memory(bomb) < 48 << 20
