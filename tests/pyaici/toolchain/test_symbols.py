"""The names that objects define, and those in mangled names."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pyaici.toolchain import BuildError, flags
from pyaici.toolchain.system import defined_symbols, identifiers, is_standard

from .conftest import CountingToolchain

SOURCE = """
extern int elsewhere(int);
extern int far_data;
int shared_data = 7;
static int hidden(int x) { return elsewhere(x) + far_data; }
int (*pointer)(int) = hidden;
int function(int x) { return pointer(x); }
__attribute__((weak)) int replaceable(void) { return 1; }
"""


@pytest.fixture
def compiled(tmp_path: Path, tools: CountingToolchain) -> bytes:
    """Returns the object of `SOURCE`."""
    (tmp_path / "a.c").write_text(SOURCE)
    tools.run(["cc", *flags.C, "-c", tmp_path / "a.c", "-o", tmp_path / "a.o"], "compiling a.c")
    return (tmp_path / "a.o").read_bytes()


def test_defined_symbols_are_those_that_others_can_use(compiled: bytes) -> None:
    assert defined_symbols(compiled) == {"shared_data", "pointer", "function", "replaceable"}


def test_damaged_objects_are_refused(compiled: bytes) -> None:
    whole = defined_symbols(compiled)
    random_numbers = random.Random(1)
    for size in range(len(compiled)):
        try:
            assert defined_symbols(compiled[:size]) == whole
        except BuildError as error:
            assert str(error).startswith("not an object for Wasm: ")
    for _ in range(3000):
        damaged = bytearray(compiled)
        for _ in range(random_numbers.randint(1, 3)):
            damaged[random_numbers.randrange(len(damaged))] = random_numbers.randrange(256)
        try:
            defined_symbols(bytes(damaged))
        except BuildError as error:
            assert str(error).startswith("not an object for Wasm: ")
    with pytest.raises(BuildError, match="it has no symbols"):
        defined_symbols(b"\0asm\1\0\0\0")


@pytest.mark.parametrize(
    ("symbol", "names"),
    [
        ("_Z6answerv", "answer"),
        ("_ZN4aici3cfg6Engine10inner_loopEj", "aici cfg Engine inner_loop"),
        ("_ZNK4aici5regex12CodepointSetanERKS1_", "aici regex CodepointSet operator"),
        ("_ZN4aici3cfg7GrammarC2EOS1_", "aici cfg Grammar"),
        ("_ZTVN4aici3cfg6EngineE", "aici cfg Engine"),
        (
            "_ZNSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEE6appendEPKcm",
            "basic_string append",
        ),
        ("_ZN4aici4PairILj5ENS_1AEE4swapEv", "aici Pair swap"),
        ("_Znwm", "operator new"),
        ("_ZSt28__throw_bad_array_new_lengthB9nin220108v", "__throw_bad_array_new_length"),
    ],
)
def test_identifiers_of_mangled_names(symbol: str, names: str) -> None:
    assert " ".join(identifiers(symbol)) == names


def test_names_of_the_standard_library() -> None:
    assert all(map(is_standard, ("_Znwm", "_ZdlPv", "_ZNSt3__19to_stringEj", "_ZTISt9exception")))
    assert not any(map(is_standard, ("_ZN4aici3cfg6EngineE", "_Z6answerv", "memcpy")))
