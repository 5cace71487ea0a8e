"""uppercase, yesno and choice, compiled and run."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from aicirt.contract.abi import CAP_FF_TOKENS, CAP_TOKENIZER, SAMPLE, SPLICE, STOP
from aicirt.contract.errors import ControllerFailed
from aicirt.wasm import Export, Program
from lab.runners.host import BITMASK, EVERYTHING, TOKEN, Guest, Vocab, ascii_vocab

BYTES = [bytes([b]) for b in range(256)]
WORDS = [b"Yes", b"No", b"Nothing", b" big", b"BIG", b" Big", "É".encode(), "é".encode()]
EOS = len(BYTES) + len(WORDS)


@pytest.fixture(scope="module")
def vocab() -> Vocab:
    return Vocab([*BYTES, *WORDS, b"<eos>"], eos=[EOS])


def written(guest: Guest, choose: Callable[[list[int]], int]) -> bytes:
    """Lets a controller run to its end; `choose` samples from masks."""
    text, tokens = b"", []
    for _ in range(200):
        mid = guest.step(tokens).row
        if mid.verb == STOP:
            return text
        if mid.verb == SPLICE:
            assert mid.backtrack == 0
            tokens = mid.tokens
        else:
            assert mid.verb == SAMPLE
            tokens = [mid.token if mid.kind == TOKEN else choose(mid.allowed)]
        text += b"".join(guest.vocab.tokens[t] for t in tokens if t not in guest.vocab.special)
    raise AssertionError("it does not end")


def test_uppercase(program: Callable[[str], Program], vocab: Vocab) -> None:
    guest = Guest(program("uppercase"), vocab)
    expected = [*vocab.allowed(lambda text: not any(97 <= byte <= 122 for byte in text)), EOS]
    for tokens in ([], [65], [vocab.tokens.index(b"BIG")]):
        mid = guest.step(tokens).row
        assert (mid.verb, mid.kind, mid.allowed) == (SAMPLE, BITMASK, expected)
    assert guest.step([EOS]).row.verb == STOP


def test_uppercase_refuses_bad_arguments(program: Callable[[str], Program], vocab: Vocab) -> None:
    with pytest.raises(ControllerFailed, match="takes no argument"):
        Guest(program("uppercase"), vocab, "louder")
    guest = Guest(program("uppercase"), vocab)
    with pytest.raises(ControllerFailed, match='the token " big" was appended'):
        guest.step([vocab.tokens.index(b" big")])


@pytest.mark.parametrize("name", ["yesno", "yesno_zig"])
class TestYesNo:
    def test_answers(self, program: Callable[[str], Program], vocab: Vocab, name: str) -> None:
        yes, no = vocab.tokens.index(b"Yes"), vocab.tokens.index(b"No")
        for answer in (yes, no):
            guest = Guest(program(name), vocab)
            assert guest.step().row.allowed == sorted([yes, no])
            assert guest.step().row.allowed == sorted([yes, no]), "a round without a token"
            assert guest.step([answer]).row.verb == STOP

    def test_split_answers(self, program: Callable[[str], Program], name: str) -> None:
        letters = ascii_vocab()
        assert written(Guest(program(name), letters), max) == b"Yes"
        assert written(Guest(program(name), letters), min) == b"No"

    def test_refuses(self, program: Callable[[str], Program], vocab: Vocab, name: str) -> None:
        with pytest.raises(ControllerFailed, match="takes no argument"):
            Guest(program(name), vocab, "maybe")
        with pytest.raises(ControllerFailed, match="cannot spell the answers"):
            Guest(program(name), Vocab([b"Y", b"o"]))
        with pytest.raises(ControllerFailed, match="belongs to neither answer"):
            Guest(program(name), vocab).step([vocab.tokens.index(b"Nothing")])

    def test_needs_no_pre_or_post(self, program: Callable[[str], Program], name: str) -> None:
        has = program(name).has
        assert not has[Export.PRE] and not has[Export.POST] and not has[Export.INIT_PROMPT]


class TestChoice:
    @pytest.mark.parametrize("choose", [min, max, lambda allowed: allowed[len(allowed) // 2]])
    @pytest.mark.parametrize("capabilities", [EVERYTHING, {CAP_TOKENIZER: 1}, {CAP_FF_TOKENS: 1}, {}])
    def test_writes_a_choice(
        self,
        program: Callable[[str], Program],
        vocab: Vocab,
        choose: Callable[[list[int]], int],
        capabilities: dict[int, int],
    ) -> None:
        texts = ["Yes", "No", "Nothing", "Yes, big", "éa", "中"]
        guest = Guest(program("choice"), vocab, json.dumps(texts), capabilities=capabilities)
        assert written(guest, choose).decode() in texts

    def test_masks_without_the_tokenizer(self, program: Callable[[str], Program], vocab: Vocab) -> None:
        """With it: test_spelling.py."""
        texts = [b"No", b"Nothing", b"Nothing big"]
        guest = Guest(program("choice"), vocab, b"\n".join(texts), capabilities={CAP_FF_TOKENS: 1})
        so_far = b""
        for word in ([], [b"N"], [b"o"], [b"t"], list(b"hing"), [b" "]):
            tokens = [vocab.tokens.index(bytes([w]) if isinstance(w, int) else w) for w in word]
            so_far += b"".join(vocab.tokens[t] for t in tokens)
            mid = guest.step(tokens, sampled=True).row
            allowed = vocab.allowed(lambda t, so_far=so_far: any(x.startswith(so_far + t) for x in texts))
            assert (mid.kind, mid.allowed) == (BITMASK, allowed + [EOS] * (so_far in texts)), so_far

    def test_forces_what_is_sure(self, program: Callable[[str], Program], vocab: Vocab) -> None:
        assert Guest(program("choice"), vocab, "Yes").step().row.token == vocab.tokens.index(b"Yes")
        whole = Guest(program("choice"), vocab, "Yes big").step().row
        assert whole.verb == SPLICE
        assert [vocab.tokens[t] for t in whole.tokens] == [b"Yes", b" big"]
        # without the right tokenizer nothing is forced, without ff_tokens one token at a time is
        blind = Guest(program("choice"), vocab, "Yes big", capabilities={CAP_FF_TOKENS: 1})
        assert blind.step().row.kind == BITMASK
        slow = Guest(program("choice"), vocab, "Yes big", capabilities={CAP_TOKENIZER: 1})
        tokens: list[int] = []
        for word in (b"Yes", b" big"):
            mid = slow.step(tokens).row
            assert (mid.kind, mid.token) == (TOKEN, vocab.tokens.index(word))
            tokens = [mid.token]
        assert slow.step(tokens).row.verb == STOP

    def test_first_answers_are_ready(self, program: Callable[[str], Program], vocab: Vocab) -> None:
        """The constructor, whose work serves many sequences, asks the tokenizer; the first step need not."""
        guest = Guest(program("choice"), vocab, '["Yes big", "Yes bigé"]')
        asked = len(guest.tokenized)
        assert asked > 0
        tokens = guest.step().row.tokens
        assert [vocab.tokens[t] for t in tokens] == [b"Yes", b" big"]
        guest.step(tokens)
        assert len(guest.tokenized) == asked

    def test_impossible_texts_are_refused(self, program: Callable[[str], Program]) -> None:
        with pytest.raises(ControllerFailed, match="no token of the vocabulary continues it"):
            Guest(program("choice"), Vocab([b"a", b"b"]), "c", capabilities={})

    def test_a_forced_token_may_be_overruled(self, program: Callable[[str], Program], vocab: Vocab) -> None:
        guest = Guest(program("choice"), vocab, "Yes big", capabilities={CAP_TOKENIZER: 1})
        assert guest.step().row.token == vocab.tokens.index(b"Yes")
        mid = guest.step([ord("Y")]).row  # the engine ignores the mask
        assert (mid.kind, mid.token) == (TOKEN, ord("e"))

    @pytest.mark.parametrize(
        ("argument", "texts"),
        [
            ("a\nb\n", ["a", "b"]),
            ("\n a \n\n", [" a "]),
            ('["a", "b\\n\\u00e9\\ud83d\\ude00\\/"]', ["a", "b\né😀/"]),
            (' ["x"]', [' ["x"]']),
            ('[ "x" ,\n"y" ]', ["x", "y"]),
        ],
    )
    def test_arguments(
        self, program: Callable[[str], Program], vocab: Vocab, argument: str, texts: list[str]
    ) -> None:
        for choose in (min, max):
            guest = Guest(program("choice"), vocab, argument, capabilities={})
            assert written(guest, choose).decode() in texts
        guest = Guest(program("choice"), vocab, argument, capabilities={})
        starts = {text.encode()[0] for text in texts}
        assert {vocab.tokens[t][0] for t in guest.step().row.allowed} == starts

    @pytest.mark.parametrize(
        ("argument", "message"),
        [
            ("", 'at least one text: a JSON list of strings such as ["yes", "no"], or one text per line'),
            ("\n\n", "at least one text"),
            ("[]", "at least one text"),
            ("[1]", "a string expected at byte 1"),
            ('["a" "b"]', "`,` or `]` expected at byte 5"),
            ('["a', "does not end at byte 3"),
            ('["a"] x', "unexpected text after the end at byte 6"),
            ('["\\q"]', "an unknown escape at byte 3"),
            ('["\\u12"]', "four hexadecimal digits expected at byte 6"),
            ('["\\ud800"]', "a lone surrogate at byte 8"),
            ('["\\udc00"]', "a lone surrogate"),
            ('["\n"]', "a control character in a string at byte 2"),
        ],
    )
    def test_refuses(
        self, program: Callable[[str], Program], vocab: Vocab, argument: str, message: str
    ) -> None:
        with pytest.raises(ControllerFailed) as caught:
            Guest(program("choice"), vocab, argument)
        assert message in caught.value.message
