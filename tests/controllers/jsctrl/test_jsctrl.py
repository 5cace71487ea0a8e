"""jsctrl, compiled and run: scripts in JavaScript decide, and what goes wrong in them is said."""

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
    return lambda source: Guest(program("jsctrl"), VOCAB, source)


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
const seen = [];
function mid_process(token) {
  print("sampled", token);
  seen.push(token);
  return seen.length < 3 ? 7 + token : -1;
}
"""
    )
    tokens: list[int] = []
    for expected in (6, 13):
        mid = guest.step(tokens).row
        assert (mid.verb, mid.kind, mid.token) == (SAMPLE, TOKEN, expected)
        tokens = [expected]
    assert guest.step(tokens).row.verb == STOP
    assert guest.take_log() == "sampled -1\nsampled 6\nsampled 13\n"


def test_errors_end_the_sequence_with_a_stack(script: Callable[[str], Guest]) -> None:
    said = refusal(lambda: script("let x = 1;\nnothing();\n"))
    assert "ReferenceError: nothing is not defined" in said
    assert "at <eval> (script:2:1)" in said
    assert "SyntaxError" in refusal(lambda: script("function (\n"))
    assert "not a function" in refusal(script("let x = 1;").step)
    guest = script("function mid_process(token) {\n  return token.a.b;\n}\n")
    assert "at mid_process (script:2" in refusal(guest.step)
    assert "just a text" in refusal(script("function mid_process() { throw 'just a text'; }").step)


def test_errors_can_be_caught_and_recursion_ends(script: Callable[[str], Guest]) -> None:
    guest = script(
        """
function deep(n) { return 1 + deep(n + 1); }
function mid_process(token) {
  try {
    deep(0);
  } catch (error) {
    print(error.name + ": " + error.message);
  }
  return 1;
}
"""
    )
    for step in range(3):
        assert guest.step([1] if step else []).row.token == 1
        assert guest.take_log() == "RangeError: Maximum call stack size exceeded\n"


def test_the_language(script: Callable[[str], Guest]) -> None:
    guest = script(
        r"""
class Point { #x = 1; get x() { return this.#x; } }
print(2n ** 100n, 0.1 + 0.2, new Point().x, [..."aäö"].reverse().join(""));
print("Anna is 31".replace(/(?<name>\p{Lu}\w+) is (\d+)/u, "$2 is $<name>"));
print(JSON.stringify({ a: [1, null] }));
function* squares() { for (let i = 0; i < 4; i++) yield i * i; }
print([...squares()], new Map([["a", 1]]).get("a"), (1234.5).toFixed(2), null ?? "none");
function mid_process() { return -1; }
"""
    )
    assert guest.take_log().splitlines() == [
        "1267650600228229401496703205376 0.30000000000000004 1 öäa",
        "31 is Anna",
        '{"a":[1,null]}',
        "0,1,4,9 1 1234.50 none",
    ]


def test_memory_is_bounded(script: Callable[[str], Guest]) -> None:
    guest = script(
        """
function mid_process(token) {
  for (let i = 0; i < 3000; i++) { const a = new Array(100).fill(i), b = { a }; a.push(b); }
  return 1;
}
"""
    )
    for step in range(30):
        guest.step([1] if step else [])
    assert memory(guest) < 8 << 20
    bomb = script("function mid_process() { const x = []; for (;;) x.push(new Uint8Array(10000)); }")
    assert "out of memory" in refusal(bomb.step)
    assert memory(bomb) < 60 << 20
