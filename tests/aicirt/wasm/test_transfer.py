"""Guests that go on in another process, and descriptions that no guests have."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aicirt.contract.errors import AiciError, ProtocolError, RuntimeFailure
from aicirt.system.files import Descriptor
from aicirt.wasm import Export, Instance
from aicirt.wasm.transfer import MAX_BASES, pack, unpack

from .test_handover import COUNTER, SHARED, shared

__all__ = ["shared"]
Make = Callable[..., Instance]
_MOST = 16 << 20
Sent = tuple[Any, Descriptor, list[Descriptor]]


def sent(guests: list[Instance]) -> Sent:
    """As the other process gets it."""
    wire, pages, bases = pack(guests, _MOST)
    files = [Descriptor(os.dup(file.fd)) for file in (pages, *bases)]
    return msgpack.unpackb(msgpack.packb(wire), strict_map_key=False), files[0], files[1:]


def close(guests: list[Instance]) -> None:
    for guest in guests:
        guest.close()


def test_forks_go_on_and_share_what_they_shared(make: Make, shared: tuple[int, int]) -> None:
    parent = make(COUNTER)
    parent.call(Export.PRE)
    parent.map_readonly(*shared)
    origin = Instance.from_snapshot(parent.snapshot())
    family = [origin, *origin.fork_many(2)]
    assert [guest.call(Export.PRE) for guest in family[1:]] == [22, 22]
    family[1].call(Export.PRE)
    family[2].random, family[2].clock_ns = random.Random(5), 1 << 62
    wire, pages, bases = sent(family)
    assert len(bases) == 1
    arrived = unpack(parent.program, wire, pages, bases, shared)
    assert [guest.call(Export.PRE) for guest in arrived] == [22, 44, 33]
    assert [guest.call(Export.PRE) for guest in family] == [22, 44, 33], "who stays does not notice"
    assert len({id(guest.base_image) for guest in arrived}) == 1
    assert arrived[2].random is not None and family[2].random is not None
    assert arrived[2].random.random() == family[2].random.random() and arrived[2].clock_ns == 1 << 62
    forks = arrived[1].fork_many(1), family[1].fork_many(1)
    assert forks[0][0].seed == forks[1][0].seed
    close([*arrived, *forks[0], *forks[1], *family])


def test_more_bases_than_fit_into_a_message(make: Make, shared: tuple[int, int]) -> None:
    """The memories of the last ones are copied whole."""
    parent = make(COUNTER)
    family = []
    for _ in range(MAX_BASES + 3):
        parent.call(Export.PRE)
        family.append(Instance.from_snapshot(parent.snapshot()))
    wire, pages, bases = sent(family)
    assert len(bases) == MAX_BASES
    arrived = unpack(parent.program, wire, pages, bases, shared)
    assert [guest.call(Export.PRE) for guest in arrived] == [11 * (n + 2) for n in range(MAX_BASES + 3)]
    close([*arrived, *family])


def test_what_a_guest_has_written_over_what_is_shared_goes_along(make: Make, shared: tuple[int, int]) -> None:
    guest = make(COUNTER)
    address = guest.map_readonly(*shared)
    guest.write(address + 3, b"mine")
    (arrived,) = unpack(guest.program, *sent([guest]), shared)
    assert arrived.read(address, 21) == guest.read(address, 21) != SHARED[:21]
    close([arrived])


def test_a_limit_of_bytes(make: Make) -> None:
    guest = make(COUNTER)
    guest.call(Export.PRE)
    with pytest.raises(RuntimeFailure, match="more than 4096 bytes"):
        pack([guest, guest], 4096)


_ANYTHING = st.recursive(
    st.none() | st.integers(-5, 1 << 65) | st.binary(max_size=40) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=6,
)


def _damage(wire: Any, data: st.DataObject) -> Any:
    """Something else somewhere in it."""
    if isinstance(wire, list) and wire and data.draw(st.integers(0, 7)):
        place = data.draw(st.integers(0, len(wire) - 1))
        return [*wire[:place], _damage(wire[place], data), *wire[place + 1 :]]
    near = st.integers(-1, 40).map(lambda n: n * 4096)
    return data.draw(_ANYTHING | near | near.map(lambda n: 16 * n))


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_description_harms_the_receiver(make: Make, shared: tuple[int, int], data: st.DataObject) -> None:
    """It is refused, and leaves nothing, or makes guests that stay in their own memory."""
    parent = make(COUNTER)
    parent.map_readonly(*shared)
    parent.call(Export.PRE)
    family = [Instance.from_snapshot(parent.snapshot()), parent]
    family[0].random = random.Random(1)
    wire, pages, bases = sent(family)
    for _ in range(data.draw(st.integers(1, 2))):
        wire = _damage(wire, data)
    files = len(list(Path("/proc/self/fd").iterdir()))
    arrived = []
    try:
        arrived = unpack(parent.program, wire, pages, bases, shared)
    except AiciError:
        pass
    assert arrived or len(list(Path("/proc/self/fd").iterdir())) <= files
    for guest in arrived:
        assert guest.size <= 5000 * 65536
        guest.call(Export.PRE)
    close([*arrived, family[0]])


def test_files_that_are_missing(make: Make, shared: tuple[int, int]) -> None:
    parent = make(COUNTER)
    parent.call(Export.PRE)
    guest = Instance.from_snapshot(parent.snapshot())
    wire, pages, bases = sent([guest])
    for some in ([], [*bases, *bases]):
        with pytest.raises(ProtocolError):
            unpack(parent.program, wire, pages, some, shared)
    loose = os.memfd_create("loose", os.MFD_ALLOW_SEALING)
    with pytest.raises(RuntimeFailure, match="not sealed"):
        unpack(parent.program, wire, Descriptor(loose), bases, shared)
    guest.close()
