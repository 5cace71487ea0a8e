from __future__ import annotations

import pytest

from aicirt.contract.errors import UnknownControllerError
from aicirt.contract.modules import SHORTEST_ID, looks_like_id, resolve_name

ONE, TWO = "41d0f2c9aa17" + "0" * 52, "41d0f2c9aa17" + "1" * 52
OTHER = "f" * 64


def resolve(name: str, tags: dict[str, str] | None = None, shortest: int = 12) -> str:
    return resolve_name(name, lambda: [ONE, TWO, OTHER], (tags or {}).get, shortest)


def test_id_or_id_prefix_takes_precedence_over_tag() -> None:
    for name in (OTHER, OTHER[:63], OTHER[:12]):
        assert resolve(name, {name: ONE}) == OTHER
    assert resolve("f" * 8, {"f" * 8: ONE}, SHORTEST_ID) == OTHER
    assert resolve("f" * 8, {"f" * 8: ONE}) == ONE, "too short for an id here"
    assert resolve("f" * 7, {"f" * 7: ONE}, SHORTEST_ID) == ONE


def test_ambiguous_id_prefix_is_refused_even_if_a_tag_matches() -> None:
    with pytest.raises(UnknownControllerError, match="2 modules begin with '41d0f2c9aa17'"):
        resolve("41d0f2c9aa17", {"41d0f2c9aa17": OTHER})
    assert resolve(ONE[:13]) == ONE


def test_unknown_names_are_refused() -> None:
    for name in ("", "nothing", "f" * 11, "F" * 12, "*" * 12, "0" * 12):
        with pytest.raises(UnknownControllerError, match="no controller"):
            resolve(name)


def test_complete_id_needs_no_listing() -> None:
    def never() -> dict[str, str]:
        raise AssertionError("modules or tags were listed")

    assert resolve_name(ONE, never, never) == ONE


@pytest.mark.parametrize(("name", "looks"), [("f" * 7, False), ("f" * 8, True), ("f" * 65, False)])
def test_looks_like_id_depends_on_the_length(name: str, looks: bool) -> None:
    assert looks_like_id(name) == looks
