"""Names in docs/structure.md and docs/extending.md exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("page", ["docs/structure.md", "docs/extending.md"])
def test_names_in_the_text_exist(page: str) -> None:
    """Checks paths and dotted names in backquotes, such as `pyaici.client.runtime.Runtime.begin_step`."""
    text = (ROOT / page).read_text()
    for name in re.findall(r"`([\w./+-]+)`", text):
        if "/" in name and "NAME" not in name:  # NAME is the reader's
            assert (ROOT / name).exists(), f"{page} names {name}"
        elif re.match(r"(aicirt|pyaici|lab)\.[\w.]+$", name):
            assert resolves(name), f"{page} names {name}"


def resolves(dotted: str) -> bool:
    """Returns whether a module with this name exists, or a module that defines the rest of the name.

    Reads the source instead of importing it, since an engine's module needs the engine.
    """
    parts = dotted.split(".")
    for split in range(len(parts), 0, -1):
        module = ROOT.joinpath(*parts[:split])
        file = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
        if module.is_dir() and split == len(parts):
            return True
        if file.is_file():
            text = file.read_text()
            defined = all(
                re.search(rf"\b(class|def) {re.escape(p)}\b|^ *{re.escape(p)}\b.*=", text, re.M)
                for p in parts[split:]
            )
            exported = (
                re.search(rf"\bimport\b.*\b{re.escape(parts[split])}\b", text) if split < len(parts) else None
            )
            return defined or exported is not None
    return False


def test_unknown_names_do_not_resolve() -> None:
    assert resolves("pyaici.toolchain")
    assert resolves("pyaici.toolchain.zig.Toolchain.run")
    assert not resolves("pyaici.toolchain.zig.Toolchain.unlock")
    assert not resolves("pyaici.nowhere")
