"""The bytes that a controller allows at each position, and random texts that it accepts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from aicirt.contract.errors import AiciError, ArgumentError
from pyaici.testing.texts import Place, Texts, Verdict, sample_texts
from pyaici.toolchain import build_controller

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def regex(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_controller(
        ROOT / "controllers" / "regex", tmp_path_factory.mktemp("wasm") / "regex.wasm"
    ).path


@pytest.fixture(scope="module")
def texts(regex: Path) -> Iterator[Texts]:
    with Texts(regex, r"(?:\([a-z]{0,3}\)|é)+") as texts:
        yield texts


def test_allowed_bytes_at_each_position(texts: Texts) -> None:
    assert texts.start == Place("(é".encode()[:2], False)
    assert texts.after(b"(ab") == Place(b")abcdefghijklmnopqrstuvwxyz", False)
    assert texts.after(b"(abc)\xc3") == Place(b"\xa9", False)
    assert texts.after("é".encode()) == Place(b"(\xc3", True)
    assert texts.after(b"(abcd") is None


@pytest.mark.parametrize(
    ("text", "accepted", "good"),
    [(b"(a)()", True, 5), (b"", False, 0), (b"(a", False, 2), (b"(abcd)", False, 4), (b"x", False, 0)],
)
def test_verdict_names_the_length_of_the_valid_prefix(
    texts: Texts, text: bytes, accepted: bool, good: int
) -> None:
    place = texts.after(text[:good])
    assert place is not None
    assert texts.judge(text) == Verdict(accepted, good, place)


def test_long_text_and_an_error_within_it(texts: Texts) -> None:
    """Uses a text that is longer than one step can send."""
    text = b"(abc)" * 2500
    assert texts.judge(text).accepted
    assert texts.judge(text[:9001] + b"!" + text[9001:]).good == 9001


def test_errors_of_the_controller_are_raised(regex: Path) -> None:
    with pytest.raises(ArgumentError, match="this group is not closed"):
        Texts(regex, "(a")
    with pytest.raises(AiciError):
        Texts("no-such-controller", "")


def test_samples_are_accepted_texts_and_depend_on_the_seed(texts: Texts) -> None:
    found = sample_texts(texts, 12, length=20, seed=3)
    assert len(found) == 12 and len(set(found)) > 6
    for text in found:
        assert re.fullmatch(r"(?:\([a-z]{0,3}\)|é)+", text.decode())
    assert found == sample_texts(texts, 12, length=20, seed=3)
    assert found != sample_texts(texts, 12, length=20, seed=4)


def test_samples_end_and_are_empty_if_no_end_is_near(regex: Path) -> None:
    """Samples close open brackets and quotes. If no end is near, there are no samples."""
    with Texts(regex, r'(?:\{(?:"[a-z]*",)*){1,30}\}{30}\.') as texts:
        found = sample_texts(texts, 4, length=10, seed=1)
        assert len(found) == 4
        for text in found:
            assert text.endswith(b"}" * 30 + b".")
    with Texts(regex, "[a-z]{500}") as texts:
        assert sample_texts(texts, 2, length=5, seed=1) == []
