"""The listener hears rings while guests run, and never keeps one to itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from aicirt.ipc.doorbell import Doorbell
from aicirt.wasm import Engine, Export, Fiber, Instance, Linker, Program, Ticker, host_functions
from aicirt.worker.scheduling import Listener
from tests.aicirt.ipc.interleavings import Run, SharedLock, StuckError, explore, shared_bell, shared_ring
from tests.aicirt.wasm.conftest import CALLS, controller

ENDLESS = '(func (export "aici_pre_process") (result i32) (loop $l (br $l)) (i32.const 0))'


class Forgetful(Listener):
    """With the fault that a ring which it took while it was called back is not told of."""

    def dismiss(self) -> bool:
        return super().dismiss() and not self._dismissed


@pytest.mark.parametrize(("kind", "loses"), [(Listener, False), (Forgetful, True)])
def test_no_order_of_events_loses_a_message(kind: type[Listener], loses: bool) -> None:
    """A worker with a slice of a guest to run, a client that sends two messages, and the listener."""

    def make(run: Run) -> list[Callable[[], None]]:
        (writer, reader), bell = shared_ring(run, 64), shared_bell(run)
        listener = kind(bell, run.access)
        listener._go, listener._back = SharedLock(run), SharedLock(run)  # type: ignore[assignment]
        over: list[bool] = []

        def client() -> None:
            for text in (b"one", b"two"):
                assert writer.try_write(text)
                bell.ring()

        def worker() -> None:
            slices, heard = 1, []
            while len(heard) < 2:
                busy = True
                while busy or listener.dismiss():
                    busy = False
                    message = reader.read()
                    if message is not None:
                        heard.append(message)
                        busy = True
                    if slices:
                        slices -= 1
                        listener.listen()
                        busy = True
                if len(heard) < 2:
                    bell.wait(1)
            assert heard == [b"one", b"two"]
            over.append(True)
            listener._go.release()
            bell.ring()

        def attending() -> None:
            while not over:
                listener.attend()

        return [client, worker, attending]

    if loses:
        with pytest.raises(StuckError):
            explore(make, preemptions=3)
    else:
        assert explore(make, preemptions=2) > 1000


@contextmanager
def endless(tick_ms: float) -> Iterator[tuple[Engine, Ticker, Instance]]:
    """A guest whose pre_process never returns, on an engine with a clock of its own."""
    with ExitStack() as stack:
        engine = Engine()
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


def test_a_tick_can_come_sooner() -> None:
    with endless(tick_ms=990.0) as (engine, ticker, guest), ticker:
        engine.wanted = lambda: True
        fiber = Fiber(guest, Export.PRE, limit_ms=60_000)
        start = time.monotonic()
        ticker.hasten(30.0)  # no sooner than the next one
        ticker.hasten(0.01)
        assert not fiber.poll()
        assert time.monotonic() - start < 0.9
        fiber.cancel()


def test_a_ring_ends_the_slice_of_a_guest_without_any_tick() -> None:
    with ExitStack() as stack:
        engine, ticker, guest = stack.enter_context(endless(tick_ms=1.0))
        bell = Doorbell.create()
        stack.callback(bell.close)
        listener = Listener(bell, engine.interrupt_slice)
        listener.start()
        stack.callback(listener.stop)
        fiber = Fiber(guest, Export.PRE, limit_ms=60_000)
        with ticker:
            assert not fiber.poll()
        listener.listen()
        threading.Timer(0.02, bell.ring).start()
        rescue = threading.Timer(20, ticker.arm)  # else the test would never end where it fails
        rescue.start()
        stack.callback(rescue.cancel)
        start = time.monotonic()
        assert not fiber.poll()
        assert time.monotonic() - start < 20
        assert listener.dismiss()
        fiber.cancel()


def test_who_was_not_sent_needs_no_calling_back() -> None:
    bell = Doorbell.create()
    listener = Listener(bell, lambda: None)
    listener.start()
    assert not listener.dismiss()
    listener.listen()
    listener.listen()
    assert listener.dismiss()
    assert not listener.dismiss() and not bell.rung
    bell.ring()
    assert bell.wait(0), "nobody else waits at the bell"
    listener.stop()
    bell.close()


@pytest.mark.parametrize("sent", [False, True])
def test_its_thread_is_gone_before_the_bell_is(sent: bool) -> None:
    """A thread that waits at a bell which is closed would end the process."""
    bell = Doorbell.create()
    listener = Listener(bell, lambda: None)
    before = set(threading.enumerate())
    listener.start()
    (thread,) = set(threading.enumerate()) - before
    if sent:
        listener.listen()
        time.sleep(0.05)
    listener.stop()
    bell.close()
    assert not thread.is_alive()


def test_it_stops_while_its_thread_is_on_the_way_to_the_bell() -> None:
    def stop_at_once() -> None:
        for _ in range(50):
            bell = Doorbell.create()
            listener = Listener(bell, lambda: None)
            listener.start()
            listener.listen()
            listener.stop()
            bell.close()

    stopping = threading.Thread(target=stop_at_once, daemon=True)
    stopping.start()
    stopping.join(60)
    assert not stopping.is_alive()
