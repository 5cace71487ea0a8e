"""The byte alphabet of GPT-2: one printable character for each byte."""

from __future__ import annotations


def _alphabet() -> dict[str, int]:
    # Printable Latin-1 characters stand for themselves; the other bytes, in order, are
    # written as U+0100, U+0101, ...
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    table = {chr(byte): byte for byte in printable}
    table.update((chr(0x100 + number), byte) for number, byte in enumerate(others))
    return table


_BYTE_OF = _alphabet()


def byte_level_bytes(piece: str) -> bytes:
    """Returns the bytes of a piece written in the byte alphabet.

    A piece that contains any other character (an added token such as "    ") is literal text,
    as in the ByteLevel decoder of `tokenizers`.
    """
    try:
        return bytes([_BYTE_OF[char] for char in piece])
    except KeyError:
        return piece.encode()
