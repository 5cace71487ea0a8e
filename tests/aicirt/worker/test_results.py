"""Results of guests: their sizes, their addresses and their flags."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aicirt.contract.abi import (
    MID_HOLD_END,
    MID_RESULT,
    MID_SKIP_POST,
    MID_SKIP_PRE,
    ROW_ALL,
    ROW_BITMASK,
    SAMPLE,
    SPLICE,
    STOP,
)
from aicirt.contract.errors import EmptyMaskError, ResultError
from aicirt.contract.messages import Bare, Sample, Splice
from aicirt.worker.sequence import Sequence
from lab.measurement.local_worker import LocalWorker, load_for_guests
from pyaici.toolchain import build_controller
from tests.pyaici.client.conftest import GUESTS, VOCABULARY

OLD, NEW = 44, 48


@pytest.fixture(scope="module")
def worker() -> Iterator[LocalWorker]:
    with LocalWorker(load_for_guests(VOCABULARY)) as worker:
        yield worker


@pytest.fixture(scope="module")
def seq(worker: LocalWorker, tmp_path_factory: pytest.TempPathFactory) -> Sequence:
    wasm = build_controller(GUESTS / "flags.c", tmp_path_factory.mktemp("results") / "flags.wasm").path
    seq = worker.start(worker.template(worker.program(wasm), "a0"), (1, 2))
    seq.instance.grow(4)
    return seq


def read(
    worker: LocalWorker, seq: Sequence, address: int, size: int, flags: int, verb: int = SAMPLE
) -> Bare | Sample | Splice:
    """Writes an aici_mid_result, cut off at the end of the memory, and reads it as the worker does."""
    data = struct.pack("<5I2f5I", size, verb, ROW_ALL, 0, 0, 0.0, 0.0, 0, 0, 0, 0, flags)
    data = data.ljust(MID_RESULT.size, b"\0")  # no options
    seq.instance.write_memory(address, data[: seq.instance.size - address])
    result, seq.flags, _ = worker.client.writer.read_mid(seq.instance, address, seq.id, seq.length, None)
    return result


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    left=st.integers(0, 100) | st.integers(OLD - 2, NEW + 2),
    size=st.integers(0, 100) | st.integers(OLD - 2, NEW + 2) | st.just(2**32 - 1),
    flags=st.integers(0, 7),
)
def test_result_of_any_size_and_address(
    worker: LocalWorker, seq: Sequence, left: int, size: int, flags: int
) -> None:
    """`left` is the number of bytes from the beginning of the result to the end of the memory."""
    address = seq.instance.size - left
    seq.flags = 5
    if left < OLD or size < OLD or (size >= NEW > left) or (size >= MID_RESULT.size > left):
        with pytest.raises(ResultError, match="aici_mid_result"):
            read(worker, seq, address, size, flags)
    else:
        expected = (seq.id, SAMPLE, ROW_ALL, 0, 0, 0, 0.0, None, 0)  # without options, none are sent
        assert tuple(read(worker, seq, address, size, flags)) == expected
        assert seq.flags == (flags if size >= NEW else 0)


@pytest.mark.parametrize("verb", [SAMPLE, SPLICE, STOP])
def test_flags_are_read_for_every_verb(worker: LocalWorker, seq: Sequence, verb: int) -> None:
    for flags in (0, MID_HOLD_END, MID_SKIP_PRE, MID_SKIP_POST, MID_HOLD_END | MID_SKIP_PRE | MID_SKIP_POST):
        assert read(worker, seq, 65536, NEW, flags, verb).verb == verb
        assert seq.flags == flags


@pytest.mark.parametrize("flags", [32, 33, 1 << 31, 0xFFFFFFFF])
def test_unknown_flags_are_refused(worker: LocalWorker, seq: Sequence, flags: int) -> None:
    with pytest.raises(ResultError, match=f"flags are {flags:#x}, but version 1 has only 0x1f"):
        read(worker, seq, 65536, NEW, flags)
    assert read(worker, seq, 65536, OLD, flags).verb == SAMPLE


def read_mask(worker: LocalWorker, seq: Sequence, tokens: set[int]) -> bytes:
    """Writes a mask that allows some tokens and reads it as the worker does; returns the row."""
    words = worker.layout.mask_words
    bits = sum(1 << token for token in tokens).to_bytes(4 * words, "little")
    seq.instance.write_memory(131072, bits)
    data = struct.pack("<5I2f5I", NEW, SAMPLE, ROW_BITMASK, 131072, words, 0.0, 0.0, 0, 0, 0, 0, 0)
    seq.instance.write_memory(65536, data)
    sample, _, _ = worker.client.writer.read_mid(seq.instance, 65536, seq.id, seq.length, None)
    assert isinstance(sample, Sample)
    return worker.row(sample)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sets(st.integers(0, 319), max_size=2), max_size=6))
def test_masks_are_copied_without_bits_of_no_token_and_empty_ones_are_refused(
    worker: LocalWorker, seq: Sequence, masks: list[set[int]]
) -> None:
    """The place in which a token is searched first depends on the masks before."""
    assert worker.layout.mask_words == 10 and worker.layout.vocab_size < 320
    for tokens in masks:
        allowed = {token for token in tokens if token < worker.layout.vocab_size}
        free = worker.client.rows.free
        if allowed:
            row = read_mask(worker, seq, tokens)
            assert int.from_bytes(row, "little") == sum(1 << token for token in allowed)
        else:
            with pytest.raises(EmptyMaskError):
                read_mask(worker, seq, tokens)
        assert worker.client.rows.free == free
