"""`python -m aicirt.wasm.selfcheck`: tries what guests need, and says what works.

The ticker, when it is made, sees itself interrupt a guest.
"""

from __future__ import annotations

import wasmtime

from aicirt.wasm.engine import Engine, Ticker


def main() -> None:
    """Prints a line for each thing that works. Raises what the first that does not fails with."""
    engine = Engine()
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
