"""A simulated daemon: supervisor, builder and workers as objects of this process, with a clock of their own.

The code of the daemon, the client and the guests is the real one. These parts stand in:

- Time. The clock advances with the instructions that guests execute, by a constant for every reading, and to
  the next event when nothing is left to do. No computer is too slow or too busy for it.
- Order. One thread runs everything. A seed, if there is one, chooses which part runs next; otherwise all
  take turns. A part runs until it would wait: a worker handles one message, one call or one slice at a time.
- Processes. Workers and compilers have none, so they cannot die, have no sandbox, and use this process's
  memory. Sockets, shared memory and files are real; doorbells run the world.

tests/pyaici/client/test_orders.py compares it with a real daemon.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import hashlib
import itertools
import os
import random
import select
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, ClassVar, NamedTuple

import wasmtime

from aicirt.contract.modules import ControllerInfo
from aicirt.ipc import segment
from aicirt.ipc.frames import FrameSocket, frame
from aicirt.ipc.ring import Doorbell, Ring
from aicirt.modules import compiler, store
from aicirt.modules.compile import CompileLimits
from aicirt.settings import Limits, WorkerConfig
from aicirt.supervisor import server, vocabularies, workers
from aicirt.system import silence
from aicirt.system.files import Descriptor
from aicirt.system.processes import Start, User
from aicirt.wasm import engine as wasm_engine
from aicirt.wasm import fiber, host, raw
from aicirt.wasm.engine import WasmEngine
from aicirt.wasm.host import HostFunction, Linker
from aicirt.wasm.imports import host_functions
from aicirt.wasm.module.check import check
from aicirt.worker import loop, memory, scheduling, steps, templates
from aicirt.worker.hostapi import CALLS, TIMED
from aicirt.worker.loop import Worker
from aicirt.worker.process import Controls
from lab.runners.compiled import code_of
from pyaici.client import channel, control, runtime
from pyaici.client import step as client_step

#: instructions (wasmtime's fuel) that a guest executes in a millisecond, which is the ticker's period
FUEL_OF_A_TICK = 1_000_000
#: time that passes when somebody reads the clock
_READING_NS = 1000
#: CPU time of a slow host function for each byte of its last argument
_BYTE_NS = 1000
#: CPU time of compiling a module: at least, and for each byte
_COMPILE_NS, _COMPILE_BYTE_NS = 10_000_000, 100
_ALL_FUEL = (1 << 63) - 1
#: open files after which garbage is collected
_MANY_FILES = 200
#: rounds without an event after which a simulation must hang
_MAX_ROUNDS = 2_000_000


class World:
    """All simulated daemons and their clients, the clock, and the order of events. One may be open at a time.

    While it is open, every `Runtime` of this process is a client of simulated daemons, and `Runtime()`
    starts one.
    """

    #: the world that is open
    current: ClassVar[World | None] = None

    def __init__(self, seed: int | None = None, *modules: ModuleType) -> None:
        """`modules`: of tests, in which `time` becomes the world's clock, and `Daemon` the simulated one."""
        self.random = None if seed is None else random.Random(seed)
        self.time = Time(self)
        self._modules = modules
        self._undo = ExitStack()
        #: what interrupts the guest of a worker whose bell is rung, by the inode of the bell's file
        self.listeners: dict[int, Callable[[], object]] = {}
        self.daemons: list[LocalDaemon] = []
        self.workers: list[LocalWorker] = []
        self._turn = 0
        self._pumping = False
        #: called at each tick of a running guest, e.g. to let a client send a message meanwhile
        self.at_tick: Callable[[], object] | None = None

    def __enter__(self) -> World:
        assert World.current is None, "another simulation is open"
        World.current = self
        self._undo.callback(setattr, World, "current", None)
        for place, name, value in self._replaced():
            self._undo.callback(setattr, place, name, getattr(place, name))
            setattr(place, name, value)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._undo:
            for local in list(self.daemons):
                local.close()
        if sum(1 for _ in Path("/proc/self/fd").iterdir()) > _MANY_FILES:  # of guests of ended workers
            gc.collect()

    def _replaced(self) -> Iterator[tuple[Any, str, Any]]:
        """Yields what the world replaces: (module, name, value)."""
        clocked = (server, vocabularies, workers, silence, wasm_engine, fiber, host, loop, memory)
        for module in (*clocked, scheduling, steps, templates, channel, control, client_step):
            yield module, "time", self.time
        for module in self._modules:
            for name, value, replaced in (("time", self.time, time), ("Daemon", LocalDaemon, control.Daemon)):
                if getattr(module, name, None) is replaced:
                    yield module, name, value
        yield host, "monotonic", self.time.monotonic
        for module in (channel, workers, segment):
            yield module, "Doorbell", Bell
        yield control, "FrameSocket", _ClientSocket
        yield runtime, "Daemon", LocalDaemon
        for module in (channel, loop):
            yield module, "spin", _spin
        yield server, "usage", self._usage
        yield silence, "progress", self._progress
        for module in (vocabularies, store):
            yield module, "in_thread", _in_thread
        yield store, "compile_in_child_async", _compile
        key = store.code_key()
        yield store, "code_key", lambda: f"{key}-fuel"
        yield wasm_engine, "_config", _config_with_fuel(wasm_engine._config)
        yield raw, "instance_pre_instantiate", _with_fuel(raw.instance_pre_instantiate)
        yield raw, "func_call", self._call
        poll = self._poller(raw.future_poll)
        yield raw, "future_poll", poll
        yield raw, "future_poll_unlocked", poll

    # -- order -----------------------------------------------------------------------------------

    def until(self, condition: Callable[[], bool], seconds: float = 1e9) -> bool:
        """Runs the world until the condition holds, which returns True, or for so many seconds."""
        end = self.time.now_ns + int(seconds * 1e9)
        for _ in range(_MAX_ROUNDS):
            if condition():
                return True
            if self.time.now_ns >= end:
                return False
            if not self.turn():
                self.time.now_ns = max(self.time.now_ns, min(end, self._next_event()))
        raise AssertionError("the simulation does not end")

    def turn(self) -> bool:
        """Lets one part run that has something to do; returns False if there is none."""
        assert not self._pumping, "a part of the simulation waits for another one"
        parts = [part for part in (*self.daemons, *self.workers) if part.due()]
        if not parts:
            return False
        if self.random is not None:
            part = self.random.choice(parts)
        else:
            part = parts[self._turn % len(parts)]
            self._turn += 1
        self._pumping = True
        try:
            part.turn()
        finally:
            self._pumping = False
        return True

    def settle(self) -> None:
        """Runs the world until nothing is left to do at this time."""
        while self.turn():
            pass

    def sleep(self, seconds: float) -> None:
        """Lets time pass; the others run meanwhile, unless they wait for the caller."""
        if self._pumping:
            self.time.now_ns += int(seconds * 1e9)
        else:
            self.until(lambda: False, seconds)

    def _next_event(self) -> int:
        return min([part.next_event() for part in (*self.daemons, *self.workers)], default=1 << 62)

    def _usage(self, pid: int) -> dict[str, float]:
        return {**workers.usage(pid), "cpu_s": self.time.cpu_ns / 1e9}

    def _progress(self, _pid: int, *, family: bool = False) -> silence.Progress:
        """Returns the same for everybody: one process runs everything."""
        return silence.Progress(False, self.time.cpu_ns / 1e9, 0.0)

    # -- guests ----------------------------------------------------------------------------------

    def _poller(self, poll: Callable[[int], bool]) -> Callable[[int], bool]:
        def poll_with_ticks(future: int) -> bool:
            """Runs a slice of a call. At a tick, which is when its fuel is used up, the guest may go on."""
            engine = self._running()
            engine.has_yielded = False
            guest = engine.running
            assert guest is not None
            self.time.start(guest.context)
            try:
                while not (done := poll(future)) and not engine.has_yielded:
                    self._tick(engine)
                return done
            finally:
                self.time.stop()

        return poll_with_ticks

    def _call(self, context: int, function: int, _argument: int, _count: int, _trap: int) -> int | None:
        """Runs a synchronous call as an asynchronous one, which can be interrupted at a tick."""
        engine = self._running()
        assert engine.running is not None
        frame, words = engine.frame, engine.frame.words
        words[raw.RESULT] = 0
        future = raw.func_call_async(context, function, *frame.call_async[engine.running.export])
        while not raw.future_poll(future):
            engine.has_yielded = False
        raw.future_delete(future)
        words[raw.ARG] = words[raw.RESULT]
        error, words[raw.ERROR] = words[raw.ERROR], 0
        return error or None

    def _running(self) -> _Engine:
        return next(worker.engine for worker in self.workers if worker.engine.running is not None)

    def _tick(self, engine: _Engine) -> None:
        self.time.read()
        if self.at_tick is not None:
            self.at_tick()
        raw.increment_epoch(engine.pointer)


class Time:
    """The world's clock, with the functions of the module `time`."""

    #: the time of day is the real one
    time = staticmethod(time.time)

    def __init__(self, world: World) -> None:
        self._world = world
        self.now_ns = 1_000_000_000
        #: time without the pauses, as if one processor ran everything
        self.cpu_ns = 0
        self._context = 0
        self._fuel = ctypes.c_uint64()

    def read(self) -> None:
        """Charges the time that has passed since the last reading."""
        passed = _READING_NS
        if self._context:
            before = self._fuel.value
            _get_fuel(self._context, ctypes.addressof(self._fuel))
            passed += (before - self._fuel.value) * 1_000_000 // FUEL_OF_A_TICK
        self.spend(passed)

    def spend(self, nanoseconds: int) -> None:
        """Lets time pass that the running part uses."""
        self.now_ns += nanoseconds
        self.cpu_ns += nanoseconds

    def start(self, context: int) -> None:
        """Begins to charge for the fuel of a store."""
        self._context = context
        _get_fuel(context, ctypes.addressof(self._fuel))

    def stop(self) -> None:
        """Ends what `start` has begun."""
        self.read()
        self._context = 0

    def monotonic_ns(self) -> int:
        self.read()
        return self.now_ns

    def monotonic(self) -> float:
        return self.monotonic_ns() / 1e9

    perf_counter = monotonic

    def thread_time_ns(self) -> int:
        self.read()
        return self.cpu_ns

    def thread_time(self) -> float:
        return self.thread_time_ns() / 1e9

    def sleep(self, seconds: float) -> None:
        self._world.sleep(seconds)


def _world() -> World:
    assert World.current is not None, "no simulation is open"
    return World.current


# -- guests ------------------------------------------------------------------------------------------


def _function(name: str, result: Any, *args: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *args)(raw.address_of(name))


_set_fuel = _function("wasmtime_context_set_fuel", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)
_get_fuel = _function("wasmtime_context_get_fuel", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_yield_interval = _function(
    "wasmtime_context_fuel_async_yield_interval", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64
)


def _with_fuel(instantiate: Callable[..., int | None]) -> Callable[..., int | None]:
    """Returns a function that also sets the store's fuel: a call yields when it has used that of a tick."""

    def instantiate_with_fuel(pre: int, context: int, externs: int, trap: int) -> int | None:
        error: int | None = _set_fuel(context, _ALL_FUEL)
        # not earlier: afterwards wasmtime refuses everything synchronous
        return error or instantiate(pre, context, externs, trap) or _yield_interval(context, FUEL_OF_A_TICK)

    return instantiate_with_fuel


def _config_with_fuel(config: Callable[[], wasmtime.Config]) -> Callable[[], wasmtime.Config]:
    def with_fuel() -> wasmtime.Config:
        made = config()
        made.consume_fuel = True
        return made

    return with_fuel


class _Engine(WasmEngine):
    """An engine that knows whether its guest has yielded at a tick, or for lack of fuel."""

    __slots__ = ("has_yielded",)

    def __init__(self, limits: Limits) -> None:
        self.has_yielded = False
        super().__init__(limits)

    def _on_epoch(self, context: int, data: int, delta: Any, kind: Any) -> int | None:
        outcome = super()._on_epoch(context, data, delta, kind)
        self.has_yielded = kind[0] == raw.YIELD
        return outcome


class _Ticker:
    """Has the interface of `Ticker`; ticks come from `World`."""

    def hasten(self, seconds: float) -> None:
        pass


class _Listener:
    """Has the interface of `Listener`. The bell interrupts the guest at once."""

    def __init__(self, bell: Bell, interrupt: Callable[[], object]) -> None:
        assert bell.file is not None
        self._bell, self._interrupt = _inode(bell.file), interrupt
        self._listeners = _world().listeners

    def listen(self) -> None:
        self._listeners[self._bell] = self._interrupt

    def dismiss(self) -> bool:
        return self._listeners.pop(self._bell, None) is not None


def _costly(function: HostFunction) -> HostFunction:
    """Charges for a slow host function, which uses no fuel: the tick comes while it runs."""
    if function.work is None:
        return function

    def call(guest: Any, *args: int) -> int | None:
        world = _world()
        world.time.spend(_BYTE_NS * args[-1])
        raw.increment_epoch(world._running().pointer)
        return function.call(guest, *args)

    return HostFunction(function.module, function.name, function.type, call, function.work)


# -- messages ----------------------------------------------------------------------------------------


class Bell(Doorbell):
    """A doorbell whose waiter runs the world meanwhile."""

    @classmethod
    def of_file(cls, fd: int) -> Bell:
        bell = super().of_file(fd)
        bell.file = Descriptor(os.dup(fd))  # tells which worker waits for it
        return bell

    def ring(self) -> None:
        super().ring()
        if self.file is not None and (interrupt := _world().listeners.get(_inode(self.file))) is not None:
            interrupt()

    def wait_for_ring(self, timeout: float) -> bool:
        _world().until(lambda: self.rung, timeout)
        return super().wait_for_ring(0)


def _inode(file: Descriptor) -> int:
    return os.fstat(file.fd).st_ino


def _spin(rings: Sequence[Ring], _seconds: float) -> bool:
    return any(ring.waiting for ring in rings)


class _ClientSocket(FrameSocket):
    """The client's end of a control socket, which runs the world while it waits."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        super().__init__(sock)

    def send(self, message: NamedTuple, fds: list[int] | None = None, *_: Any, **__: Any) -> None:
        left = memoryview(frame(message))
        while left:
            try:
                left = left[socket.send_fds(self.socket, [left], fds or []) :]
                fds = None
            except BlockingIOError:
                _world().turn()

    def receive(self, deadline: float | None = None) -> list[Any] | None:
        found: list[list[Any]] = []

        def arrived() -> bool:
            if (message := self.poll()) is not None:
                found.append(message)
            return bool(found) or self.closed

        world = _world()
        seconds = 1e9 if deadline is None else deadline - world.time.now_ns / 1e9
        if not world.until(arrived, seconds):
            raise TimeoutError("no message came in time")
        return found[0] if found else None


# -- processes ---------------------------------------------------------------------------------------


class LocalWorker:
    """A worker or builder in this process."""

    def __init__(self, ours: socket.socket, bell: Bell, config: WorkerConfig) -> None:
        self._world = _world()
        self.engine = _Engine(config.limits)
        self._linker = Linker(self.engine, [_costly(f) for f in host_functions(CALLS, TIMED)])
        self._bell = bell
        self._listener = _Listener(bell, self.engine.interrupt_slice)
        self._control = FrameSocket(ours)
        parts: list[Any] = [bell, self._listener, self._control, self.engine, _Ticker()]
        self.worker = Worker(*parts, config.request, config.worker)
        controls = Controls(self.worker, self._linker)
        self.worker.serve_call = controls.serve_call
        programs = controls._programs
        load_code = programs.find_program
        # a real worker's working directory is the folder of compiled modules
        programs.find_program = lambda module, path, owner: load_code(
            module, str(Path(config.code, path)), owner
        )  # type: ignore[method-assign]
        self._busy = True
        self._wake_at = 0
        self._world.workers.append(self)

    def due(self) -> bool:
        """Returns whether the worker has something to do."""
        return self._busy or self._bell.rung or self._world.time.now_ns >= self._wake_at

    def next_event(self) -> int:
        """Returns when the worker wakes by itself, in ns."""
        return self._wake_at

    def turn(self) -> None:
        """Does the next part of a round of `Worker.run`."""
        worker = self.worker
        called = self._bell.wait_for_ring(0) and not self._busy
        busy = worker._serve()
        if called and not busy:
            busy = worker._expect_step()
        self._busy = busy or self._listener.dismiss()
        if not worker.running:
            self.close()
        elif not self._busy:
            self._wake_at = self._world.time.now_ns + int(worker._timeout() * 1e9)

    def close(self) -> None:
        """Ends the worker, and closes what a process would leave to the system. Idempotent."""
        if self in self._world.workers:
            self._world.workers.remove(self)
            self.worker.running = False
            for number in list(self.worker.clients):
                self.worker.detach(number)
            self._control.close()
            self.engine.spares.clear()
            self.engine.close()
            vars(self.worker).clear()  # it is part of many cycles


class _Child:
    """Has the interface of `Child`, for a worker in this process."""

    status = 0
    cpu_s = 0.0

    def __init__(self, local: LocalWorker) -> None:
        self._local = local
        self.pid = os.getpid()
        self.pidfd = Descriptor(os.eventfd(0))

    def kill(self) -> None:
        self._local.close()
        os.eventfd_write(self.pidfd.fd, 1)

    def wait_for_exit(self) -> int:
        return self.status


class _ForkServer:
    """Has the interface of `ForkServer`. Workers are in this process; `_compile` stands in for compilers."""

    async def start(
        self, program: str, arguments: Sequence[str], files: Sequence[int], _first: int
    ) -> _Child:
        assert program == "aicirt.worker"
        values = dict(itertools.pairwise(arguments))
        *_, control, bell = files
        config = WorkerConfig.from_json(values["--config"])
        return _Child(LocalWorker(socket.socket(fileno=os.dup(control)), Bell.of_file(bell), config))


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that runs for one turn at a time, with the world's clock."""

    def __init__(self, world: World) -> None:
        self._world = world
        super().__init__()

    def time(self) -> float:
        return self._world.time.now_ns / 1e9

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:
        """Leaves signals to the tests."""

    def due(self) -> bool:
        """Returns whether anything can run."""
        parts: Any = self
        return bool(parts._ready or self.next_event() <= self._world.time.now_ns or parts._selector.select(0))

    def next_event(self) -> int:
        """Returns when the next timer is due, in ns."""
        scheduled = self._scheduled  # type: ignore[attr-defined]
        return int(scheduled[0]._when * 1e9) + 1 if scheduled else 1 << 62

    def turn(self) -> None:
        """Runs what can run now."""
        self.call_soon(self.stop)
        self.run_forever()


class LocalDaemon:
    """Has the interface of `pyaici.client.control.Daemon`, for a daemon in this process."""

    def __init__(
        self,
        *,
        workers: int | None = None,
        limits: Mapping[str, float] | None = None,
        store: Path | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self._world = world = _world()
        self._folder = Path(tempfile.mkdtemp(prefix="aici-"))
        self.socket_path = self._folder / "aicirt.sock"
        self.pid = os.getpid()
        config = WorkerConfig.with_overrides(limits or {})
        #: for tests that look inside
        self.supervisor = server.Supervisor(
            self.socket_path,
            _store(store, config),
            config,
            workers or 1,
            _ForkServer(),  # type: ignore[arg-type]
            isolate_owners="--isolate-owners" in options,
        )
        self.loop = _Loop(world)
        ready, write = os.pipe()
        self._task = self.loop.create_task(self.supervisor.run(write))
        world.daemons.append(self)
        self.due, self.next_event, self.turn = self.loop.due, self.loop.next_event, self.loop.turn
        try:
            world.until(lambda: self._task.done() or bool(select.select([ready], [], [], 0)[0]))
        finally:
            os.close(ready)
        if self._task.done():
            self._task.result()

    def __enter__(self) -> LocalDaemon:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the daemon. Idempotent."""
        if self not in self._world.daemons:
            return
        try:
            self._world.settle()  # else sessions whose clients have gone are cancelled
            self.supervisor.stop()
            self._world.until(self._task.done)
            self._task.result()
            self._world.settle()
        finally:
            self._world.daemons.remove(self)
            self.loop.close()
            shutil.rmtree(self._folder, ignore_errors=True)


def _store(folder: Path | None, config: WorkerConfig) -> store.ModuleStore:
    return store.ModuleStore(folder, limits=config.limits)


async def _in_thread(function: Callable[[], Any], _cancelled: object = None) -> Any:
    return function()


#: compiled modules and their descriptions, by the module's hash and the limits that a store distinguishes
_compiled: dict[tuple[str, str], tuple[bytes, ControllerInfo]] = {}


async def _compile(
    wasm: Path,
    artifact: Path,
    limits: Limits | None = None,
    _cost: CompileLimits | None = None,
    spent: Callable[[float], None] | None = None,
    _user: User | None = None,
    _start: Start | None = None,
) -> ControllerInfo:
    """Has the interface of `compile_in_child_async`."""
    data, limits = wasm.read_bytes(), limits or Limits()
    seconds = (_COMPILE_NS + _COMPILE_BYTE_NS * len(data)) / 1e9
    await asyncio.sleep(seconds)
    if spent is not None:
        spent(seconds)
    key = hashlib.sha256(data).hexdigest(), store._key(limits)
    if key not in _compiled:
        report = check(data, limits)
        report.require()
        code = code_of(WasmEngine(limits), data, "simulated")
        info = compiler._describe(key[0], report)
        info.compiled_size, info.compiled_sha256 = len(code), hashlib.sha256(code).hexdigest()
        _compiled[key] = code, info
    code, info = _compiled[key]
    artifact.write_bytes(code)
    return ControllerInfo.from_wire(info.to_wire())
