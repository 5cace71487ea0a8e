"""The controllers that come with the package."""

from __future__ import annotations

from pathlib import Path

from aicirt.errors import UnknownModuleError

FOLDER = Path(__file__).resolve().parent / "_wasm"


def bundled_controllers() -> dict[str, Path]:
    """Name and file of each, sorted by name; empty in a source tree that has not been built."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.wasm"))}


def find_controller(name: str | Path) -> Path:
    """The Wasm file that `name` means: a path to one, or the name of a bundled controller.

    Raises:
        UnknownModuleError: it is neither; the message lists the bundled ones.
    """
    path = Path(name)
    if path.is_file():
        return path
    bundled = bundled_controllers()
    if str(name) in bundled:
        return bundled[str(name)]
    if path.is_dir():
        raise UnknownModuleError(f"{path} is a folder; build it first: aici build {path}")
    known = ", ".join(bundled) or "none: this source tree is not built, run python -m pyaici.build"
    raise UnknownModuleError(
        f"no file and no bundled controller is called {str(name)!r}; bundled are: {known}"
    )
