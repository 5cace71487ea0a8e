"""Random damage to modules: to bytes, sections, entries of sections, and code."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from aicirt.wasm.module.reader import leb
from lab.campaigns import entries
from lab.campaigns.sections import Section, join, split

#: encodings of numbers that decoders get wrong: the largest, too large, longer than necessary, endless
LEB_EDGES = (
    *(b"\x00", b"\x01", b"\x7f", b"\x80\x01", b"\xff\x7f", b"\x80\x80\x04", b"\xff\xff\xff\xff\x0f"),
    *(b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x08", b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x00"),
    *(b"\x80\x00", b"\x80\x80\x80\x80\x80\x00", b"\xff" * 9 + b"\x01", b"\x80" * 12, b"\x80" * 64),
)
_NAMES = (
    b"",
    b"name",
    b"dylink.0",
    b"target_features",
    b"linking",
    b"\xff\xfe",
    b"n" * 1000,
    b"component-type",
)
_MAX_BYTES = 4 << 20

Change = Callable[[random.Random, bytes, Sequence[bytes]], bytes]


def mutate(rng: random.Random, seeds: Sequence[bytes]) -> tuple[bytes, list[str]]:
    """Returns a damaged module and the names of the changes, in order."""
    wasm, done = rng.choice(seeds), []
    for _ in range(rng.choices((1, 2, 3, 6), (60, 25, 10, 5))[0]):
        kind = rng.choices(tuple(_KINDS), (30, 20, 25, 25))[0]
        change = rng.choice(_KINDS[kind])
        wasm = change(rng, wasm, seeds)[:_MAX_BYTES]
        done.append(f"{kind}.{change.__name__.strip('_')}")
    return wasm, done


# -- bytes ------------------------------------------------------------------------------------


def _flip(rng: random.Random, wasm: bytes, _seeds: Sequence[bytes]) -> bytes:
    return _put(
        wasm, at := _place(rng, wasm), 1, bytes([wasm[at] ^ 1 << rng.randrange(8)]) if wasm else b"\0"
    )


def _set(rng: random.Random, wasm: bytes, _seeds: Sequence[bytes]) -> bytes:
    value = rng.choice((0, 1, 0x7F, 0x80, 0xFF, 0x0B, 0x10, 0x40, 0x60, 0xFC, 0xFD, rng.randrange(256)))
    return _put(wasm, _place(rng, wasm), 1, bytes([value]))


def _number(rng: random.Random, wasm: bytes, _seeds: Sequence[bytes]) -> bytes:
    return _put(wasm, _place(rng, wasm), rng.choice((0, 1, 1, 2)), rng.choice(LEB_EDGES))


def _insert(rng: random.Random, wasm: bytes, _seeds: Sequence[bytes]) -> bytes:
    return _put(wasm, _place(rng, wasm), 0, rng.randbytes(rng.choice((1, 2, 8, 100))))


def _delete(rng: random.Random, wasm: bytes, _seeds: Sequence[bytes]) -> bytes:
    return _put(wasm, _place(rng, wasm), rng.choice((1, 2, 8, 100)), b"")


def _repeat(rng: random.Random, wasm: bytes, _seeds: Sequence[bytes]) -> bytes:
    at, length = _place(rng, wasm), rng.choice((1, 2, 8, 100))
    return _put(wasm, at, 0, wasm[at : at + length] * rng.choice((1, 1, 2, 100)))


def _truncate(rng: random.Random, wasm: bytes, _seeds: Sequence[bytes]) -> bytes:
    return wasm[: _place(rng, wasm)]


def _splice(rng: random.Random, wasm: bytes, seeds: Sequence[bytes]) -> bytes:
    other = rng.choice(seeds)
    at, length = _place(rng, other), rng.choice((1, 8, 100, 1000))
    return _put(wasm, _place(rng, wasm), rng.choice((0, length)), other[at : at + length])


def _place(rng: random.Random, wasm: bytes) -> int:
    """Returns a random position, more often in the first kilobyte, which has the structure."""
    most = len(wasm) if rng.random() < 0.5 else min(len(wasm), 1024)
    return rng.randrange(min(8, most), most) if most > 8 else 0


def _put(wasm: bytes, at: int, removed: int, inserted: bytes) -> bytes:
    return wasm[:at] + inserted + wasm[at + removed :]


# -- sections -------------------------------------------------------------------------------------


def _change_sections(change: Callable[[random.Random, list[Section], list[Section]], None]) -> Change:
    def changed(rng: random.Random, wasm: bytes, seeds: Sequence[bytes]) -> bytes:
        sections = split(wasm)
        change(rng, sections, split(rng.choice(seeds)))
        return join(sections)

    changed.__name__ = change.__name__
    return changed


def _drop(rng: random.Random, sections: list[Section], _other: list[Section]) -> None:
    if sections:
        del sections[rng.randrange(len(sections))]


def _double(rng: random.Random, sections: list[Section], _other: list[Section]) -> None:
    if sections:
        sections.insert(rng.randrange(len(sections)), rng.choice(sections))


def _swap(rng: random.Random, sections: list[Section], _other: list[Section]) -> None:
    if len(sections) > 1:
        one, two = rng.sample(range(len(sections)), 2)
        sections[one], sections[two] = sections[two], sections[one]


def _shuffle(rng: random.Random, sections: list[Section], _other: list[Section]) -> None:
    rng.shuffle(sections)


def _of_another(rng: random.Random, sections: list[Section], other: list[Section]) -> None:
    """Inserts a section of another module, or replaces the section of the same kind by it."""
    if not other:
        return
    new = rng.choice(other)
    places = [i for i, section in enumerate(sections) if section.id == new.id]
    if places:
        sections[places[0]] = new
    else:
        sections.insert(rng.randrange(len(sections) + 1), new)


def _resize(rng: random.Random, sections: list[Section], _other: list[Section]) -> None:
    """Declares a wrong size for a section."""
    if sections:
        place = rng.randrange(len(sections))
        length = len(sections[place].content)
        size = rng.choice((leb(length + 1), leb(max(0, length - 1)), leb(length * 2), *LEB_EDGES))
        sections[place] = Section(sections[place].id, sections[place].content, size)


def _empty(rng: random.Random, sections: list[Section], _other: list[Section]) -> None:
    if sections:
        place = rng.randrange(len(sections))
        sections[place] = Section(sections[place].id, rng.choice((b"", b"\0", b"\1")))


def _other_id(rng: random.Random, sections: list[Section], _other: list[Section]) -> None:
    if sections:
        place = rng.randrange(len(sections))
        sections[place] = Section(
            rng.choice((0, 13, 14, 12, 8, 255, rng.randrange(14))), sections[place].content
        )


def _custom(rng: random.Random, sections: list[Section], _other: list[Section]) -> None:
    name = rng.choice(_NAMES)
    size = rng.choice((len(name), len(name), len(name) + 5, 0xFFFFFFFF))
    content = leb(size) + name + rng.randbytes(rng.choice((0, 3, 50, 100_000)))
    for _ in range(rng.choice((1, 1, 1, 2000))):
        sections.insert(rng.randrange(len(sections) + 1), Section(0, content[:2000] if _ else content))


def _start(rng: random.Random, sections: list[Section], _other: list[Section]) -> None:
    """Makes a random function the start function."""
    sections[:] = [section for section in sections if section.id != 8]
    place = next((i for i, section in enumerate(sections) if section.id > 8), len(sections))
    sections.insert(place, Section(8, leb(rng.choice((0, 1, 2, 3, rng.randrange(100), 0xFFFFFFFF)))))


_KINDS: dict[str, tuple[Change, ...]] = {
    "bytes": (_flip, _flip, _set, _set, _number, _number, _insert, _delete, _repeat, _truncate, _splice),
    "section": tuple(
        _change_sections(change)
        for change in (
            *(_drop, _double, _swap, _shuffle, _of_another, _of_another, _resize, _empty, _other_id),
            *(_custom, _start, _start),
        )
    ),
    "entry": tuple(_change_sections(change) for change in entries.CHANGES),
    "code": tuple(_change_sections(change) for change in entries.CODE_CHANGES),
}
