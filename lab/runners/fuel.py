"""Guests whose work is counted in wasmtime's fuel, one unit for about one instruction.

It is the same on every machine, and the optimization of compiled code does not change it. It counts neither
copies of memory nor page faults.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from aicirt.wasm import Instance, engine, raw
from lab.runners.calls import CALLS
from lab.runners.host import Guest, Host

#: units for a call of the host, which takes about a microsecond
CALL = 1000

_set_fuel = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)(
    raw.address_of("wasmtime_context_set_fuel")
)
_get_fuel = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64))(
    raw.address_of("wasmtime_context_get_fuel")
)
_FULL = 1 << 40


def used(instance: Instance) -> int:
    """Returns the units that a guest has used since it was created."""
    left = ctypes.c_uint64()
    assert _get_fuel(instance.context, ctypes.byref(left)) is None
    return _FULL - left.value


def _charged(call: Callable[..., Any]) -> Callable[..., Any]:
    def charge(instance: Instance, *arguments: int) -> Any:
        _set_fuel(instance.context, _FULL - used(instance) - CALL)
        return call(instance, *arguments)

    return charge


class MeteredGuest(Guest):
    """A guest with fuel, of a program of `metered_host`."""

    #: units for what is done once for all arguments: the start function and `_initialize`
    start_fuel = 0

    def _start(self) -> None:
        super()._start()
        self.start_fuel = used(self.instance)

    def _adopt(self, instance: Instance) -> None:
        assert _set_fuel(instance.context, _FULL) is None
        super()._adopt(instance)


@contextmanager
def metered_host() -> Iterator[Host]:
    """A host whose guests need fuel."""
    plain = engine._config

    def config() -> Any:
        settings = plain()
        settings.consume_fuel = True
        settings.cranelift_opt_level = "none"
        return settings

    with patch.object(engine, "_config", config):
        host = Host({name: _charged(call) for name, call in CALLS.items()}, "metered")
    with host:
        yield host
