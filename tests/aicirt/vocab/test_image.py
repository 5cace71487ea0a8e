"""The vocabulary image, compared with brute force over the tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicirt.contract.errors import VocabularyError
from aicirt.vocab import VocabularyImage, build_image, layout
from aicirt.vocab.trie import NUM_CLASSES, OTHER, WELL_FORMED, byte_classes
from tests.thorough import cases

_LOW = 0xFFFFFF

# Bytes that make prefixes, duplicates, characters cut anywhere, and broken UTF-8 likely
_BYTES = st.one_of(
    st.lists(
        st.sampled_from([b"a", b"b", b"\xe4", b"\xb8", b"\xad", b"\xf0", b"\xff", b"<"]), max_size=5
    ).map(b"".join),
    st.text(max_size=4).map(str.encode),
    st.binary(max_size=6),
    st.integers(250, 258).map(lambda n: b"x" * n),
)


@st.composite
def vocabularies(draw: st.DrawFn) -> tuple[list[bytes], set[int], list[int], int]:
    """Draws (tokens, special, eos, vocab_size) with at least one token of text."""
    tokens = draw(st.lists(_BYTES, min_size=1, max_size=60))
    tokens.append(b"z")
    ids = st.integers(0, len(tokens) - 2)
    special = draw(st.sets(ids, max_size=4))
    eos = draw(st.lists(ids, max_size=2, unique=True))
    return tokens, special, eos, len(tokens) + draw(st.integers(0, 70))


def _kinds(token: bytes) -> set[int]:
    """Returns the signature bits of a token, derived from their definition, character by character."""
    bits, at, classes = set(), 0, byte_classes()
    while at < len(token):
        if token[at] < 0x80:
            bits.add(int(classes[token[at]]))
            at += 1
            continue
        for length in (2, 3, 4):
            try:
                token[at : at + length].decode()
            except UnicodeDecodeError as error:
                if at + length > len(token) and error.reason == "unexpected end of data":
                    break  # cut short by the end
                continue
            else:
                break
        else:
            bits.add(OTHER)
            # The valid beginning of a broken character counts as well-formed; decoding continues behind it.
            at += _broken(token[at:], bits)
            continue
        bits.add(WELL_FORMED)
        at += length
    return bits


def _broken(rest: bytes, bits: set[int]) -> int:
    """Returns the number of bytes of a broken character before the invalid byte."""
    size = 0
    for n in range(1, 4):
        try:
            rest[:n].decode()
        except UnicodeDecodeError as error:
            if error.reason != "unexpected end of data":
                break
            size = n
    if size:
        bits.add(WELL_FORMED)
    return max(size, 1)


@given(vocabularies())
@settings(max_examples=cases(30, 120), deadline=None)
def test_image_equals_brute_force(vocabulary: tuple[list[bytes], set[int], list[int], int]) -> None:
    tokens, special, eos, size = vocabulary
    image = VocabularyImage(build_image(tokens, special=special, eos=eos, vocab_size=size))
    text = [i for i, token in enumerate(tokens) if token and i not in special and i not in eos]
    assert image.vocab_size == size
    assert [image.token(i) for i in range(size)] == tokens + [b""] * (size - len(tokens))
    assert image.eos == eos
    for i in range(size):
        flags = (
            layout.SPECIAL * (i in special or i in eos)
            | layout.EOS * (i in eos)
            | layout.UNUSED * (i >= len(tokens))
        )
        assert image.flags(i) == flags
    assert image.tokens_of(image.text_mask) == text
    for bit in range(32):
        assert image.tokens_of(image.class_mask(bit)) == [i for i in text if bit in _kinds(tokens[i])], bit
    for kinds, mask in image.slices:
        inside = {bit for bit in range(32) if kinds >> bit & 1}
        assert image.tokens_of(mask) == [i for i in text if _kinds(tokens[i]) <= inside]
    header = image.header
    duplicates = image.section("duplicates", 2 * header["num_duplicates"]).reshape(-1, 2).tolist()
    held = [i for i in text if len(tokens[i]) <= 254]
    assert duplicates == [
        [i, first]
        for i in sorted(held, key=lambda i: tokens[i])
        if (first := next(j for j in held if tokens[j] == tokens[i])) != i
    ]
    assert image.section("long_tokens", header["num_long"]).tolist() == [
        i for i in text if len(tokens[i]) > 254
    ]


@given(vocabularies())
@settings(max_examples=cases(30, 120), deadline=None)
def test_trie_equals_brute_force(vocabulary: tuple[list[bytes], set[int], list[int], int]) -> None:
    tokens, special, eos, size = vocabulary
    image = VocabularyImage(build_image(tokens, special=special, eos=eos, vocab_size=size))
    held = {tokens[i]: i for i in reversed(range(len(tokens))) if i not in special and i not in eos}
    held = {token: i for token, i in held.items() if 0 < len(token) <= 254}
    nodes = image.nodes
    count = image.header["num_nodes"]
    order = image.section("order", image.header["num_ordered"]).tolist()
    assert [held[token] for token in sorted(held)] == order
    prefixes = sorted({token[:n] for token in held for n in range(len(token) + 1)} | {b""})
    assert count == len(prefixes)
    for p, prefix in enumerate(prefixes):
        token, byte = int(nodes[p, 0]) & _LOW, int(nodes[p, 0]) >> 24
        end, depth = p + (int(nodes[p, 1]) & _LOW), int(nodes[p, 1]) >> 24
        below = [t for t in sorted(held) if t.startswith(prefix)]
        assert (depth, byte) == (len(prefix), prefix[-1] if prefix else 0)
        assert token == held.get(prefix, layout.NO_TOKEN)
        assert [tokens[i] for i in order[int(nodes[p, 3]) & _LOW : int(nodes[end, 3]) & _LOW]] == below
        assert int(nodes[p, 3]) >> 24 == max((len(token) - depth + 1 for token in below), default=0) * (p > 0)
        assert end == p + sum(q.startswith(prefix) for q in prefixes)
        _check_signature(int(nodes[p, 2]), prefix, below)
    assert nodes[count, 3] == len(order)


def _check_signature(signature: int, prefix: bytes, below: list[bytes]) -> None:
    """Checks that the texts below a node, from its byte on, have only the kinds in its signature."""
    inside = {bit for bit in range(32) if signature >> bit & 1}
    for token in below:
        assert _kinds(token[max(len(prefix) - 1, 0) :]) <= inside
    middle = bool(prefix) and WELL_FORMED in _kinds(prefix[:-1]) and not _at_boundary(prefix[:-1])
    if middle:
        assert OTHER in inside
    elif below and prefix:
        exact = set().union(*(_kinds(token) for token in below))
        assert inside <= exact, "the signature has no kind that does not occur"


def _at_boundary(prefix: bytes) -> bool:
    """Returns whether the text does not end within a character."""
    for n in range(1, 4):
        try:
            prefix[-n:].decode()
        except UnicodeDecodeError as error:
            if n <= len(prefix) and error.reason == "unexpected end of data" and error.start == 0:
                return False
    return True


def test_classes_cover_ascii() -> None:
    classes = byte_classes()
    assert set(classes[:128].tolist()) == set(range(NUM_CLASSES)) and NUM_CLASSES <= WELL_FORMED
    assert len({int(classes[b]) for b in b"abcdef"}) == 1
    assert classes[ord("\n")] != classes[ord("\t")] != classes[ord("\r")]


def test_slices_contain_the_tokens_of_their_kinds() -> None:
    words = [b"abc", b"aBc", b"aB0", b"a_0", b"a c", b"a C", b" a0", b"a-b", "é".encode()]
    image = VocabularyImage(build_image(words, special=(), eos=[]))
    assert [image.tokens_of(mask) for _, mask in image.slices] == [
        [0],
        [0, 1],
        [0, 1, 2],
        [0, 1, 2, 3],
        [0, 4],
        [0, 1, 4, 5],
        [0, 1, 2, 4, 5, 6],
        [0, 1, 2, 3, 4, 5, 6],
        [0, 1, 2, 3, 8],
        [0, 1, 2, 3, 4, 5, 6, 8],
    ]


def test_mask_helpers() -> None:
    image = VocabularyImage(build_image([b"a", b"b", b"<s>"], special={2}, eos=[2], vocab_size=40))
    assert image.tokens_of(np.array([1, 2], np.uint32)) == [0, 33]
    assert image.decode([0, 2, 1]) == b"ab"
    assert image.bos is None and image.is_special(2) and not image.is_special(0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tokens": [b"", b"<s>"], "special": {1}, "eos": []}, "no token of this vocabulary has text"),
        ({"tokens": [b"a"], "special": set(), "eos": [1]}, "eos token 1 is not in the vocabulary of 1"),
        ({"tokens": [b"a"], "special": {-1}, "eos": []}, "special token -1"),
        ({"tokens": [b"a", b"b"], "special": set(), "eos": [1, 1]}, "twice"),
        ({"tokens": [b"a"], "special": set(), "eos": [], "bos": 7}, "bos token 7"),
        ({"tokens": [b"a", b"b"], "special": set(), "eos": [], "vocab_size": 1}, "vocab_size is 1"),
        ({"tokens": [b"a"], "special": set(), "eos": [], "vocab_size": 1 << 24}, "too many"),
        ({"tokens": [b"a"], "special": set(), "eos": [], "turns": b"abc"}, "turns has 3 bytes"),
        ({"tokens": [b"a"], "special": set(), "eos": [], "turns": bytes(65540)}, "turns has 65540 bytes"),
    ],
)
def test_invalid_vocabularies_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(VocabularyError, match=message):
        build_image(**arguments)  # type: ignore[arg-type]


def test_turns_are_a_section_of_the_image() -> None:
    image = build_image([b"a"], special=(), eos=[], turns=b"eight by")
    assert VocabularyImage(image).turns == b"eight by"
    assert VocabularyImage(build_image([b"a"], special=(), eos=[])).turns == b""


def test_invalid_images_are_refused() -> None:
    good = build_image([b"a"], special=(), eos=[])
    for bad, message in (
        (b"", "too few"),
        (b"x" + good[1:], "not a vocabulary image"),
        (good[:4] + b"\x09" + good[5:], "version 9"),
        (good[:-64], "truncated"),
    ):
        with pytest.raises(VocabularyError, match=message):
            VocabularyImage(bad)
    with pytest.raises(VocabularyError, match="token 1 "):
        VocabularyImage(good).token(1)


@pytest.mark.parametrize("name", [*layout.HEADER[3:13], *layout.HEADER[16:]])
def test_sections_beyond_the_end_are_refused(name: str) -> None:
    image = build_image([b"a", b"b", b"a"], special=(), eos=[2])
    at = 4 * layout.HEADER.index(name)
    bad = image[:at] + b"\xf0\xff\xff\x7f" + image[at + 4 :]
    if name in ("max_token_len", "num_classes"):
        assert VocabularyImage(bad).header[name] > 1 << 30  # these fields are not used to read sections
    else:
        with pytest.raises(VocabularyError, match="vocabulary image"):
            VocabularyImage(bad)
