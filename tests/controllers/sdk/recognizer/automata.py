"""Random automata and vocabularies, and what they allow by brute force."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from aicirt.vocab.trie import NUM_CLASSES, WELL_FORMED, byte_classes
from tests.controllers.runners.host import Vocab

SPECIALS = ("eos", "bos", "pad", "unk")
_CLASSES = byte_classes()
_GROUPS = [[b for b in range(128) if _CLASSES[b] == c] for c in range(NUM_CLASSES)]


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
    target = st.one_of(st.integers(0, count - 1), st.just(0))
    rows = [[0] * 256]
    for state in range(1, count):
        usual = draw(st.one_of(st.just(state), target))
        row = [usual] * 256
        for group in draw(st.lists(st.sampled_from(_GROUPS), max_size=12)):
            to = draw(target)
            for byte in group:
                row[byte] = to
        if draw(st.booleans()):
            to = draw(target)
            row[128:] = [to] * 128
        for byte in draw(st.lists(st.sampled_from(b'ab "\\<>/09.@\n\xc3\xa9\xe4\xb8\xf0\xff'), max_size=5)):
            row[byte] = draw(target)
        rows.append(row)
    if draw(st.booleans()):
        _add_characters(draw, rows, target)
    flags = [0, *(draw(st.integers(0, 15)) for _ in rows[1:])]
    return Automaton(rows, flags)


def _add_characters(draw: st.DrawFn, rows: list[list[int]], target: st.SearchStrategy[int]) -> None:
    """Makes a state read characters of well-formed UTF-8, which end in some state."""
    state, end = draw(st.integers(1, len(rows) - 1)), draw(target)
    if not end:
        return
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


_PIECES = [c.encode() for c in 'abZ0 "\\</\né中😀']
_BROKEN = [b"\xc3", b"\xa9", b"\xe4\xb8", b"\xb8\xad", b"\xf0\x9f", b"\xff", b"\xed\xa0", b"\xc0\x80"]
_TOKEN = st.one_of(
    st.lists(st.sampled_from(_PIECES), max_size=5).map(b"".join),
    st.lists(st.sampled_from(_PIECES + _BROKEN), max_size=4).map(b"".join),
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
