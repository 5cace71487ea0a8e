"""Compiled controllers, once per session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aicirt.wasm import Program
from lab.runners.host import Host
from pyaici.toolchain import build_controller
from tests.languages import compiler_or_skip

CONTROLLERS = Path(__file__).parents[2] / "controllers"
GUESTS = Path(__file__).parent / "guests"


@pytest.fixture(scope="session")
def host() -> Iterator[Host]:
    with Host() as host:
        yield host


@pytest.fixture(scope="session")
def program(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Program]:
    """Builds and compiles a controller: of controllers/, or a file or folder of tests/controllers/guests/."""
    folder = tmp_path_factory.mktemp("wasm")
    programs: dict[str, Program] = {}

    def program(name: str) -> Program:
        if name not in programs:
            places = (GUESTS / f"{name}.cpp", GUESTS / name, CONTROLLERS / name)
            source = next(place for place in places if place.exists())
            with compiler_or_skip():
                built = build_controller(source, folder / f"{name}.wasm")
            programs[name] = host.compile(built.path.read_bytes())
        return programs[name]

    return program
