"""Lets the stores of one run of pytest share the compiled code of bundled controllers.

wasmtime takes 3 s for each of the bundled interpreters, in every store. A store that is passed to `share`
gives what it has compiled to the others before the next test begins, and takes what they have compiled, in
all processes of pytest-xdist. The first use of a controller in a run compiles it, as for users. Nothing is
kept for later runs. Tests of uploading and compiling use stores that are not passed. `code_of` does the same
for guests that run in the processes of tests.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path

from aicirt.system.files import private_directory
from aicirt.wasm import WasmEngine
from aicirt.wasm.program import compile_module, serialize
from pyaici.bundled import bundled_controllers

#: a store in the temporary folder of this run, which no daemon uses; None without a run
_common: Path | None = None
#: the stores of this process
_stores: list[Path] = []
#: when the folders of compiled code were changed last, by store: as they were at the last exchange
_seen: dict[Path, tuple[int, int]] = {}


def share(store: Path) -> Path:
    """Lets a store have the code of bundled controllers that this run has compiled. Returns its folder."""
    if store not in _stores:
        _stores.append(store)
    _exchange(store)
    return store


@contextlib.contextmanager
def common_code(folder: Path) -> Iterator[None]:
    """Keeps the code in a folder that the processes of a run have in common."""
    global _common
    _common = folder
    try:
        yield
    finally:
        _common = None
        _stores.clear()
        _seen.clear()


def code_of(engine: WasmEngine, wasm: bytes, kind: str = "") -> bytes:
    """Returns the code of any module, for use without a store. The processes of a run compile it once.

    `kind` is the name of the engine's configuration, if it is not the usual one.
    """
    if _common is None:
        return serialize(compile_module(engine, wasm))
    file = _common / "programs" / f"{hashlib.sha256(wasm).hexdigest()}{kind}"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            new = file.with_suffix(".new")
            new.write_bytes(serialize(compile_module(engine, wasm)))
            new.rename(file)
    return file.read_bytes()


def exchange() -> None:
    """Gives and takes code, for all stores of this process."""
    for store in _stores:
        _exchange(store)


def _exchange(store: Path) -> None:
    if _common is None:
        return
    changed = _changed(_common), _changed(store)
    if _seen.get(store) != changed:
        _common.mkdir(exist_ok=True)
        with (_common / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _give(store, _common)
            _give(_common, store)
        _seen[store] = changed


def _changed(store: Path) -> int:
    """Returns when the code in a store was changed last; 0 if there is none."""
    try:
        return (store / "compiled").stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _give(source: Path, target: Path) -> None:
    """Links modules with their code into another store. Files are never changed, only replaced."""
    for described in (source / "compiled").glob("*.json"):
        module, name = described.name.partition("-")[0], Path("compiled", described.name)
        if module not in _bundled() or (target / name).exists():
            continue
        private_directory(target / "compiled")
        (target / "modules").mkdir(exist_ok=True)
        # the store removes them in another order
        with contextlib.suppress(FileNotFoundError):
            # the description is the last file, as in the store itself
            for file in (Path("modules", f"{module}.wasm"), name.with_suffix(".compiled"), name):
                with contextlib.suppress(FileExistsError):
                    (target / file).hardlink_to(source / file)


@functools.cache
def _bundled() -> frozenset[str]:
    """Returns the ids of the bundled controllers."""
    return frozenset(hashlib.sha256(path.read_bytes()).hexdigest() for path in bundled_controllers().values())
