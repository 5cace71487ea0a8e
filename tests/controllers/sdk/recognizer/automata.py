"""Random automata and vocabularies, and what they allow by brute force."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from aicirt.vocab.trie import NUM_CLASSES, WELL_FORMED, byte_classes
from lab.runners.host import Vocab

SPECIALS = ("eos", "bos", "pad", "unk")
_CLASSES = byte_classes()
_GROUPS = [[b for b in range(128) if _CLASSES[b] == c] for c in range(NUM_CLASSES)]
#: texts stand for lists of numbers, since Hypothesis draws a text as fast as a number
_FIRST, _NUMBERS = 0x4E00, 1 << 12
_LISTS = [st.text([chr(_FIRST + n) for n in range(_NUMBERS)], max_size=most) for most in (12, 5)]
_SINGLE = st.binary(min_size=16, max_size=16)
_EXCEPTIONS = b'ab "\\<>/09.@\n\xc3\xa9\xe4\xb8\xf0\xff'


@dataclass(repr=False)
class Automaton:
    """Rows of next states; state 0 is dead and state 1 the start. `flags`: bit i allows SPECIALS[i]."""

    rows: list[list[int]]
    flags: list[int]

    def run(self, text: bytes, state: int = 1) -> int:
        for byte in text:
            state = self.rows[state][byte] if state else 0
        return state

    def argument(self, way: int, number: int = 0) -> bytes:
        """For guests/table.cpp."""
        states = b"".join(
            bytes([flags]) + bytes(row) for flags, row in zip(self.flags, self.rows, strict=True)
        )
        return bytes([way, number]) + states


@st.composite
def automata(draw: st.DrawFn) -> Automaton:
    """Automata whose states treat whole classes of bytes alike, with exceptions, as real ones do."""
    count = draw(st.integers(2, 6))

    def target(number: int) -> int:
        """A state; half of the numbers stand for the dead one."""
        return max(0, number % (2 * count) - count)

    rows = [[0] * 256]
    for state in range(1, count):
        usual, high, *_ = draw(_SINGLE)
        row = [state if usual & 1 else target(usual >> 1)] * 256
        groups, exceptions = (
            [divmod(ord(char) - _FIRST, len(choices)) for char in draw(numbers)]
            for numbers, choices in zip(_LISTS, (_GROUPS, _EXCEPTIONS), strict=True)
        )
        for number, place in groups:
            for byte in _GROUPS[place]:
                row[byte] = target(number)
        if high & 1:
            row[128:] = [target(high >> 1)] * 128
        for number, place in exceptions:
            row[_EXCEPTIONS[place]] = target(number)
        rows.append(row)
    also, place, end, *_ = draw(_SINGLE)
    if also & 1 and target(end):
        _add_characters(rows, 1 + place % (count - 1), target(end))
    return Automaton(rows, [0, *(byte & 15 for byte in draw(_SINGLE)[1 : len(rows)])])


def _add_characters(rows: list[list[int]], state: int, end: int) -> None:
    """Makes a state read characters of well-formed UTF-8, which end in a state."""
    one, two, three = len(rows), len(rows) + 1, len(rows) + 2
    rows.extend([0] * 256 for _ in range(7))
    e0, ed, f0, f4 = range(three + 1, three + 5)

    def link(source: int, low: int, high: int, to: int) -> None:
        rows[source][low : high + 1] = [to] * (high + 1 - low)

    for source, low, high, to in (
        (state, 0x80, 0xFF, 0),
        (state, 0xC2, 0xDF, one),
        (state, 0xE0, 0xE0, e0),
        (state, 0xE1, 0xEC, two),
        (state, 0xED, 0xED, ed),
        (state, 0xEE, 0xEF, two),
        (state, 0xF0, 0xF0, f0),
        (state, 0xF1, 0xF3, three),
        (state, 0xF4, 0xF4, f4),
        (one, 0x80, 0xBF, end),
        (two, 0x80, 0xBF, one),
        (three, 0x80, 0xBF, two),
        (e0, 0xA0, 0xBF, one),
        (ed, 0x80, 0x9F, one),
        (f0, 0x90, 0xBF, two),
        (f4, 0x80, 0x8F, two),
    ):
        link(source, low, high, to)


_PIECES = 'abZ0 "\\</\né中😀'
_BROKEN = [b"\xc3", b"\xa9", b"\xe4\xb8", b"\xb8\xad", b"\xf0\x9f", b"\xff", b"\xed\xa0", b"\xc0\x80"]
_SPELLED = {chr(_FIRST + n): broken for n, broken in enumerate(_BROKEN)}
_TOKEN = st.one_of(
    st.text(_PIECES, max_size=5).map(str.encode),
    st.text([*_PIECES, *_SPELLED], max_size=4).map(
        lambda text: b"".join(_SPELLED.get(char, char.encode()) for char in text)
    ),
    st.binary(max_size=4),
    st.text(max_size=3).map(str.encode),
    st.tuples(st.sampled_from(b"a0\xa9"), st.integers(250, 262)).map(lambda t: bytes([t[0]]) * t[1]),
)


@st.composite
def vocabularies(draw: st.DrawFn) -> Vocab:
    """A vocabulary with duplicate, empty, special, too long and broken tokens, and unused ids."""
    tokens = [b"a", *draw(st.lists(_TOKEN, min_size=3, max_size=80))]
    ids = st.integers(1, len(tokens) - 1)
    named = {name: draw(st.one_of(st.none(), ids)) for name in SPECIALS[1:]}
    eos = draw(st.lists(ids, max_size=2, unique=True))
    special = draw(st.sets(ids, max_size=3)) | {token for token in named.values() if token is not None}
    padding = draw(st.sampled_from([0, 0, 1, 31, 64]))
    return Vocab(tokens, special=sorted(special), eos=eos, vocab_size=len(tokens) + padding, **named)


def allowed(automaton: Automaton, vocab: Vocab, state: int) -> list[int]:
    """Returns the tokens that are allowed in a state, by trying each of them."""
    tokens = set(vocab.allowed(lambda text: automaton.run(text, state) != 0))
    ids = {"eos": vocab.eos, **{name: [token] for name, token in vocab.named.items() if token is not None}}
    for bit, name in enumerate(SPECIALS):
        if automaton.flags[state] >> bit & 1:
            tokens.update(ids.get(name, []))
    return sorted(tokens)


def free_kinds(automaton: Automaton, state: int) -> set[int]:
    """Signature bits c such that texts of class c alone never lead out (necessary for a loop signature)."""
    kinds = set()
    for number, group in enumerate(_GROUPS):
        seen, todo = {state}, [state]
        while todo and 0 not in seen:
            now = todo.pop()
            for byte in group:
                if (to := automaton.rows[now][byte]) not in seen:
                    seen.add(to)
                    todo.append(to)
        if 0 not in seen:
            kinds.add(number)
    return kinds | {WELL_FORMED, WELL_FORMED + 1}
