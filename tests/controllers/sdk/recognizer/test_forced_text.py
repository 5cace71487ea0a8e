"""Spliced tokens are a prefix of the canonical tokens, whatever text follows."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import Split

from aicirt.contract.abi import SPLICE
from aicirt.vocab.tokenizer import load_tokenizer
from aicirt.wasm import Program
from lab.runners.host import BITMASK, TOKEN, Guest, Mid, Vocab
from pyaici.tokens import load_vocabulary
from tests.pyaici.tokens.published import tokenizer_json
from tests.thorough import also, cases

#: byte-level BPE with different patterns; SentencePiece BPE with byte fallback and no words at all
TOKENIZERS = ["smollm2", "llama2", *also("llama3", "gemma3", "deepseek_v3", "gpt4o", "qwen3")]

TEXTS = [
    Path(__file__).read_text(),
    json.dumps(
        [{"name": "Ada Lovelace", "born": 1815, "works": ["Note G"], "height": -1.75e-3, "known": None}] * 3,
        indent=2,
    ),
    "The quick brown fox jumps over the lazy dog; it didn't care 1234567 times.\n\n\tShe'll say: don't!   \n",
    "Größe, naïveté, Ωμέγα и Москва — «да»… 東京都の人口は約1400万人です。日本語、한국어 텍스트, "
    "हिन्दी पाठ, עברית ١٢٣ 🙂👩\u200d🚀",
    '<div class="a b"><p>Text &amp; more</p></div>\r\n<!-- end -->\r\n<tool_call>{"name": "f"}</tool_call>',
    "x = [0.125, 1e10, 0xFF];  return  foo_bar(x)[::-1] ** 2 // 3  # comment\n    if a<=b&&c!=d: pass\n",
]


@pytest.fixture(scope="module", params=TOKENIZERS)
def vocab(request: pytest.FixtureRequest) -> Vocab:
    known = load_vocabulary(tokenizer_json(request.param))
    tokenizer = load_tokenizer(known.tokenizer.kind, known.tokenizer.data, known.tokens)
    return Vocab(known.tokens, special=sorted(known.special), eos=known.eos, tokenize=tokenizer)


def forced_tokens(mid: Mid) -> list[int]:
    if mid.kind == TOKEN:
        return [mid.token]
    assert mid.verb == SPLICE or mid.kind == BITMASK
    return mid.tokens


def cut(rng: random.Random, longest: int = 60) -> str:
    """A piece of some text."""
    text = rng.choice(TEXTS)
    start = rng.randrange(len(text))
    return text[start : start + rng.randint(1, longest)]


def test_settled_tokens_are_canonical(program: Callable[[str], Program], vocab: Vocab) -> None:
    rng = random.Random(1)
    forced, settled = 0, 0
    for _ in range(cases(80, 150)):
        beginning = cut(rng)
        endings = sorted({cut(rng, 12).encode() for _ in range(6)} | {b""})
        if rng.random() < 0.5:
            endings.remove(b"")
        texts = [beginning.encode() + ending for ending in endings]
        guest = Guest(program("free_choice"), vocab, json.dumps([text.decode() for text in texts]))
        tokens = forced_tokens(guest.step().row)
        for text in texts:
            assert vocab.tokenize(text)[: len(tokens)] == tokens, (text, beginning)
        forced += len(vocab.tokenize(beginning.encode()))
        settled += len(tokens)
        guest.instance.close()
    assert settled > 0.75 * forced, "most of a forced text is settled"


def test_settled_tokens_do_not_depend_on_what_follows(
    program: Callable[[str], Program], vocab: Vocab
) -> None:
    """Only the first byte of the following text is known, so settled tokens must hold for any text."""
    rng = random.Random(2)
    for _ in range(cases(80, 150)):
        beginning = cut(rng)
        followers = sorted({cut(rng, 20) for _ in range(60)})
        texts = [beginning + text[0] for text in followers]
        guest = Guest(program("free_choice"), vocab, json.dumps([*texts, beginning]))
        tokens = forced_tokens(guest.step().row)
        for text in followers:
            assert vocab.tokenize((beginning + text).encode())[: len(tokens)] == tokens, (beginning, text)
        guest.instance.close()


def test_whole_text_is_canonical(program: Callable[[str], Program], vocab: Vocab) -> None:
    """Text without a choice is appended at once, as the tokenizer splits it."""
    rng = random.Random(3)
    for _ in range(30):
        text = cut(rng)
        guest = Guest(program("free_choice"), vocab, json.dumps([text]))
        assert forced_tokens(guest.step().row) == vocab.tokenize(text.encode())
        guest.instance.close()


def test_rest_of_forced_text_is_free(program: Callable[[str], Program], vocab: Vocab) -> None:
    """Text that is not settled is sampled under masks that allow every spelling of it."""
    texts = [b'{"name": "Ada"}', b'{"name": "Bob"}', b'{"names": []}']
    guest = Guest(program("free_choice"), vocab, json.dumps([text.decode() for text in texts]))
    tokens = forced_tokens(guest.step().row)
    so_far = b"".join(vocab.tokens[token] for token in tokens)
    assert tokens and b'{"name'.startswith(so_far) and so_far != b'{"name'
    mid = guest.step(tokens).row
    assert mid.allowed == vocab.allowed(lambda token: any(text.startswith(so_far + token) for text in texts))
    guest.instance.close()


@pytest.mark.parametrize(("text", "follower"), [("x  ", "b"), ("x  ", "É"), ("x  ", "ж"), ("x   ", "7")])
def test_patterns_that_look_ahead(program: Callable[[str], Program], text: str, follower: str) -> None:
    """The last of several spaces belongs to the word after it, although no token shows this."""
    letters = sorted({*"xb7 ", "É", "ж"})
    vocabulary = {**{letter: i for i, letter in enumerate(letters)}, "  ": 6, "   ": 7}
    tokenizer = Tokenizer(BPE(vocabulary, merges=[(" ", " "), ("  ", " ")]))
    tokenizer.pre_tokenizer = Split(Regex(r"\s+(?!\S)| ?\w+|\s+"), "isolated")
    vocab = Vocab(
        [piece.encode() for piece in vocabulary],
        tokenize=lambda data: tokenizer.encode(data.decode()).ids,
    )
    guest = Guest(program("free_choice"), vocab, json.dumps([text, text + follower]))
    tokens = forced_tokens(guest.step().row)
    whole, alone = (vocab.tokenize(t.encode()) for t in (text + follower, text))
    assert whole[: len(tokens)] == tokens
    assert whole[: len(alone)] != alone, "the case is not the one that is meant"
