"""Guests: WebAssembly controllers under wasmtime. Nothing outside sees wasmtime or ctypes.

Life of a guest, by the functions that a worker calls::

    engine = Engine(Limits())                      # once per process, before it is made undumpable
    ticker = Ticker(engine)                        # time limits; ``with ticker:`` around guests
    linker = Linker(engine, host_functions({"read": read, ...}))   # callables (instance, *ints)
    program = Program.from_file(linker, artifact)  # once per module
    guest = Instance(program); guest.start()       # fresh; or Instance.from_snapshot(snapshot)
    guest.call(Export.PRE)                         # to the end, on this thread's stack
    fiber = Fiber(guest, Export.MID); fiber.poll() # in slices of about 1 ms
    children = guest.fork_many(3); snapshot = guest.snapshot()
    guest.close()

Rules: one thread; a host function does not call or clone guests; an exception from a call
leaves the guest failed, it can only be closed; slices of `Instance.view` do not outlive the
instance; no signal handler of the process raises (see `Engine`); the sum of host functions in
one guest call is counted as the guest's time unless they are `timed`, so bound what each does.

Two things that one might expect otherwise:

* `Instance.map_readonly` makes private copy-on-write mappings. A read-only page would turn a
  guest's store into a trap, but its memory.fill or memory.copy, and any host function that
  writes where the guest says, into a crash of the process.
* A synchronous call may be mixed with asynchronous ones on one guest, one after the other;
  `Instance.view` covers the memory as of the last `refresh`: `check`, `read` and `write`
  refresh it when they need to.
"""

from __future__ import annotations

from aicirt.contract.abi import ABI_VERSION, Export, known_imports
from aicirt.settings import Limits
from aicirt.wasm.engine import Engine, Ticker
from aicirt.wasm.fiber import Fiber
from aicirt.wasm.host import GuestExit, HostFunction, Linker
from aicirt.wasm.imports import host_functions
from aicirt.wasm.instance import Instance
from aicirt.wasm.module.check import ModuleReport, check
from aicirt.wasm.module.reader import inspect
from aicirt.wasm.module.rewrite import rewrite
from aicirt.wasm.program import Program
from aicirt.wasm.snapshot import Snapshot

__all__ = [
    "ABI_VERSION",
    "Engine",
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
    "check",
    "host_functions",
    "inspect",
    "known_imports",
    "rewrite",
]
