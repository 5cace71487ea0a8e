"""Self-check of the platform features that guests need: `python -m aicirt.wasm.selfcheck`.

Creating the ticker includes a check that it interrupts a guest.
"""

from __future__ import annotations

import wasmtime

from aicirt.wasm.engine import WasmEngine
from aicirt.wasm.fiber import Ticker


def main() -> None:
    """Prints a line for each feature that works. Raises the error of the first that fails."""
    engine = WasmEngine()
    ticker = Ticker(engine)
    module = wasmtime.Module(engine.wasmtime, '(module (func (export "trap") unreachable))')
    store = wasmtime.Store(engine.wasmtime)
    store.set_epoch_deadline(1 << 40)
    trap = wasmtime.Instance(store, module, []).exports(store)["trap"]
    assert isinstance(trap, wasmtime.Func)
    try:
        trap(store)
    except wasmtime.Trap:
        print("guests")
    print("changes", type(engine.changes).__name__)
    ticker.close()


if __name__ == "__main__":
    main()
