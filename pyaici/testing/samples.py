"""Random texts that a controller lets a model write."""

from __future__ import annotations

import random
from collections import defaultdict

from pyaici.testing.texts import Place, Texts

#: how often a text that is not empty ends where it may, before it is long enough
_ENDING = 0.1
#: when it is long enough, what closes brackets and quotes comes before other bytes: by rank
_CLOSING = [b"}])>", b"\"'", b";.\n", b"", b" \t,=:+-*/&|", b"([{<"]
#: how often it goes on at random nevertheless, to get out where this order leads round in circles
_STRAYING = 0.2
#: texts that are begun for one that comes to its end
_ATTEMPTS = 20


def sample_texts(texts: Texts, count: int, *, length: int, seed: int) -> list[bytes]:
    """So many texts, some of them equal; fewer, if few come to their end.

    A text goes on at random for `length` bytes, or less; then it is brought to its end, if that can be done
    in five times as many.
    """
    rng, found = random.Random(seed), list[bytes]()
    for _ in range(_ATTEMPTS):
        found += _attempt(texts, count - len(found), length, rng)
        if len(found) == count:
            break
    return found


def _attempt(texts: Texts, count: int, length: int, rng: random.Random) -> list[bytes]:
    written = [b""] * count
    ended: list[bytes] = []
    walk = texts.walk(count)
    live = list(range(count))
    try:
        while live:
            pieces = []
            for i in live:
                if (byte := _next(walk.places[i], len(written[i]), length, rng)) is None:
                    ended.append(written[i])
                elif len(written[i]) < 6 * length:
                    pieces.append((i, bytes([byte])))
                    written[i] += bytes([byte])
            live = [i for i, _ in pieces]
            walk.write(pieces)
    finally:
        walk.close()
    return ended


def _next(place: Place, size: int, length: int, rng: random.Random) -> int | None:
    """None if the text ends here."""
    if not place.next or (place.may_end and (size >= length or (size and rng.random() < _ENDING))):
        return None
    if size < length or rng.random() < _STRAYING:
        return _at_random(place.next, rng)
    rank = min(map(_rank, place.next))
    return rng.choice([byte for byte in place.next if _rank(byte) == rank])


def _rank(byte: int) -> int:
    return next((rank for rank, members in enumerate(_CLOSING) if byte in members), 3)


def _at_random(allowed: bytes, rng: random.Random) -> int:
    """First a kind of byte, then one of it: there are many letters, and one quote."""
    kinds = defaultdict[object, list[int]](list)
    for byte in allowed:
        kinds[_kind(byte)].append(byte)
    usual = [members for kind, members in kinds.items() if kind != "other"]
    return rng.choice(rng.choice(usual or list(kinds.values())))


def _kind(byte: int) -> object:
    c = chr(byte)
    if c.isascii() and c.isalpha():
        return "letter"
    if c.isascii() and c.isdigit():
        return "digit"
    if c in " \n\t":
        return "blank"
    return byte if 32 < byte < 127 else "other"
