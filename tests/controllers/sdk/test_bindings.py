"""The declarations of the binary interface in other languages equal those of aici.h."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from pyaici.toolchain import find_sdk

#: fields of a struct: name and type, as Zig writes it
Fields = list[tuple[str, str]]


@dataclass
class Binding:
    """Declarations of a source file: constants, structs by their names in Zig, imports of module "aici"."""

    constants: dict[str, int]
    structs: dict[str, Fields]
    imports: list[str]


def c_header() -> Binding:
    text = re.sub(r"/\*.*?\*/", "", (find_sdk().include / "aici.h").read_text(), flags=re.DOTALL)
    types = {"uint32_t": "u32", "float": "f32"}
    structs: dict[str, Fields] = {}
    for name, body in re.findall(r"typedef struct aici_(\w+) \{(.*?)\}", text, re.DOTALL):
        fields = re.findall(r"(uint32_t|float) (\w+)(?:\[AICI_(\w+)\])?;", body)
        structs["".join(word.capitalize() for word in name.split("_"))] = [
            (field, f"[{length}]{types[kind]}" if length else types[kind]) for kind, field, length in fields
        ]
    constants = re.findall(r"AICI_(\w+)(?: = | )(0x[0-9a-f]+|\d+)u?(?=[,\s}])", text)
    return Binding(numbers(constants), structs, re.findall(r"AICI_IMPORT\((\w+)\)", text)[1:])


def zig() -> Binding:
    text = re.sub(r"//.*", "", find_sdk().zig_module.read_text())
    return Binding(
        numbers(re.findall(r"pub const (\w+)(?:: u32)? = (0x[0-9a-f]+|\d+);", text)),
        {
            name: re.findall(r"(\w+): ((?:\[\w+\])?[uf]32)", body)
            for name, body in re.findall(r"pub const (\w+) = extern struct \{(.*?)\};", text, re.DOTALL)
        },
        re.findall(r'extern "aici" fn (\w+)\(', text),
    )


def rust() -> Binding:
    text = re.sub(r"//.*", "", (find_sdk().rust_crate / "src" / "abi.rs").read_text())
    kinds = {"[u32; INLINE_TOKENS]": "[INLINE_TOKENS]u32", "[u32; INLINE_GROUP]": "[INLINE_GROUP]u32"}
    structs = {
        name: [(field, kinds.get(kind, kind)) for field, kind in re.findall(r"pub (\w+): ([^,]+),", body)]
        for name, body in re.findall(r"pub struct (\w+) \{(.*?)\}", text, re.DOTALL)
    }
    (imports,) = re.findall(r'wasm_import_module = "aici".*?\{(.*?)\n\}', text, re.DOTALL)
    constants = re.findall(r"pub const (\w+): \w+ = (0x[0-9a-f]+|\d+);", text)
    return Binding(numbers(constants), structs, re.findall(r"pub fn (\w+)\(", imports))


def assemblyscript() -> Binding:
    text = re.sub(r"//.*", "", (find_sdk().assemblyscript / "aici_abi.ts").read_text())
    structs = {
        name: re.findall(r"(\w+): ([uf]32);", body)
        for name, body in re.findall(r"@unmanaged\s+export class (\w+) \{(.*?)\n\}", text, re.DOTALL)
    }
    # the language has no arrays in structs: `arg` has room for them
    structs["StepArg"] += [("tokens", "[INLINE_TOKENS]u32"), ("group", "[INLINE_GROUP]u32")]
    return Binding(
        numbers(re.findall(r"export const (\w+): u32 = (0x[0-9a-f]+|\d+);", text)),
        structs,
        re.findall(r'@external\("aici", "(\w+)"\)', text),
    )


def numbers(found: list[tuple[str, str]]) -> dict[str, int]:
    return {name: int(value, 0) for name, value in found}


@pytest.mark.parametrize("language", [zig, rust, assemblyscript], ids=lambda read: read.__name__)
def test_binding(language: Callable[[], Binding]) -> None:
    theirs, ours = c_header(), language()
    assert ours == theirs
    assert len(ours.constants) > 30
    assert len(ours.structs["MidResult"]) == 17
    assert len(ours.imports) == 9


def test_greedy() -> None:
    """The only constant that is not an integer."""
    assert "#define AICI_GREEDY (-1.0f)" in (find_sdk().include / "aici.h").read_text()
    assert "export const GREEDY: f32 = -1.0;" in (find_sdk().assemblyscript / "aici_abi.ts").read_text()
    assert "pub const GREEDY: f32 = -1.0;" in (find_sdk().rust_crate / "src" / "abi.rs").read_text()
