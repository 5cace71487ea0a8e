"""Controllers asked byte by byte, and random texts of theirs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from aicirt.contract.errors import AiciError, ArgumentError
from pyaici.build import build_controller
from pyaici.testing.texts import Place, Texts, Verdict, sample_texts

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


def test_places(texts: Texts) -> None:
    assert texts.start == Place("(é".encode()[:2], False)
    assert texts.after(b"(ab") == Place(b")abcdefghijklmnopqrstuvwxyz", False)
    assert texts.after(b"(abc)\xc3") == Place(b"\xa9", False)
    assert texts.after("é".encode()) == Place(b"(\xc3", True)
    assert texts.after(b"(abcd") is None


@pytest.mark.parametrize(
    ("text", "accepted", "good"),
    [(b"(a)()", True, 5), (b"", False, 0), (b"(a", False, 2), (b"(abcd)", False, 4), (b"x", False, 0)],
)
def test_verdicts(texts: Texts, text: bytes, accepted: bool, good: int) -> None:
    place = texts.after(text[:good])
    assert place is not None
    assert texts.judge(text) == Verdict(accepted, good, place)


def test_a_long_text(texts: Texts) -> None:
    """Longer than what is told in one step; what is wrong in it is found."""
    text = b"(abc)" * 2500
    assert texts.judge(text).accepted
    assert texts.judge(text[:9001] + b"!" + text[9001:]).good == 9001


def test_what_the_controller_says(regex: Path) -> None:
    with pytest.raises(ArgumentError, match="this group is not closed"):
        Texts(regex, "(a")
    with pytest.raises(AiciError):
        Texts("no-such-controller", "")


def test_samples_are_texts(texts: Texts) -> None:
    found = sample_texts(texts, 12, length=20, seed=3)
    assert len(found) == 12 and len(set(found)) > 6
    for text in found:
        assert re.fullmatch(r"(?:\([a-z]{0,3}\)|é)+", text.decode())
    assert found == sample_texts(texts, 12, length=20, seed=3)
    assert found != sample_texts(texts, 12, length=20, seed=4)


def test_samples_come_to_an_end(regex: Path) -> None:
    """Brackets that were opened are closed, quotes too; where there is no end near there are no samples."""
    with Texts(regex, r'(?:\{(?:"[a-z]*",)*){1,30}\}{30}\.') as texts:
        for text in sample_texts(texts, 4, length=10, seed=1):
            assert text.endswith(b"}" * 30 + b".")
    with Texts(regex, "[a-z]{500}") as texts:
        assert sample_texts(texts, 2, length=5, seed=1) == []
