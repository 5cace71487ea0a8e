"""The SDK's layers stay small, since every controller contains them."""

from __future__ import annotations

from pathlib import Path

from pyaici.toolchain import build_controller, find_sdk
from tests.controllers.conftest import CONTROLLERS


def test_three_layers(tmp_path: Path) -> None:
    probe = build_controller(find_sdk().root / "size_probe.cpp", tmp_path / "probe.wasm")
    assert probe.size <= 40_000


def test_unused_code_is_not_linked(tmp_path: Path) -> None:
    """printf, which the C++ library would use for its final message, takes 20 kB by itself."""
    assert build_controller(CONTROLLERS / "uppercase", tmp_path / "uppercase.wasm").size <= 25_500
    assert build_controller(CONTROLLERS / "yesno", tmp_path / "yesno.wasm").size <= 4_000
    assert build_controller(CONTROLLERS / "yesno_zig", tmp_path / "yesno_zig.wasm").size <= 4_000
