"""The listener notices rings while guests run, and loses none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from aicirt.ipc.ring import Doorbell
from aicirt.wasm import Export, Fiber, Instance, Linker, Program, Ticker, WasmEngine, host_functions
from aicirt.worker.scheduling import Listener
from lab.runners.wat import CALLS, controller
from lab.system.waiting import PATIENCE, wait_until
from tests.aicirt.ipc.interleavings import Run, SharedLock, StuckError, explore, shared_bell, shared_ring

ENDLESS = '(func (export "aici_pre_process") (result i32) (loop $l (br $l)) (i32.const 0))'


class Forgetful(Listener):
    """Has a defect on purpose: it does not report a ring that it took while being dismissed."""

    def dismiss(self) -> bool:
        return super().dismiss() and not self._dismissed


@pytest.mark.parametrize(("kind", "is_lossy"), [(Listener, False), (Forgetful, True)])
def test_no_order_of_events_loses_a_message(kind: type[Listener], is_lossy: bool) -> None:
    """Runs a worker with a slice of a guest, a client that sends two messages, and the listener."""

    def make(run: Run) -> list[Callable[[], None]]:
        (writer, reader), bell = shared_ring(run, 64), shared_bell(run)
        listener = kind(bell, run.access)
        listener._go, listener._back = SharedLock(run), SharedLock(run)  # type: ignore[assignment]
        finished: list[bool] = []

        def client() -> None:
            for text in (b"one", b"two"):
                assert writer.try_write(text)
                bell.ring()

        def worker() -> None:
            slices, received = 1, []
            while len(received) < 2:
                busy = True
                while busy or listener.dismiss():
                    busy = False
                    message = reader.read()
                    if message is not None:
                        received.append(message)
                        busy = True
                    if slices:
                        slices -= 1
                        listener.listen()
                        busy = True
                if len(received) < 2:
                    bell.wait_for_ring(1)
            assert received == [b"one", b"two"]
            finished.append(True)
            listener._go.release()
            bell.ring()

        def listening() -> None:
            while not finished:
                listener.attend()

        return [client, worker, listening]

    if is_lossy:
        with pytest.raises(StuckError):
            explore(make, preemptions=3)
    else:
        assert explore(make, preemptions=2) > 1000


@contextmanager
def endless(tick_ms: float) -> Iterator[tuple[WasmEngine, Ticker, Instance]]:
    """Yields a guest whose pre_process never returns, with its own engine and ticker."""
    with ExitStack() as stack:
        engine = WasmEngine()
        stack.callback(engine.close)
        ticker = Ticker(engine, tick_ms)
        stack.callback(ticker.close)
        linker = Linker(engine, host_functions(CALLS))
        stack.callback(linker.close)
        program = Program.compile(linker, controller(ENDLESS))
        stack.callback(program.close)
        guest = Instance(program)
        stack.callback(guest.close)
        guest.start()
        yield engine, ticker, guest


def test_hasten_makes_the_next_tick_come_sooner() -> None:
    with endless(tick_ms=990.0) as (engine, ticker, guest), ticker:
        engine.wanted = lambda: True
        fiber = Fiber(guest, Export.PRE, limit_ms=60_000)

        def comes_sooner() -> bool:
            start = time.monotonic()
            ticker.hasten(30.0)  # has no effect: later than the next tick
            ticker.hasten(0.01)
            assert not fiber.poll()
            return time.monotonic() - start < 0.9

        wait_until(comes_sooner)  # a busy machine may delay a tick, but not every one
        fiber.abandon_call()


def test_ring_ends_the_slice_of_a_guest_without_a_tick() -> None:
    with ExitStack() as stack:
        engine, ticker, guest = stack.enter_context(endless(tick_ms=1.0))
        bell = Doorbell.create()
        stack.callback(bell.close)
        listener = Listener(bell, engine.interrupt_slice)
        listener.start()
        stack.callback(listener.end_thread)
        fiber = Fiber(guest, Export.PRE, limit_ms=60_000)
        with ticker:
            assert not fiber.poll()
        listener.listen()
        threading.Timer(0.02, bell.ring).start()
        rescue = threading.Timer(PATIENCE / 2, ticker.arm)  # without it, a failing test would never end
        rescue.start()
        stack.callback(rescue.cancel)
        start = time.monotonic()
        assert not fiber.poll()
        assert time.monotonic() - start < PATIENCE / 2
        assert listener.dismiss()
        fiber.abandon_call()


def test_dismiss_without_listen_returns_false() -> None:
    bell = Doorbell.create()
    listener = Listener(bell, lambda: None)
    listener.start()
    assert not listener.dismiss()
    listener.listen()
    listener.listen()
    assert listener.dismiss()
    assert not listener.dismiss() and not bell.rung
    bell.ring()
    assert bell.wait_for_ring(0), "the listener must not take the ring"
    listener.end_thread()
    bell.close()


@pytest.mark.parametrize("sent", [False, True])
def test_stop_ends_the_thread_before_the_bell_is_closed(sent: bool) -> None:
    """A thread that waits on a closed doorbell would crash the process."""
    bell = Doorbell.create()
    listener = Listener(bell, lambda: None)
    before = set(threading.enumerate())
    listener.start()
    (thread,) = set(threading.enumerate()) - before
    if sent:
        listener.listen()
        time.sleep(0.05)
    listener.end_thread()
    bell.close()
    assert not thread.is_alive()


def test_stop_ends_a_thread_that_has_just_begun_to_listen() -> None:
    def stop_at_once() -> None:
        for _ in range(50):
            bell = Doorbell.create()
            listener = Listener(bell, lambda: None)
            listener.start()
            listener.listen()
            listener.end_thread()
            bell.close()

    stopping = threading.Thread(target=stop_at_once, daemon=True)
    stopping.start()
    stopping.join(PATIENCE)
    assert not stopping.is_alive()
