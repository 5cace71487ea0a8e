from __future__ import annotations

import pytest

from aicirt.contract.errors import UnknownModuleError
from aicirt.contract.modules import SHORTEST_ID, looks_like_id, resolve_name

ONE, TWO = "41d0f2c9aa17" + "0" * 52, "41d0f2c9aa17" + "1" * 52
OTHER = "f" * 64


def resolve(name: str, tags: dict[str, str] | None = None, shortest: int = 12) -> str:
    return resolve_name(name, lambda: [ONE, TWO, OTHER], lambda: tags or {}, shortest)


def test_ids_and_their_beginnings_win_over_tags() -> None:
    for name in (OTHER, OTHER[:63], OTHER[:12]):
        assert resolve(name, {name: ONE}) == OTHER
    assert resolve("f" * 8, {"f" * 8: ONE}, SHORTEST_ID) == OTHER
    assert resolve("f" * 8, {"f" * 8: ONE}) == ONE, "too short for an id here"
    assert resolve("f" * 7, {"f" * 7: ONE}, SHORTEST_ID) == ONE


def test_several_ids_that_begin_alike_are_no_reason_to_take_a_tag() -> None:
    with pytest.raises(UnknownModuleError, match="2 modules begin with '41d0f2c9aa17'"):
        resolve("41d0f2c9aa17", {"41d0f2c9aa17": OTHER})
    assert resolve(ONE[:13]) == ONE


def test_unknown_names_are_refused() -> None:
    for name in ("", "nothing", "f" * 11, "F" * 12, "*" * 12, "0" * 12):
        with pytest.raises(UnknownModuleError, match="no module or tag"):
            resolve(name)


def test_nothing_is_listed_for_a_whole_id() -> None:
    def never() -> dict[str, str]:
        raise AssertionError("it was listed")

    assert resolve_name(ONE, never, never) == ONE


@pytest.mark.parametrize(("name", "looks"), [("f" * 7, False), ("f" * 8, True), ("f" * 65, False)])
def test_lengths_that_count_as_ids(name: str, looks: bool) -> None:
    assert looks_like_id(name) == looks
