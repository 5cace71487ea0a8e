"""Guests: instances of WebAssembly controllers under wasmtime.

The interface exposes neither wasmtime nor ctypes. The life of a guest, in calls of the worker::

    engine = WasmEngine(Limits())                      # once per process, before it is made undumpable
    ticker = Ticker(engine)                        # time limits; run guests inside ``with ticker:``
    linker = Linker(engine, host_functions({"read": read, ...}))   # callables (instance, *ints)
    program = Program.from_file(linker, artifact)  # once per module
    guest = Instance(program); guest.start()       # fresh; or start_from(snapshot)
    guest.call(Export.PRE)                         # runs to the end, on this thread's stack
    fiber = Fiber(guest, Export.MID); fiber.poll() # runs in slices of about 1 ms
    children = fork(guest, 3); snapshot = take_snapshot(guest)
    guest.close()

Rules:

* All guests of a process run on one thread.
* A host function must not call or clone guests.
* After a call has raised an exception, the guest can only be closed.
* Slices of `Instance.view` must not outlive the instance.
* No signal handler of the process may raise (see `WasmEngine`).
* Time in host functions counts as the guest's time unless they are `timed`, so each must be short.

Two points that may surprise:

* `map_readonly` makes private copy-on-write mappings. With a read-only page, a guest's store would
  trap. Its memory.fill or memory.copy, or a host function that writes to an address from the guest, would
  crash the process.
* Synchronous and asynchronous calls of one guest may follow each other. `Instance.view` covers the memory as
  of the last `refresh`; `check`, `read` and `write_memory` refresh it when they need to.
"""

from __future__ import annotations

from aicirt.contract.abi import ABI_VERSION, Export, known_imports
from aicirt.settings import Limits
from aicirt.wasm.engine import WasmEngine
from aicirt.wasm.fiber import Fiber, Ticker
from aicirt.wasm.host import GuestExit, HostFunction, Linker
from aicirt.wasm.imports import host_functions
from aicirt.wasm.instance import Instance
from aicirt.wasm.module.check import ModuleReport, check
from aicirt.wasm.module.reader import inspect
from aicirt.wasm.module.rewrite import rewrite
from aicirt.wasm.program import Program, Snapshot
from aicirt.wasm.snapshot import fork, map_readonly, start_from, take_snapshot

__all__ = [
    "ABI_VERSION",
    "Export",
    "Fiber",
    "GuestExit",
    "HostFunction",
    "Instance",
    "Limits",
    "Linker",
    "ModuleReport",
    "Program",
    "Snapshot",
    "Ticker",
    "WasmEngine",
    "check",
    "fork",
    "host_functions",
    "inspect",
    "known_imports",
    "map_readonly",
    "rewrite",
    "start_from",
    "take_snapshot",
]
