"""Fixtures for guests: an engine for all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from aicirt.wasm import Instance, Limits, Linker, Program, Ticker, WasmEngine, host_functions
from lab.runners.wat import CALLS, controller


@pytest.fixture(scope="session")
def engine() -> Iterator[WasmEngine]:
    engine = WasmEngine(Limits())
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def ticker(engine: WasmEngine) -> Iterator[Ticker]:
    ticker = Ticker(engine)
    yield ticker
    ticker.close()


@pytest.fixture(scope="session")
def linker(engine: WasmEngine) -> Iterator[Linker]:
    linker = Linker(engine, host_functions(CALLS))
    yield linker
    linker.close()


@pytest.fixture
def make(linker: Linker, ticker: Ticker) -> Iterator[Callable[..., Instance]]:
    """Returns a function that compiles a controller and starts a guest, with the ticker armed."""
    programs: list[Program] = []
    guests: list[Instance] = []

    def make(body: str = "", **parts: str) -> Instance:
        programs.append(Program.compile(linker, controller(body, **parts)))
        guests.append(Instance(programs[-1]))
        guests[-1].start()
        return guests[-1]

    with ticker:
        yield make
    for guest in guests:
        guest.close()
    for program in programs:
        program.close()
