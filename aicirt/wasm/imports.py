"""Everything that a controller may import."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from aicirt.errors import RuntimeFailure
from aicirt.wasm import wasi
from aicirt.wasm.abi import IMPORT_MODULE, IMPORTS
from aicirt.wasm.host import HostCallable, HostFunction
from aicirt.wasm.reader import FuncType


def known_imports() -> dict[tuple[str, str], FuncType]:
    """Type of every function that a controller may import, by (module, name)."""
    known = {(IMPORT_MODULE, name): kind for name, kind in IMPORTS.items()}
    known.update({(wasi.MODULE, name): wasi.signature(name) for name in wasi.SIGNATURES})
    return known


def host_functions(calls: Mapping[str, HostCallable], timed: Collection[str] = ()) -> list[HostFunction]:
    """Our part of WASI, and module ``aici`` from `calls`: one callable per name of aici.h.

    A callable takes (instance, *unsigned ints) and returns an int, or None if the import has
    no result. Those in `timed` may take long: see `HostFunction`.
    Raises `RuntimeFailure` if a name is missing or unknown.
    """
    if calls.keys() != IMPORTS.keys():
        wrong = sorted(calls.keys() ^ IMPORTS.keys())
        raise RuntimeFailure(f"host functions do not fit aici.h: {', '.join(wrong)}")
    own = [HostFunction(IMPORT_MODULE, n, kind, calls[n], n in timed) for n, kind in IMPORTS.items()]
    return own + wasi.functions()
