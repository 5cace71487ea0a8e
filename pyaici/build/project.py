"""Builds every controller of a source tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from .controller import SOURCE_SUFFIXES, Built, build_controller
from .errors import BuildError, MissingSources
from .interpreters import SHARED
from .sdk import Sdk, source_tree
from .toolchain import Toolchain


def controller_folders(root: Path) -> list[Path]:
    """Returns the folders of ``root/controllers`` that contain sources, except for shared folders."""
    folders = sorted(p for p in (root / "controllers").iterdir() if p.is_dir() and p.name not in _SHARED)
    return [f for f in folders if any(p.suffix in SOURCE_SUFFIXES for p in f.iterdir())]


def build_all(
    out_dir: Path | str, *, root: Path | None = None, tools: Toolchain | None = None
) -> list[Built]:
    """Builds each folder ``controllers/NAME`` below `root` to ``out_dir/NAME.wasm``.

    `root` is the source tree, by default the one that this package runs from.

    Skips a controller on an interpreter whose sources are missing.

    Raises:
        BuildError: there is no source tree, or a controller does not compile.
    """
    return list(iter_build(Path(out_dir), root=root, tools=tools))


def iter_build(out_dir: Path, *, root: Path | None = None, tools: Toolchain | None = None) -> Iterator[Built]:
    """Builds as `build_all`, yielding one module at a time; reports skipped interpreters to `progress`."""
    root = root or source_tree()
    if root is None:
        raise BuildError(
            "there is no source tree to build: an installed package has its controllers built already"
        )
    tools = tools or Toolchain()
    sdk = Sdk(root / "controllers" / "sdk")
    for folder in controller_folders(root):
        try:
            yield build_controller(folder, out_dir / f"{folder.name}.wasm", sdk=sdk, tools=tools)
        except MissingSources as error:
            tools.progress(f"{folder.name} is not built: {error}")
    probe = sdk.root / PROBE
    if probe.is_file():
        yield build_controller([probe], tools.cache / "size" / f"{PROBE_NAME}.wasm", sdk=sdk, tools=tools)


def remove_stale(out_dir: Path, built: Iterable[Built]) -> None:
    """Removes the modules in `out_dir` that are not in `built`, because their controllers no longer exist."""
    names = {module.path.name for module in built}
    for path in out_dir.glob("*.wasm"):
        if path.name not in names:
            path.unlink()


#: folders of controllers/ that are not controllers
_SHARED = ("sdk", SHARED)
#: a controller that uses only the SDK's three layers, to measure their size
PROBE = "size_probe.cpp"
PROBE_NAME = "size.three_layers"
