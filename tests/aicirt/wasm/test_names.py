"""Function names in modules cannot make the rendering of a trap expensive."""

from __future__ import annotations

import random

import pytest
import wasmtime
from hypothesis import given
from hypothesis import strategies as st

from aicirt.wasm.module.reader import leb
from aicirt.wasm.module.rewrite import MAX_NAME, MAX_NAMES, NAMES, harmless, readable, rewrite
from lab.attacks.modules import doubling, with_name
from lab.runners.wat import controller


def rendered(wasm: bytes) -> str:
    """Returns wasmtime's message for a trap in the function "f"."""
    store = wasmtime.Store(wasmtime.Engine())
    exports = wasmtime.Instance(store, wasmtime.Module(store.engine, wasm), []).exports(store)
    with pytest.raises(wasmtime.Trap) as caught:
        exports["f"](store)  # type: ignore[operator]
    return str(caught.value)


TRAPS = '(func $f (export "f") unreachable)'


def test_name_that_wasmtime_would_expand_exponentially_stays_short() -> None:
    wasm = with_name(bytes(wasmtime.wat2wasm(f"(module {TRAPS})")), 0, doubling(12).encode())
    assert len(rendered(wasm)) > 50_000, "wasmtime no longer expands names: the test proves nothing"
    assert len(rendered(rewrite(wasm))) < 500
    for levels in (40, 4000):
        deeper = with_name(bytes(wasmtime.wat2wasm(f"(module {TRAPS})")), 0, doubling(levels).encode())
        assert len(rendered(rewrite(deeper))) < 1000


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain", "plain"),
        ("Reader", "Reader"),
        ("__wasm_call_ctors", "__wasm_call_ctors"),
        ("_ZN3NoE11mid_processEv", "fn NoE::mid_process [_ZN3NoE11mid_processEv]"),
        ("_ZNK4aici8TokenSetIiE5allowEj", "fn aici::TokenSet [_ZNK4aici8TokenSetIiE5allowEj]"),
        ("_Z7computei4Type", "fn compute [_Z7computei4Type]"),
        ("_ZN4core5panic17h0123456789abcdefE", "fn core::panic [_ZN4core5panic17h0123456789abcdefE]"),
        ("_RNvNtCs1_7mycrate3foo3bar", "fn ? [_RNvNtCs1_7mycrate3foo3bar]"),
        ("red\x1b[31m\n", "red?[31m?"),
        ("x" * 300, "x" * (MAX_NAME - 3) + "..."),
    ],
)
def test_names_stay_readable(name: str, shown: str) -> None:
    assert readable(name) == shown


@given(st.text(max_size=300) | st.from_regex(r"_{0,5}[ZR]N?[A-Z0-9_a-z]{0,80}", fullmatch=True))
def test_readable_names_are_never_demangled(name: str) -> None:
    shown = readable(name)
    assert len(shown) <= MAX_NAME and shown.isprintable()
    assert readable(shown) == shown, "a name that can be demangled would change again"


def test_trap_shows_the_export_name_instead_of_the_function_name() -> None:
    text = rendered(rewrite(bytes(wasmtime.wat2wasm(f"(module $secret {TRAPS})"))))
    assert "!f" in text and "secret" not in text


def test_damaged_name_sections_are_dropped() -> None:
    assert harmless(NAMES + b"\1\5\1") is None
    assert harmless(NAMES + b"\1\3\1\0\x7f") is None
    assert harmless(NAMES + bytes(MAX_NAMES)) is None
    generator = random.Random(1)
    wasm = bytes(wasmtime.wat2wasm(f"(module {TRAPS})"))
    for _ in range(300):
        content = NAMES + generator.randbytes(generator.randrange(40))
        damaged = wasm + b"\0" + leb(len(content)) + content
        wasmtime.Module.validate(wasmtime.Engine(), rewrite(damaged))


def test_backtrace_with_many_long_names_is_bounded() -> None:
    wasm = bytes(wasmtime.wat2wasm('(module (func $f (export "f") (call $f)))'))
    assert len(rendered(rewrite(with_name(wasm, 0, b"x" * 100_000)))) < 100 * MAX_NAME


def test_rewriting_keeps_function_names() -> None:
    wasm = rewrite(controller('(func $helper (export "aici_pre_process") (result i32) unreachable)'))
    assert b"helper" in wasm
