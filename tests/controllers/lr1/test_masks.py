"""Masks of grammars are right: each token is allowed exactly if its bytes are, one after the other."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
import pytest

from lab.runners.host import Vocab
from pyaici.bundled import bundled_grammars
from pyaici.tokens import load_vocabulary
from tests.controllers.lr1.c_sources import MUSL
from tests.controllers.lr1.conftest import Bundled
from tests.controllers.lr1.recognizer import Probe, Recognizer
from tests.pyaici.tokens.published import tokenizer_json
from tests.thorough import cases

JSON = '{"a": [1, -2.5e3, true, null], "b\\u00e9\\n": {"": "x y  z"}}\n'
SQL = """WITH w(a) AS (SELECT 1) select t.a, count(*) AS "n" FROM t -- comment
left join u using (a) WHERE a between 1 and 2.5 or b like 'it''s %' order by 1;"""
SUM = "f(a, (1.5 + b2) * -3 ** x // 0x1F, ) % 7 "


@pytest.fixture(scope="module")
def real() -> Vocab:
    """A vocabulary of some 49 000 tokens for texts and programs."""
    known = load_vocabulary(tokenizer_json("smollm2"))
    return Vocab(known.tokens, special=sorted(known.special), eos=known.eos)


def check(made: Recognizer, vocab: Vocab, at: int, tokens: Iterable[int]) -> int:
    """Returns how many of these tokens are allowed there."""
    mask = made.mask(at)
    allowed = 0
    for token in tokens:
        expected = made.may_come(at, vocab.tokens[token])
        assert mask[token] == expected, (at, token, vocab.tokens[token])
        allowed += expected
    return allowed


def test_c_with_a_real_vocabulary(probe: Probe, real: Vocab) -> None:
    """Twice, since masks are put together from what was found before."""
    rng = random.Random(10)
    made = Recognizer(probe, real, bundled_grammars()["c.y"].read_text())
    count, allowed = 0, 0
    for name in ("math/pow.c", "stdio/vfprintf.c", "regex/tre-mem.c"):
        text = (MUSL / "src" / name).read_bytes()
        whole = made.walk(text)
        assert whole > 1000
        places = [rng.randint(0, whole) for _ in range(cases(8, 24))]
        for at in places * 2:
            tokens = rng.sample(real.text, 200)
            count += len(tokens)
            allowed += check(made, real, at, tokens)
    assert count // 20 < allowed < count - count // 20


@pytest.mark.parametrize(("name", "text"), [("json.y", JSON), ("sql.y", SQL), ("arithmetic.y", SUM)])
def test_other_grammars_with_a_real_vocabulary(probe: Probe, real: Vocab, name: str, text: str) -> None:
    rng = random.Random(11)
    made = Recognizer(probe, real, bundled_grammars()[name].read_text())
    assert made.walk(text.encode()) == len(text.encode())
    places = [*range(0, len(text), cases(3, 1))] * 2
    allowed = sum(check(made, real, at, rng.sample(real.text, 50)) for at in places)
    assert 0 < allowed < 50 * len(places)


def test_every_token_of_small_vocabularies(probe: Probe) -> None:
    """Tokens cut out of the text itself, with changes, so that most go on as it does."""
    rng = random.Random(12)
    text = (MUSL / "src" / "regex" / "tre-mem.c").read_bytes()
    for _ in range(cases(1, 3)):
        pieces = {bytes([byte]) for byte in range(256)}
        while len(pieces) < 1200:
            begin = rng.randrange(len(text))
            piece = bytearray(text[begin : begin + rng.randint(2, 12)])
            if rng.random() < 0.5:
                piece[rng.randrange(len(piece))] = rng.choice(b" \n\t;*()x0\"'/#{}=,.\xc3\xa9")
            pieces.add(bytes(piece))
        vocab = Vocab([*sorted(pieces), b"<eos>"], eos=[len(pieces)])
        made = Recognizer(probe, vocab, bundled_grammars()["c.y"].read_text())
        whole = made.walk(text)
        assert whole > 3000
        for at in [rng.randint(0, whole) for _ in range(10)]:
            assert check(made, vocab, at, vocab.text) > 10


def test_a_mask_does_not_depend_on_earlier_masks(bundled: Bundled) -> None:
    """Visits the same places in another order: data that is cached between masks must be valid for all."""
    text = (MUSL / "src" / "stdio" / "vfprintf.c").read_bytes()[:6000]
    made = bundled("c.y")
    whole = made.walk(text)
    places = list(range(0, whole, 61))
    forward = {at: made.mask(at) for at in places}
    random.Random(13).shuffle(places)
    assert all(np.array_equal(made.mask(at), forward[at]) for at in places)
