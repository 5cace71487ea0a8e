"""Changes to single entries of sections: to existing entries, with generated entries, and to code."""

from __future__ import annotations

import random
from collections.abc import Callable

from aicirt.contract.abi import EXPORTS, known_imports
from aicirt.contract.errors import ModuleError
from aicirt.wasm.module.reader import WasmReader, leb
from aicirt.wasm.module.rewrite import RESERVED
from lab.campaigns.sections import (
    CODE,
    EXPORT,
    FUNCTION,
    GLOBAL,
    IMPORT,
    MEMORY,
    TABLE,
    TAG,
    TYPE,
    Section,
    entries_of,
    of_entries,
)

_COUNTS = (0, 1, 2, 16, 1024, 1025, 5000, 20_000, 65_535, 65_536, 65_537, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 33)
_VALUE_TYPES = (0x7F, 0x7E, 0x7D, 0x7C, 0x7B, 0x70, 0x6F, 0x69, 0x63, 0x40, 0x60)
_EXPORTED = (
    *(name for name, _ in EXPORTS.values()),
    *("memory", "aici_abi_v1", "aici_abi_v2", "_start", "", RESERVED + "memory0", RESERVED + "x"),
)
#: (module, name)
_IMPORTED = (*known_imports(), ("env", "memory"), ("aici", "teleport"), ("wasi_unstable", "fd_write"))
_ORDER = (TYPE, IMPORT, FUNCTION, TABLE, MEMORY, TAG, GLOBAL, EXPORT, CODE)


def _name(text: str) -> bytes:
    return leb(len(text.encode())) + text.encode()


def _index(rng: random.Random) -> bytes:
    return leb(rng.choice((0, 0, 1, 2, 3, 4, 5, rng.randrange(40), 0xFFFFFFFF)))


def _value_type(rng: random.Random) -> bytes:
    return bytes([rng.choice(_VALUE_TYPES)])


def _extent(rng: random.Random) -> bytes:
    flags = rng.choice((0, 0, 1, 1, 2, 3, 4, 5, 8, 9, 15, 255))
    least = rng.choice(_COUNTS)
    return bytes([flags]) + leb(least) + (leb(rng.choice((least, *_COUNTS))) if flags & 1 else b"")


def _table(rng: random.Random) -> bytes:
    return _value_type(rng) + _extent(rng)


def _constant(rng: random.Random) -> bytes:
    numbers = (b"\x41\x00", b"\x41\x7f", b"\x42\x01", b"\x43\0\0\xc0\x7f", b"\x44" + b"\xff" * 8)
    others = (b"\x23\x00", b"\xd2\x00", b"\xd0\x70", b"\x41\x01\x41\x02\x6a", b"\x10\x00", b"")
    return rng.choice(numbers + others) + rng.choice((b"\x0b", b"\x0b", b"\x0b", b""))


def _global(rng: random.Random) -> bytes:
    return _value_type(rng) + bytes([rng.choice((0, 1, 1, 2))]) + _constant(rng)


def _import(rng: random.Random) -> bytes:
    module, name = rng.choice(_IMPORTED)
    kind = rng.choice((0, 0, 0, 1, 2, 3, 4, 5))
    what = (_index, _table, _extent, lambda r: _value_type(r) + b"\1", lambda r: b"\0" + _index(r), _index)[
        kind
    ]
    return _name(module) + _name(name) + bytes([kind]) + what(rng)


def _export(rng: random.Random) -> bytes:
    return _name(rng.choice(_EXPORTED)) + bytes([rng.choice((0, 0, 0, 1, 2, 3, 4))]) + _index(rng)


def _type(rng: random.Random) -> bytes:
    form = rng.choice((0x60, 0x60, 0x60, 0x5F, 0x5E, 0x50, 0x4E))
    lists = [b"".join(_value_type(rng) for _ in range(rng.choice((0, 1, 2, 4, 1000)))) for _ in range(2)]
    return bytes([form]) + b"".join(leb(len(part)) + part for part in lists)


_MADE: dict[int, Callable[[random.Random], bytes]] = {
    TYPE: _type,
    IMPORT: _import,
    FUNCTION: _index,
    TABLE: _table,
    MEMORY: _extent,
    GLOBAL: _global,
    EXPORT: _export,
    TAG: lambda rng: b"\0" + _index(rng),
}


def _pick(rng: random.Random, sections: list[Section]) -> tuple[int, list[bytes]] | None:
    """Returns the index of a section that has entries, and the entries."""
    places = [(i, found) for i, section in enumerate(sections) if (found := entries_of(section))]
    return rng.choice(places) if places else None


def _change(edit: Callable[[random.Random, int, list[bytes]], None]) -> Callable[..., None]:
    def changed(rng: random.Random, sections: list[Section], _other: list[Section]) -> None:
        picked = _pick(rng, sections)
        if picked is not None:
            place, found = picked
            edit(rng, sections[place].id, found)
            sections[place] = of_entries(sections[place].id, found)

    changed.__name__ = edit.__name__
    return changed


def _drop(rng: random.Random, _section: int, entries: list[bytes]) -> None:
    del entries[rng.randrange(len(entries))]


def _repeat(rng: random.Random, _section: int, entries: list[bytes]) -> None:
    place = rng.randrange(len(entries))
    entries[place:place] = entries[place : place + 1] * rng.choice((1, 1, 2, 100, 6000))


def _swap(rng: random.Random, _section: int, entries: list[bytes]) -> None:
    one, two = rng.randrange(len(entries)), rng.randrange(len(entries))
    entries[one], entries[two] = entries[two], entries[one]


def _byte(rng: random.Random, _section: int, entries: list[bytes]) -> None:
    place = rng.randrange(len(entries))
    entry = bytearray(entries[place] or b"\0")
    entry[rng.randrange(len(entry))] = rng.choice((0, 1, 2, 3, 0x40, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    entries[place] = bytes(entry)


def _replace(rng: random.Random, section: int, entries: list[bytes]) -> None:
    make = _MADE.get(section)
    if make is not None:
        entries[rng.randrange(len(entries))] = make(rng)


def _add(rng: random.Random, sections: list[Section], _other: list[Section]) -> None:
    """Adds an entry of any kind, in a new section if necessary."""
    kind = rng.choice(tuple(_MADE))
    new = _MADE[kind](rng)
    for place, section in enumerate(sections):
        if section.id == kind:
            found = entries_of(section) or []
            found.insert(rng.randrange(len(found) + 1), new)
            sections[place] = of_entries(kind, found)
            return
    before = [i for i, section in enumerate(sections) if section.id in _ORDER[: _ORDER.index(kind)]]
    sections.insert(before[-1] + 1 if before else 0, of_entries(kind, [new]))


def _count(rng: random.Random, sections: list[Section], _other: list[Section]) -> None:
    """Changes the number of entries that a section declares."""
    picked = _pick(rng, sections)
    if picked is not None:
        place, found = picked
        number = rng.choice((0, 1, len(found) - 1, len(found) + 1, 100_000, 0xFFFFFFFF))
        content = sections[place].content
        reader = WasmReader(content)
        reader.uint()
        sections[place] = Section(sections[place].id, leb(max(0, number)) + content[reader.pos :])


CHANGES = (
    *(_change(edit) for edit in (_drop, _repeat, _swap, _byte, _byte, _replace, _replace)),
    _add,
    _add,
    _count,
)


# -- code ---------------------------------------------------------------------------------------------


def _instructions(rng: random.Random) -> bytes:
    """Returns code that leaves the stack unchanged and is mostly valid anywhere."""
    number = b"\x41" + rng.choice(
        (b"\0", b"\1", b"\x7f", b"\x80\x80\x04", b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x78")
    )
    drop = b"\x1a"
    memory = rng.choice(
        (b"\x28\x02\0", b"\x2d\0\0", b"\x28\x02\xff\xff\xff\xff\x0f", b"\x28\x1f\0", b"\x29\x03\x08")
    )
    pieces = (
        number + memory + drop,
        number + number + b"\x36\x02" + rng.choice((b"\0", b"\xf0\xff\xff\xff\x0f")),
        number + b"\x40\0" + drop,
        number * 3 + b"\xfc\x0b\0",
        number * 3 + b"\xfc\x0a\0\0",
        number * 3 + b"\xfc\x08\0\0",
        number + number + bytes([rng.choice((0x6D, 0x6E, 0x6F, 0x70))]) + drop,
        b"\x43\0\0\xc0\x7f\xa8" + drop,
        b"\x03\x40\x0c\0\x0b",
        b"\x02\x40" * (depth := rng.choice((1, 10, 1000, 20_000))) + b"\x0b" * depth,
        b"\x10" + _index(rng),
        b"\x10" + _index(rng) + drop,
        number + b"\x11" + _index(rng) + b"\0",
        b"\x23" + _index(rng) + drop,
        number + b"\x24" + _index(rng),
        number + b"\xd2\0" + b"\x26\0",
        number + b"\x0e" + leb(count := rng.choice((0, 1, 1000))) + b"\0" * (count + 1),
        b"\x00",
        b"\x0f",
        b"\x08\0",
        b"\xfd\x0c" + rng.randbytes(16) + drop,
        b"\x06\x40\x19\x0b",
        b"\xfe\x10\x02\0",
        bytes([rng.randrange(256)]),
    )
    return rng.choice(pieces) * rng.choice((1, 1, 1, 3, 300))


def _edit_body(edit: Callable[[random.Random, bytes, bytes], bytes]) -> Callable[..., None]:
    """Returns a change to one function. `edit` gets the function's locals and its code."""

    def changed(rng: random.Random, sections: list[Section], _other: list[Section]) -> None:
        for place, section in enumerate(sections):
            bodies = entries_of(section) if section.id == CODE else None
            if not bodies:
                continue
            which = rng.randrange(len(bodies))
            reader = WasmReader(bodies[which])
            reader.uint()
            start = reader.pos
            try:
                for _ in range(reader.count("locals")):
                    reader.uint()
                    reader.value_type()
            except ModuleError:
                return
            body = edit(rng, bodies[which][start : reader.pos], bodies[which][reader.pos :])
            bodies[which] = leb(len(body)) + body
            sections[place] = of_entries(CODE, bodies)
            return

    changed.__name__ = edit.__name__
    return changed


def _at_the_start(rng: random.Random, locals_: bytes, code: bytes) -> bytes:
    return locals_ + _instructions(rng) + code


def _anywhere(rng: random.Random, locals_: bytes, code: bytes) -> bytes:
    at = rng.randrange(len(code) + 1)
    return locals_ + code[:at] + _instructions(rng) + code[at:]


def _one_byte(rng: random.Random, locals_: bytes, code: bytes) -> bytes:
    at = rng.randrange(max(1, len(code)))
    return locals_ + code[:at] + bytes([rng.randrange(256)]) + code[at + 1 :]


def _like_instruction(rng: random.Random, locals_: bytes, code: bytes) -> bytes:
    """Replaces an operator or a comparison by another one."""
    places = [at for at, byte in enumerate(code) if 0x46 <= byte <= 0x4F or 0x6A <= byte <= 0x78]
    if not places:
        return locals_ + code
    at = rng.choice(places)
    other = rng.randrange(0x46, 0x50) if code[at] < 0x60 else rng.randrange(0x6A, 0x79)
    return locals_ + code[:at] + bytes([other]) + code[at + 1 :]


def _constant_in_code(rng: random.Random, locals_: bytes, code: bytes) -> bytes:
    places = [at for at, byte in enumerate(code[:-1]) if byte == 0x41 and code[at + 1] < 0x80]
    if not places:
        return locals_ + code
    at = rng.choice(places)
    edge = rng.choice((b"\0", b"\x7f", b"\x80\x80\x04", b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x78"))
    return locals_ + code[: at + 1] + edge + code[at + 2 :]


def _many_locals(rng: random.Random, locals_: bytes, code: bytes) -> bytes:
    count = rng.choice((1, 1000, 49_000, 50_001, 0xFFFFFFFF))
    return b"\1" + leb(count) + _value_type(rng) + code


CODE_CHANGES = tuple(
    _edit_body(edit)
    for edit in (
        *(_at_the_start, _at_the_start, _at_the_start, _anywhere, _one_byte, _like_instruction),
        *(_constant_in_code, _constant_in_code, _many_locals),
    )
)
