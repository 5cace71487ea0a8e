"""Special tokens in rules, and the temperature of terminals."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aicirt.contract.abi import GREEDY, STOP
from aicirt.contract.errors import ControllerFailed
from aicirt.wasm import Program
from lab.oracles.grammars.vocabularies import byte_vocab
from lab.oracles.grammars.walk import Controller, allowed_after
from lab.runners.host import Guest, Vocab

Make = Callable[[str], Controller]

BYTES = [bytes([byte]) for byte in range(256)]
MARKS = [b"<|tool|>", b"<|a|>", b"<|b|>", b"</think>", b"<eos>"]
TOOL, A, B, THINK, EOS = range(256, 261)


@pytest.fixture(scope="module")
def marked(program: Callable[[str], Program]) -> Make:
    """All bytes are tokens; there are special tokens, and `</think>` is a token of text."""
    vocab = Vocab([*BYTES, *MARKS], special=[TOOL, A, B], eos=[EOS])
    return lambda text: Controller(program("lark"), vocab, text)


def walk(made: Controller, tokens: list[int]) -> list[int] | None:
    return allowed_after(made, tokens, EOS)


def test_special_tokens_are_allowed_by_the_rules(marked: Make) -> None:
    made = marked('start: TEXT | <|tool|> "x" <[257-258]>\nTEXT: /[a-z]+/')
    first = walk(made, [])
    assert first is not None and TOOL in first and A not in first and ord("x") in first
    assert walk(made, [TOOL]) == [ord("x")]
    assert walk(made, [TOOL, ord("x")]) == [A, B]
    assert walk(made, [TOOL, ord("x"), B]) == [EOS]
    after_text = walk(made, [ord("x")])
    assert after_text is not None and EOS in after_text and TOOL not in after_text


def test_a_special_token_ends_a_lexeme(marked: Make) -> None:
    made = marked("start: /(.|\\n)*/ <|tool|> /[0-9]+/")
    tokens = walk(made, list(b"a b"))
    assert tokens is not None and TOOL in tokens and ord("z") in tokens and 0xFF not in tokens
    assert walk(made, [*b"a b", TOOL, *b"42"]) == [*b"0123456789", EOS]
    assert walk(made, [TOOL]) == [*b"0123456789"]


def test_ignored_text_may_stand_around_special_tokens(marked: Make) -> None:
    made = marked('start: "a" <|tool|> "b"\n%ignore " "')
    assert walk(made, [*b"a ", TOOL, *b" b"]) == [ord(" "), EOS]


def test_text_may_end_where_only_a_special_token_can_follow(marked: Make) -> None:
    made = marked('start: "a" <|tool|>?')
    assert walk(made, [*b"a"]) == [TOOL, EOS]


def test_text_is_not_forced_where_a_special_token_may_come_instead(
    marked: Make, program: Callable[[str], Program]
) -> None:
    """Also with a tokenizer, for which forced text is appended at once."""
    vocab = Vocab([*BYTES, *MARKS], special=[TOOL, A, B], eos=[EOS])
    guest = Guest(program("lark"), vocab, 'start: "abc" | <|tool|>')
    assert set(guest.step([]).row.allowed) == {ord("a"), TOOL}
    assert guest.step([TOOL]).row.verb == STOP


def test_a_token_of_text_is_its_text(marked: Make) -> None:
    made = marked('start: "a" </think> "b"')
    assert walk(made, [ord("a")]) == [ord("<"), THINK]
    assert walk(made, [ord("a"), THINK]) == [ord("b")]
    assert walk(marked("start: <[259]>"), [THINK]) == [EOS]


def test_bytes_of_a_special_token_are_not_text(marked: Make) -> None:
    """No text spells the bytes that stand for a special token inside the engine."""
    made = marked("start: <|tool|>")
    assert walk(made, []) == [TOOL]
    guest = made.start()
    made.state(guest, [])
    with pytest.raises(ControllerFailed, match="does not allow it here"):
        made.state(guest, [0xFF])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "start: <|tol|>",
            'line 1, column 8: the vocabulary has no token <|tol|>: if it is text, write "<|tol|>"',
        ),
        ("start: <|tool", "line 1, column 8: the name of this token is not closed: `>` is missing"),
        ("start: <eos>", "line 1, column 8: token 260 ends the sequence: leave it out"),
        ("start: <[999]>", "line 1, column 10: this number is too large: at most 260 is possible"),
        ("start: <[*]>", "line 1, column 10: numbers of tokens are written as in <[12,20-24]>; all others"),
        ("start: <[^1]>", "line 1, column 10: numbers of tokens are written as in <[12,20-24]>; all others"),
        ("start: <[258-256]>", "line 1, column 8: a list has at most 256 tokens, in rising order"),
        (
            "start: <[256,97]>",
            'line 1, column 8: token 97 is text, which a list of tokens may not have: write "a"',
        ),
        ("start: T\nT: <|tool|>", "line 2, column 4: a special token cannot be in a terminal"),
        ("start: t\nt[temperature=x]: /a/", "line 2, column 15: a number such as 0.5 is expected, not `x`"),
        ("start: t\nt[temperature=200]: /a/", "line 2, column 15: this number is too large: at most 100"),
        ("start: t\nt[temperature=1]: u\nu: /a/", "line 2, column 19: a terminal cannot name the rule u"),
    ],
)
def test_messages(marked: Make, text: str, message: str) -> None:
    assert marked(text).refusal().startswith(message)


def test_the_temperature_is_that_of_the_terminal(program: Callable[[str], Program]) -> None:
    text = 'start: "x" t ";" u | "y"\nt[temperature=0.25]: /[a-c]{2}/\nu[temperature=0]: /[a-c]{2}/'
    guest, found = Guest(program("lark"), byte_vocab(), text, capabilities={}), []
    row = guest.step([]).row
    for token in b"xab;cc":
        found.append(row.temperature)
        row = guest.step([token]).row
    assert found == [0, 0.25, 0.25, 0, GREEDY, GREEDY]


def test_the_highest_temperature_counts_where_terminals_compete(program: Callable[[str], Program]) -> None:
    text = "start: t | u\nt[temperature=0.5]: /a+/\nu[temperature=2]: /ab/"
    guest = Guest(program("lark"), byte_vocab(), text, capabilities={})
    assert guest.step([]).row.temperature == 2
    assert guest.step([ord("a")]).row.temperature == 2
    guest = guest.fork(2)
    assert guest.step([ord("b")]).row.verb == STOP


def test_in_a_script_the_terminal_has_its_temperature(program: Callable[[str], Program]) -> None:
    """The rest of the text has that of `gen`."""
    grammar = "start: x t\\nx: /x/\\nt[temperature=0.25]: /[ab]/"
    script = (
        'import { gen } from "aici";\n'
        f"export async function main() {{ await gen({{ lark: '{grammar}', temperature: 0.5 }}); }}"
    )
    guest = Guest(program("jsctrl"), byte_vocab(), script, capabilities={})
    first = guest.step([]).row
    second = guest.step([ord("x")]).row
    assert (first.temperature, second.temperature) == (0.5, 0.25)
    assert second.allowed == [ord("a"), ord("b")]
