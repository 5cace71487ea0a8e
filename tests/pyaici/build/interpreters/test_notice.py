"""The license notices that accompany the compiled interpreters."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyaici.build import Toolchain, find_sdk, notices

CONTROLLERS = find_sdk().root.parent


@pytest.mark.parametrize(
    ("folder", "name", "owners"),
    [
        ("pyctrl", "MicroPython.txt", ["2013, 2014 Damien P. George", "2014-2018 Paul Sokolovsky"]),
        ("jsctrl", "QuickJS-ng.txt", ["2017-2026 Fabrice Bellard", "2023-2026 Saúl Ibarra Corretgé"]),
    ],
)
def test_notice_has_the_copyright_owners_and_the_permission(
    folder: str, name: str, owners: list[str], network: Path
) -> None:
    folders = [CONTROLLERS / folder, CONTROLLERS / "yesno"]
    made = notices(folders, Toolchain(network))
    assert list(made) == [name]
    lines = made[name].read_text().splitlines()
    for owner in owners:
        assert f"Copyright (c) {owner}" in lines
    text = " ".join(lines)
    assert "Permission is hereby granted, free of charge, to any person obtaining a copy of this" in text
    assert text.rstrip().endswith("OR OTHER DEALINGS IN THE SOFTWARE.")
    assert "*" not in text
