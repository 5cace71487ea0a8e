"""controllers/sdk/zig/aici.zig says the same as aici.h."""

from __future__ import annotations

import re

from pyaici.build import find_sdk

C_TYPES = {"uint32_t": "u32", "float": "f32"}


def sources() -> tuple[str, str]:
    sdk = find_sdk()
    header = re.sub(r"/\*.*?\*/", "", (sdk.include / "aici.h").read_text(), flags=re.DOTALL)
    zig = re.sub(r"//.*", "", sdk.zig_module.read_text())
    return header, zig


def test_constants() -> None:
    header, zig = sources()
    ours = {
        name: int(value, 0)
        for name, value in re.findall(r"pub const (\w+)(?:: u32)? = (0x[0-9a-f]+|\d+);", zig)
    }
    theirs = {
        name: int(value, 0)
        for name, value in re.findall(r"AICI_(\w+)(?: = | )(0x[0-9a-f]+|\d+)u?(?=[,\s}])", header)
    }
    assert ours == theirs
    assert len(ours) > 30


def test_structs() -> None:
    header, zig = sources()
    theirs = {}
    for name, body in re.findall(r"typedef struct aici_(\w+) \{(.*?)\}", header, re.DOTALL):
        fields = re.findall(r"(uint32_t|float) (\w+)(?:\[AICI_(\w+)\])?;", body)
        camel = "".join(word.capitalize() for word in name.split("_"))
        theirs[camel] = [
            (field, f"[{length}]{C_TYPES[kind]}" if length else C_TYPES[kind])
            for kind, field, length in fields
        ]
    ours = {
        name: re.findall(r"(\w+): ((?:\[\w+\])?[uf]32)", body)
        for name, body in re.findall(r"pub const (\w+) = extern struct \{(.*?)\};", zig, re.DOTALL)
    }
    assert ours == theirs
    assert len(ours["MidResult"]) == 11


def test_imports() -> None:
    header, zig = sources()
    assert re.findall(r"AICI_IMPORT\((\w+)\)", header)[1:] == re.findall(r'extern "aici" fn (\w+)\(', zig)
