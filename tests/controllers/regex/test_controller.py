"""The controller: its argument, its masks, text that is forced, and the end."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import regex

from aicirt.contract.abi import CAP_FF_TOKENS, CAP_TOKENIZER, SAMPLE, SPLICE, STOP
from aicirt.contract.errors import ControllerFailed
from aicirt.wasm import Export, Program
from lab.runners.host import BITMASK, EVERYTHING, TOKEN, Guest, Vocab

WORDS = [
    b"Yes",
    b"No",
    b" no",
    b"12",
    b"123",
    b"1.5",
    b"abc",
    b"abc1",
    b"</",
    b"tag",
    b"</tag>",
    b">x",
    b"\n\n",
]
WORDS += [
    "é".encode(),
    "né".encode(),
    "中".encode(),
    "中文".encode(),
    "中".encode()[:2],
    b"\xb8\xad",
    b"\xff\xfe",
]
WORDS += [b"user", b"@ex", b"ample", b".com", b"name", b'"name": ', b'"', b"\\u", b"00e9"]
BYTES = [bytes([b]) for b in range(256)]
EOS = 256 + len(WORDS)


@pytest.fixture(scope="module")
def vocab() -> Vocab:
    return Vocab([*BYTES, *WORDS, b"<eos>"], eos=[EOS])


@pytest.fixture(scope="module")
def regex_program(program: Callable[[str], Program]) -> Program:
    return program("regex")


def generate(
    guest: Guest, choose: Callable[[list[int]], int], most: int = 60
) -> tuple[bytes, list[tuple[bytes, list[int]]], bool]:
    """The text, the masks with the text before each, and whether it came to its end."""
    text, tokens, masks = b"", [], []
    for _ in range(most):
        mid = guest.step(tokens, sampled=len(tokens) == 1).row
        if mid.verb == STOP:
            return text, masks, True
        if mid.verb == SPLICE:
            assert mid.backtrack == 0
            tokens = mid.tokens
        elif mid.kind == TOKEN:
            tokens = [mid.token]
        else:
            assert (mid.verb, mid.kind) == (SAMPLE, BITMASK)
            masks.append((text, mid.allowed))
            tokens = [choose(mid.allowed)]
        text += b"".join(guest.vocab.tokens[t] for t in tokens if t != EOS)
    return text, masks, False


@cache
def completions(beginning: bytes) -> list[str]:
    """The characters whose bytes begin so: all of them, or a sample if there are very many."""
    missing = (4 if beginning[0] >= 0xF0 else 3 if beginning[0] >= 0xE0 else 2) - len(beginning)
    if missing < 1 or any(byte >> 6 != 2 for byte in beginning[1:]):
        return []
    found = []
    for number in range(0, 64**missing, 61 if missing == 3 else 1):
        rest = bytes(0x80 | number >> 6 * place & 63 for place in reversed(range(missing)))
        try:
            found.append((beginning + rest).decode())
        except UnicodeDecodeError:
            pass
    return found


def partial(pattern: str) -> Callable[[bytes], bool]:
    """Can bytes be the beginning of a match? By the `regex` package; a last character may be cut short."""
    compiled = regex.compile(pattern, regex.V0)

    @cache
    def permits(text: bytes) -> bool:
        for end in range(len(text), max(len(text) - 4, -1), -1):
            try:
                before = text[:end].decode()
            except UnicodeDecodeError:
                continue
            if end == len(text):
                return compiled.fullmatch(before, partial=True) is not None
            if text[end] < 0xC2 or text[end] > 0xF4:
                return False
            return compiled.fullmatch(before, partial=True) is not None and any(
                compiled.fullmatch(before + c, partial=True) for c in completions(text[end:])
            )
        return False

    return permits


@pytest.mark.parametrize(
    "pattern",
    [
        "[a-z]+[0-9]*",
        r"-?[0-9]+(\.[0-9]+)?",
        r"\w+( \w+)*\n",
        r'"name": "([^"\\\n]|\\u[0-9a-f]{4})*"',
        r"[^<]*</tag>",
        "Yes|No( no)*",
        r"(?s).{3,6}",
        r"[^\n]{0,9}\n",
        r"[a-z]{2,5}(?: [a-z]{1,9}){0,2}",
        "[^é]{2}é",
        r"user@example\.com",
    ],
)
def test_masks_are_exact(regex_program: Program, vocab: Vocab, pattern: str) -> None:
    permits, whole = partial(pattern), regex.compile(pattern, regex.V0)
    rng = random.Random(pattern)
    checked = 0
    for _ in range(2):
        guest = Guest(regex_program, vocab, pattern, capabilities={})
        _, masks, _ = generate(guest, rng.choice, most=10)
        for text, allowed in masks:
            ends = False
            try:
                ends = whole.fullmatch(text.decode()) is not None
            except UnicodeDecodeError:
                pass
            expected = vocab.allowed(lambda token, text=text: permits(text + token)) + [EOS] * ends
            assert allowed == expected, text
            checked += 1
    assert checked > 3


@pytest.mark.parametrize("pattern", ["ss", r"\S?s", "[as]s|ass?", "(?:ss)*"])
def test_a_vocabulary_without_the_tokens_of_single_bytes(regex_program: Program, pattern: str) -> None:
    guest = Guest(regex_program, Vocab([b"ss", b"a", b"<eos>"], eos=[2]), pattern, capabilities={})
    assert 0 in guest.step([]).row.allowed


@pytest.mark.parametrize("capabilities", [EVERYTHING, {CAP_TOKENIZER: 1}, {CAP_FF_TOKENS: 1}, {}])
@pytest.mark.parametrize(
    "pattern",
    [
        r'\{"name": "[a-z]{2,5}", "age": [0-9]{1,3}\}',
        r"(?:Yes|No), because .{5}\.",
        "abc",
        "(?:)",
        "中文|中",
        "user@example.com",
    ],
)
def test_output_matches(
    regex_program: Program, vocab: Vocab, pattern: str, capabilities: dict[int, int]
) -> None:
    for seed in range(6):
        guest = Guest(regex_program, vocab, pattern, capabilities=capabilities)
        text, _, ended = generate(guest, random.Random(seed).choice)
        assert ended
        assert regex.fullmatch(pattern, text.decode(), regex.V0), text


def test_forced_text_is_spliced(regex_program: Program, vocab: Vocab) -> None:
    guest = Guest(regex_program, vocab, r'"name": "[a-z]*"')
    mid = guest.step().row
    assert (mid.kind, mid.token) == (TOKEN, vocab.tokens.index(b'"name": '))  # then `"`, or `"a`
    # after a choice, the rest is forced again
    guest = Guest(regex_program, vocab, "(?:Yes|No)</tag>")
    assert guest.step().row.kind == BITMASK
    mid = guest.step([vocab.tokens.index(b"Yes")]).row
    assert (mid.kind, mid.token) == (TOKEN, vocab.tokens.index(b"</tag>"))
    assert guest.step([mid.token]).row.verb == STOP


def test_the_end_is_allowed_where_the_text_matches(regex_program: Program, vocab: Vocab) -> None:
    guest = Guest(regex_program, vocab, "[0-9]{2,3}", capabilities={})
    assert EOS not in guest.step().row.allowed
    assert EOS not in guest.step([ord("1")]).row.allowed
    assert EOS in guest.step([ord("2")]).row.allowed
    assert guest.step([EOS]).row.verb == STOP
    # where only the end is allowed, nothing is sampled
    guest = Guest(regex_program, vocab, "[0-9]{2,3}", capabilities={})
    assert guest.step([vocab.tokens.index(b"123")]).row.verb == STOP


def test_it_exports_no_pre_and_no_post_process(regex_program: Program) -> None:
    assert not regex_program.has[Export.PRE]
    assert not regex_program.has[Export.POST]


def test_forks_are_independent(regex_program: Program, vocab: Vocab) -> None:
    parent = Guest(regex_program, vocab, "(?:a[bc]|d[ef])+", capabilities={})
    parent.step()
    parent.step([ord("a")])
    child = parent.fork(2)
    assert parent.step([ord("b")]).row.allowed == [ord("a"), ord("d"), EOS]
    assert child.step([ord("c")]).row.allowed == [ord("a"), ord("d"), EOS]
    assert parent.step([ord("d")]).row.allowed == [ord("e"), ord("f")]
    assert child.step([ord("a")]).row.allowed == [ord("b"), ord("c")]


@pytest.mark.parametrize("until", ["</tag>", ["</tag>", "\n\n"], ["中文"], ["é\\.", '"q"']])
def test_until(regex_program: Program, vocab: Vocab, until: str | list[str]) -> None:
    stops = [until] if isinstance(until, str) else until
    for seed in range(8):
        guest = Guest(regex_program, vocab, json.dumps({"until": until}), capabilities={})
        text, masks, ended = generate(guest, random.Random(seed).choice, most=40)
        assert not any(stop.encode() in text[:-1] for stop in stops)
        assert ended == text.endswith(tuple(stop.encode() for stop in stops))
        for before, allowed in masks:
            assert EOS not in allowed
            for token in allowed:
                after = before + vocab.tokens[token]
                assert not any(stop.encode() in after[:-1] for stop in stops), after
    guest = Guest(regex_program, vocab, json.dumps({"until": until}), capabilities={})
    mid = guest.step(list(stops[-1].encode()[:-1])).row
    assert guest.step([stops[-1].encode()[-1]]).row.verb == STOP
    assert stops[-1].encode()[-1] in mid.allowed


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("a+", "aaa"),
        ({"regex": "a+"}, "aaa"),
        ({"regex": ""}, ""),
        ({"regex": '"\\w+"'}, '"é"'),
        ({"until": "é"}, "xé"),
        ({"until": ["x", "y"]}, "y"),
        (' { "regex" : "a+" } '.strip(), "a"),
        (r"\{a\}", "{a}"),
    ],
)
def test_arguments(regex_program: Program, vocab: Vocab, argument: Any, text: str) -> None:
    if not isinstance(argument, str):
        argument = json.dumps(argument)
    guest = Guest(regex_program, vocab, argument, capabilities={})
    mid = guest.step(list(text.encode()), sampled=False).row
    assert mid.verb == STOP or EOS in mid.allowed


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("", "the pattern is empty: regex needs one as its argument, such as [0-9]+"),
        ("a(b", "the regular expression is refused at column 2: this group is not closed: ')' is missing"),
        ("a\nb)", "the regular expression is refused at line 2, column 2: ')' without a group"),
        ("(((a{1000}){1000}){1000})", "column 12: the pattern is too large with this repetition expanded"),
        (b"a\xff", "column 2: the pattern is not valid UTF-8 here"),
        (json.dumps({"regex": "é)"}), "column 2: ')' without a group"),
        (json.dumps({"until": ""}), "the texts to stop at are refused: a text to stop at is empty"),
        (json.dumps({"until": ["a", ""]}), "a text to stop at is empty"),
        (b'{"until": "\xff"}', "a text to stop at is not valid UTF-8"),
        (
            json.dumps({"until": []}),
            'one member: "regex", a string, or "until", a string or a list of strings',
        ),
        (json.dumps({"regexp": "a"}), 'an argument in JSON has one member: "regex"'),
        (json.dumps({"regex": "a", "until": "b"}), "an argument in JSON has one member"),
        (json.dumps({"regex": ["a"]}), "the argument is not JSON: a string expected at byte 10"),
        ('{"regex": "a"', "the argument is not JSON: `,` or `}` expected at byte 13"),
        ('{"regex": "a"} x', "the argument is not JSON: unexpected text after the end at byte 15"),
        ("{2}", "the argument is not JSON: a string expected at byte 1"),
    ],
)
def test_refused(regex_program: Program, vocab: Vocab, argument: str | bytes, message: str) -> None:
    with pytest.raises(ControllerFailed) as caught:
        Guest(regex_program, vocab, argument)
    assert message in caught.value.message


def test_a_token_that_is_not_allowed_ends_the_sequence(regex_program: Program, vocab: Vocab) -> None:
    guest = Guest(regex_program, vocab, "[a-z]+")
    with pytest.raises(ControllerFailed, match='the token "Yes" was appended'):
        guest.step([vocab.tokens.index(b"Yes")])


def test_a_long_text_through_an_exponential_automaton(regex_program: Program, vocab: Vocab) -> None:
    """States are dropped between masks when they take too much memory; the masks stay right."""
    guest = Guest(regex_program, vocab, r"(?:.|a)*b.{60}", capabilities={})
    rng = random.Random(7)
    tokens: list[int] = []
    for _ in range(600):
        mid = guest.step(tokens).row
        tokens = [rng.choice([t for t in mid.allowed if t != EOS])]
        newlines = [t for t in vocab.text if b"\n" in vocab.tokens[t]]
        assert not set(newlines) & set(mid.allowed)
    assert guest.instance.size < 16 << 20
