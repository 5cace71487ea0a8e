"""Vocabularies: invalid values, the fingerprint, and the registration with the runtime."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicirt.contract.errors import VocabularyError
from aicirt.vocab.image import build_image
from pyaici.tokens import TokenizerBlob, Vocabulary

SMALL = Vocabulary(
    tokens=[b"", b"a", b"b", b"ab", b""],
    special_names={0: "<s>", 4: "</s>"},
    eos=(4,),
    bos=0,
    vocab_size=8,
    name="small",
)


def test_defaults_of_a_vocabulary() -> None:
    known = Vocabulary([b"a", b""])
    assert (known.vocab_size, known.special, known.eos, known.tokenizer.kind) == (
        2,
        frozenset(),
        (),
        "greedy",
    )
    assert known.tokenizer_json is None


def test_decode_joins_bytes_and_refuses_unknown_tokens() -> None:
    assert SMALL.decode([0, 3, 1, 7, 4]) == b"aba"
    for token in (8, -1):
        with pytest.raises(IndexError, match="not below the vocabulary size 8"):
            SMALL.decode([token])


def test_ending_with_adds_eos_tokens() -> None:
    ends = SMALL.ending_with([3, 4, 3, 6])
    assert ends.eos == (4, 3, 6)  # the vocabulary's own eos token comes first
    assert ends.tokens == [b"", b"a", b"b", b"", b""]
    assert ends.special_names == {0: "<s>", 3: "ab", 4: "</s>"}
    with pytest.raises(VocabularyError, match="eos token is 8"):
        SMALL.ending_with([8])


def test_cut_removes_tokens_beyond_a_size() -> None:
    narrow = SMALL.cut(3)
    assert (narrow.tokens, narrow.special_names, narrow.eos, narrow.bos) == (
        SMALL.tokens[:3],
        {0: "<s>"},
        (),
        0,
    )
    assert SMALL.cut(100) == replace(SMALL, vocab_size=100)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 4}, "Vocabulary.cut"),
        ({"special_names": {1: "<x>"}}, "also has bytes"),
        ({"special_names": {9: "<x>"}}, "not below 8"),
        ({"eos": (4, 8)}, "eos token is 8"),
        ({"eos": (1,)}, "Vocabulary.ending_with"),
        ({"bos": 8}, "bos token is 8"),
        ({"pad": -1}, "pad token is -1"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(VocabularyError, match=message):
        replace(SMALL, **changes)


def test_no_tokens_are_refused() -> None:
    with pytest.raises(VocabularyError):
        Vocabulary([])


def test_fingerprint_is_the_same_in_another_process() -> None:
    program = (
        "from pyaici.tokens import Vocabulary\n"
        "print(Vocabulary(tokens=[b'', b'a', b'b', b'ab', b''], special_names={4: '</s>', 0: '<s>'}, "
        "eos=(4,), bos=0, vocab_size=8, name='another').fingerprint)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "77"},
    )
    assert done.stdout.strip() == SMALL.fingerprint
    assert len(SMALL.fingerprint) == 64


@pytest.mark.parametrize(
    "changes",
    [
        {"tokens": [b"", b"a", b"b", b"a", b""]},
        {"tokens": [b"", b"ab", b"", b"ab", b""]},
        {"special_names": {0: "<s>"}},
        {"special_names": {0: "<s>", 4: "<e>"}},
        {"eos": (4, 0)},
        {"eos": ()},
        {"bos": None},
        {"pad": 0},
        {"unk": 0},
        {"vocab_size": 9},
        {"tokenizer": TokenizerBlob("longest")},
        {"tokenizer": TokenizerBlob("greedy", b"x")},
        {"turns": b"four"},
    ],
)
def test_fingerprint_depends_on_every_field_but_the_name(changes: dict[str, Any]) -> None:
    assert replace(SMALL, **changes).fingerprint != SMALL.fingerprint


@given(
    st.lists(st.binary(max_size=3), min_size=1, max_size=5),
    st.lists(st.binary(max_size=3), min_size=1, max_size=5),
)
def test_fingerprints_of_different_token_lists_differ(one: list[bytes], other: list[bytes]) -> None:
    assert (Vocabulary(one).fingerprint == Vocabulary(other).fingerprint) == (one == other)


def test_registration_builds_an_image() -> None:
    """The image builder accepts the registration after a round trip through msgpack."""
    registration = msgpack.unpackb(msgpack.packb(SMALL.registration()), strict_map_key=False)
    registration.pop("tokenizer_kind")
    registration.pop("tokenizer_data")
    image = build_image(registration.pop("tokens"), **registration)
    assert int.from_bytes(image[12:16], "little") == 8
