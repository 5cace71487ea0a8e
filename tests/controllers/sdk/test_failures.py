"""Failures that a controller catches: their messages, and that the controller can continue."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from aicirt.contract.abi import CAP_TOKENIZER
from aicirt.contract.errors import ControllerFailed
from aicirt.wasm import Program
from lab.runners.host import Guest, Host, Vocab
from pyaici.toolchain import Sdk, Toolchain, find_sdk, flags
from pyaici.toolchain.native import NativeBuild
from pyaici.toolchain.objects import Setting
from tests.controllers.conftest import GUESTS


class Jumping:
    """Compiles C sources for setjmp; see `Base` of pyaici.toolchain.native."""

    rule = "setjmp"
    stack_bytes = flags.STACK_BYTES

    def __init__(self, sdk: Sdk, sources: list[Path]) -> None:
        self.inputs = list[Path]()
        self._setting = replace(Setting.of(sdk), setjmp=frozenset(sources))

    def make(self, scratch: Path) -> tuple[Setting, list[Path]]:
        return self._setting, []


@pytest.fixture(scope="module")
def caught(host: Host) -> Program:
    """guests/caught, with the C library's own part of setjmp. The cache keeps it."""
    sdk, tools = find_sdk(), Toolchain()
    jumps = [
        GUESTS / "caught" / "jump.c",
        tools.zig.parent / "lib/libc/wasi/libc-top-half/musl/src/setjmp/wasm32/rt.c",
    ]
    build = NativeBuild(sdk, tools, [GUESTS / "caught" / "caught.cpp", *jumps], Jumping(sdk, jumps))
    return host.compile(build.make().read_bytes())


@pytest.fixture(scope="module")
def vocab() -> Vocab:
    """All characters of ASCII but `z`, and longer texts of `a` and `b`."""
    tokens = [bytes([byte]) for byte in range(128) if byte != ord("z")]
    tokens += [b"aa", b"aaa", b"ab", b"abab"]
    return Vocab([*tokens, b"<eos>"], eos=[len(tokens)])


def failures(guest: Guest) -> list[str]:
    return [line.removeprefix("failed: ") for line in guest.take_log().splitlines() if "failed: " in line]


def test_what_is_refused(caught: Program, vocab: Vocab) -> None:
    guest = Guest(caught, vocab, "regex refused\n[ab]+")
    said = guest.take_log()
    for message in (
        "failed: the regular expression is refused at column 2: this class is not closed",
        "there is no rule for other",
        "failed: line 1, column",
        "failed: the schema is refused\n#/type:",
        "failed: the schema is not JSON: ",
    ):
        assert message in said
    assert said.count("failed: ") == 5
    assert vocab.tokens.index(b"a") in guest.step().row.allowed
    guest.instance.close()


@pytest.mark.parametrize(
    ("what", "message"),
    [("memory", "out of memory: the controller has reached its memory limit"), ("library", "")],
)
def test_library_failures_are_caught(caught: Program, vocab: Vocab, what: str, message: str) -> None:
    guest = Guest(caught, vocab, f"regex {what}\n[ab]+")
    [said] = failures(guest)
    assert message in said
    assert vocab.tokens.index(b"a") in guest.step().row.allowed
    guest.instance.close()


def test_handlers(caught: Program, vocab: Vocab) -> None:
    assert Guest(caught, vocab, "regex handlers\n[ab]+").take_log() == "111\n"
    with pytest.raises(ControllerFailed, match="it ends"):
        Guest(caught, vocab, "regex returns\n[ab]+")
    with pytest.raises(ControllerFailed, match="the handler failed"):
        Guest(caught, vocab, "regex fails\n[ab]+")


@pytest.mark.parametrize(
    ("what", "messages"),
    [
        ("construction", ["table cannot", "no tokens that spell", "behind two tables", "table cannot"]),
        ("nested", ["inner", "outer"]),
    ],
)
def test_unfinished_tables_are_not_warmed(
    caught: Program, vocab: Vocab, what: str, messages: list[str]
) -> None:
    """The object to warm is on a stack that was reused, or is unfinished."""
    warm, cold = (
        Guest(caught, vocab, f"regex {what}\n(a[bc]|b)+", capabilities={CAP_TOKENIZER: 1}) for _ in range(2)
    )
    for message, said in zip(messages, failures(warm), strict=True):
        assert message in said
    assert warm.warm() > 5, "the constraint, and the table that was there before"
    tokens: list[int] = []
    for _ in range(3):
        allowed = warm.step(tokens).row.allowed
        assert allowed == cold.step(tokens).row.allowed
        tokens = allowed[:1]
    warm.instance.close()
    cold.instance.close()


#: leads an automaton that has to remember where each `b` was to ever new states
VARIED = bytes(random.Random(1).choices(b"ab", k=200))
#: constraints, tokens that they allow, and what they then cannot take, or after which they cannot go on
CASES = [
    ("regex ", "(ab|c)*", [b"ab", b"c"], b"c!", "not allow"),
    ("choices", "abba\nab!", [b"ab"], b"c", "not allow"),
    ("stack", "(ab|c)*", [b"c", b"ab"], b"b", "not allow"),
    ("regex ", "(ab|bcz|b)*", [b"b"], b"bc", "no token here"),
    ("regex small ", "(.|a)*b.{40}", [b"a", b"b"], VARIED, "not allow"),
    ("sums", "", [b"a", b"a"], b"a" * 64, "too many"),
]


@pytest.mark.parametrize(("words", "source", "text", "bad", "message"), CASES)
def test_a_constraint_that_has_failed_starts_over(
    caught: Program,
    vocab: Vocab,
    words: str,
    source: str,
    text: list[bytes],
    bad: bytes,
    message: str,
) -> None:
    """After a failure at a token or at a mask, it answers like a new constraint."""
    again, anew = (
        Guest(caught, vocab, f"{words} {mode}\n{source}", capabilities={}) for mode in ("", "anew")
    )
    for guest in (again, anew):
        guest.take_log()
    said = []
    steps = [vocab.tokenize(token) for token in text]
    for tokens in ([], *steps, vocab.tokenize(bad), *steps, vocab.tokenize(bad), *steps):
        rows = [guest.step(tokens).row for guest in (again, anew)]
        assert (rows[0].verb, rows[0].allowed) == (rows[1].verb, rows[1].allowed)
        logs = [failures(guest) for guest in (again, anew)]
        assert logs[0] == logs[1]
        said += logs[0]
    assert said and all(message in each for each in said)
    again.instance.close()
    anew.instance.close()
