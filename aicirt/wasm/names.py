"""Function names of a module, made harmless: wasmtime demangles and prints them with every trap.

A mangled C++ or Rust name can refer to its own parts, and each reference may double the text: 226 bytes
become 852 KB. So no name that a demangler would take stays in a module. Names are short, printable, and for
C++ and Rust begin with what can be read of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from aicirt.errors import ModuleError
from aicirt.wasm.reader import Reader, leb

#: how a custom section with names begins
NAMES = b"\x04name"
#: characters of one name: a backtrace has some 20 of them
MAX_NAME = 200
#: bytes of names in one module; more than that are dropped
MAX_NAMES = 1 << 20
_FUNCTIONS = 1
#: what the demanglers of C++ and Rust look for at the start of a name
_MANGLED = re.compile(r"_{1,4}Z|_{0,2}(?:ZN|R[A-Z0-9]|GLOBAL_)")
#: Itanium C++ and legacy Rust: an optional nesting with qualifiers, then identifiers behind their lengths
_START = re.compile(r"_{1,4}Z(N[KVrRO]*)?(?:St)?")
_LENGTH = re.compile(r"[1-9][0-9]{0,3}")
#: the last part of a legacy Rust name
_HASH = re.compile(r"h[0-9a-f]{16}")


def harmless(section: bytes) -> bytes | None:
    """The name section with harmless function names and nothing else, or None if it cannot be read.

    `section` is the content of the custom section, from its own name on.
    """
    try:
        names = list(_function_names(section))
    except ModuleError:
        return None
    entries = b"".join(leb(index) + leb(len(name)) + name for index, name in names)
    content = leb(len(names)) + entries
    return NAMES + bytes([_FUNCTIONS]) + leb(len(content)) + content


def _function_names(section: bytes) -> Iterator[tuple[int, bytes]]:
    """Index and harmless name of each function, in ascending order. Raises ModuleError if malformed."""
    if len(section) > MAX_NAMES:
        raise ModuleError(f"its names have {len(section)} bytes, more than {MAX_NAMES}")
    reader = Reader(section, len(NAMES), where="name section")
    while reader.pos < reader.end:
        kind, size = reader.byte(), reader.uint()
        start = reader.pos
        reader.skip(size)
        if kind != _FUNCTIONS:
            continue
        names = Reader(section, start, reader.pos, "function names")
        for _ in range(names.count("names")):
            index = names.uint()
            yield index, readable(names.name()).encode()
        return


def readable(name: str) -> str:
    """A name of at most `MAX_NAME` printable characters that no demangler takes."""
    text = "".join(c if c.isprintable() else "?" for c in name[: 4 * MAX_NAME])
    if _MANGLED.match(text):
        text = f"fn {'::'.join(_identifiers(text)) or '?'} [{text}]"
    return text if len(text) <= MAX_NAME else text[: MAX_NAME - 3] + "..."


def _identifiers(mangled: str) -> list[str]:
    """The identifiers at the start of a mangled name, up to what only a demangler understands."""
    found: list[str] = []
    start = _START.match(mangled)
    at = start.end() if start else len(mangled)
    while length := _LENGTH.match(mangled, at):
        at = length.end() + int(length[0])
        identifier = mangled[length.end() : at]
        if not _HASH.fullmatch(identifier):
            found.append(identifier)
        if not (start and start[1]):
            break  # what follows are the types of parameters
    return found
