"""Texts that are known are written in the tokens that the tokenizer makes of them, and in no others."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence

import pytest

from aicirt.contract.abi import CAP_FF_TOKENS, CAP_TOKENIZER, SPLICE, STOP
from aicirt.contract.errors import ControllerFailed
from aicirt.vocab.tokenizer import load_tokenizer
from aicirt.wasm import Program
from lab.runners.host import BITMASK, TOKEN, Guest, Mid, Vocab
from pyaici.tokens import load_vocabulary
from tests.pyaici.tokens.published import tokenizer_json
from tests.thorough import also

#: texts that share beginnings, with and without a space before them
LISTS = [
    [" London", " Lisbon", " Lima", " Lond", " L", " "],
    ["mathematician", "musician", "mechanic", "physician", "physicist", "mathematics", "math"],
    ["No", "Nothing", "Nothing big", "Nothing bigger.", "Notre-Dame", "None of them"],
    ["10", "100", "1000 degrees", "100 degrees", "1 000 degrees"],
    ["Wien", "Würzburg", "Zürich", "東京", "東京都", "京都", "naïve", "naïveté", "🙂", "🙃"],
    ['{"name": "Ada"}', '{"name": "Bob"}', '{"names": []}', '{"name": ', '{"'],
    ["x  ", "x  b", "x   7", "x", "x \n", "x \n\ny"],
    ["", "a", " a", "\na"],
    ["only one"],
]


@pytest.fixture(scope="module", params=["llama3", *also("gpt4o", "gemma3")])
def vocab(request: pytest.FixtureRequest) -> Vocab:
    known = load_vocabulary(tokenizer_json(request.param))
    tokenizer = load_tokenizer(known.tokenizer.kind, known.tokenizer.data, known.tokens)
    return Vocab(known.tokens, special=sorted(known.special), eos=known.eos, tokenize=tokenizer)


def answer(mid: Mid) -> tuple[str, list[int]]:
    """A mask and its tokens, or forced tokens, or the end."""
    if mid.kind == BITMASK:
        return "mask", mid.allowed
    if mid.verb == STOP:
        return "stop", []
    assert mid.kind == TOKEN or (mid.verb == SPLICE and mid.backtrack == 0)
    return "forced", [mid.token] if mid.kind == TOKEN else mid.tokens


def expected(
    spellings: Sequence[Sequence[int]], so_far: Sequence[int], eos: Sequence[int]
) -> tuple[str, list[int]]:
    rests = [list(tokens[len(so_far) :]) for tokens in spellings if tokens[: len(so_far)] == so_far]
    common = []
    for column in zip(*rests, strict=False):
        if len(set(column)) > 1:
            break
        common.append(column[0])
    if common:
        return "forced", common
    following = {rest[0] for rest in rests if rest}
    if not following:
        return "stop", []
    return "mask", sorted(following | (set(eos) if [] in rests else set()))


@pytest.mark.parametrize("texts", LISTS, ids=lambda texts: texts[0])
def test_every_tokenization_of_every_text(
    program: Callable[[str], Program], vocab: Vocab, texts: list[str]
) -> None:
    spellings = [vocab.tokenize(text.encode()) for text in texts]
    written = set()
    for wanted in spellings:
        guest = Guest(program("choice"), vocab, json.dumps(texts))
        so_far, news = [], []
        while True:
            kind, tokens = answer(guest.step(news).row)
            assert (kind, tokens) == expected(spellings, so_far, vocab.eos), so_far
            if kind == "stop" or (kind == "mask" and len(wanted) == len(so_far)):
                break
            news = tokens if kind == "forced" else [wanted[len(so_far)]]
            so_far += news
        assert so_far == wanted
        written.add(tuple(so_far))
        guest.instance.close()
    assert len(written) == len(texts)


def test_random_lists(program: Callable[[str], Program], vocab: Vocab) -> None:
    rng = random.Random(1)
    pieces = [
        " the",
        " cat",
        "s",
        "o",
        "on",
        " on",
        "the",
        "re",
        "'s",
        "1",
        "23",
        "é",
        "京",
        "\n",
        "  ",
        ".",
        '"',
    ]
    for _ in range(60):
        texts = list({"".join(rng.choices(pieces, k=rng.randint(1, 5))) for _ in range(rng.randint(2, 30))})
        spellings = [vocab.tokenize(text.encode()) for text in texts]
        guest = Guest(program("choice"), vocab, json.dumps(texts))
        so_far: list[int] = []
        news: list[int] = []
        for _ in range(20):
            kind, tokens = answer(guest.step(news).row)
            assert (kind, tokens) == expected(spellings, so_far, vocab.eos), (texts, so_far)
            if kind == "stop":
                break
            news = tokens if kind == "forced" else [rng.choice(tokens)]
            if news[0] in vocab.eos:
                break
            so_far += news
        assert so_far in spellings
        guest.instance.close()


@pytest.fixture(scope="module")
def small() -> Vocab:
    """All bytes, and words: the longest match is canonical."""
    words = [b" London", b" L", b"ondon", b" Paris", b"Yes", b"No", b"Nothing", b"thing"]
    tokens = [*(bytes([b]) for b in range(256)), *words, b"<eos>"]
    return Vocab(tokens, eos=[len(tokens) - 1])


def words(vocab: Vocab, *texts: bytes) -> list[int]:
    return [vocab.tokens.index(text) for text in texts]


def test_a_choice_is_written_completely(program: Callable[[str], Program], small: Vocab) -> None:
    guest = Guest(program("choice"), small, '[" London", " Paris"]')
    assert guest.step().row.allowed == words(small, b" London", b" Paris")
    free = Guest(program("choice"), small, '[" London", " Paris"]', capabilities={CAP_FF_TOKENS: 1})
    assert free.step().row.allowed == sorted(words(small, b" ", b" London", b" L", b" Paris"))


def test_a_choice_does_not_continue_into_another(program: Callable[[str], Program], small: Vocab) -> None:
    """`Nothing` is a single token, so `No` is a complete text, not its beginning."""
    guest = Guest(program("choice"), small, '["No", "Nothing"]')
    assert guest.step().row.allowed == words(small, b"No", b"Nothing")
    assert guest.step(words(small, b"No")).row.verb == STOP


def test_tokens_outside_the_mask_must_still_spell_a_choice(
    program: Callable[[str], Program], small: Vocab
) -> None:
    """An engine, or a controller's own splice, may bring tokens that no row has allowed."""
    guest = Guest(program("choice"), small, '[" London", " Paris"]')
    guest.step()
    assert guest.step(words(small, b" L")).row.kind == TOKEN  # forced text, whatever its tokens
    with pytest.raises(ControllerFailed, match="does not allow it here"):
        guest.step(words(small, b"thing"))


def test_forks_choose_for_themselves(program: Callable[[str], Program], small: Vocab) -> None:
    guest = Guest(program("choice"), small, '["No", "Nothing", "No London", "No Paris"]')
    guest.step()
    guest.step(words(small, b"No"))
    child = guest.fork(2)
    assert guest.step(words(small, b" London")).row.verb == STOP
    assert child.step(words(small, b" Paris")).row.verb == STOP


def test_texts_that_cannot_be_spelled_are_refused(program: Callable[[str], Program]) -> None:
    with pytest.raises(ControllerFailed, match='the vocabulary has no tokens that spell "ac"'):
        Guest(program("choice"), Vocab([b"a", b"b"]), "ab\nac")


def test_long_texts_are_spelled_in_pieces(program: Callable[[str], Program], small: Vocab) -> None:
    """The host does not tokenize any number of bytes at once, nor take any number of tokens."""
    for length, pieces in ((4096, [4096]), (4097, [512] * 8 + [1])):
        guest = Guest(program("choice"), small, json.dumps(["x" * length]))
        news: list[int] = []
        found = []
        while (kind_tokens := answer(guest.step(news).row))[0] == "forced":
            news = kind_tokens[1]
            found.append(len(news))
        assert kind_tokens[0] == "stop"
        assert found == pieces
        assert max(map(len, guest.tokenized)) <= 4096


def test_many_texts(program: Callable[[str], Program], small: Vocab) -> None:
    texts = [f"{number:04} London" for number in range(3000)]
    guest = Guest(program("choice"), small, "\n".join(texts))
    assert len(guest.tokenized) == len(texts), "one question for each text, in the constructor"
    assert guest.step().row.allowed == [ord(digit) for digit in "012"]
    for digit in b"17":
        guest.step([digit])
    assert guest.step([ord("0")]).row.allowed == [ord(digit) for digit in "0123456789"]
    assert answer(guest.step([ord("5")]).row) == ("forced", words(small, b" London"))
    assert len(guest.tokenized) == len(texts)


def test_free_choices_allow_any_tokenization(program: Callable[[str], Program], small: Vocab) -> None:
    """The tests of forced text rely on this controller."""
    guest = Guest(program("free_choice"), small, '[" London", " Paris"]', capabilities={CAP_TOKENIZER: 1})
    assert guest.step().row.allowed == sorted(words(small, b" ", b" London", b" L", b" Paris"))
