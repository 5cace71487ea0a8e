"""Builds the vocabulary image of docs/vocabulary.md, and computes the fingerprint of a vocabulary."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicirt.contract.errors import VocabularyError
from aicirt.vocab import layout
from aicirt.vocab.trie import NUM_CLASSES, SLICES, build_trie, byte_classes, edge_bits


def fingerprint_of(spec: dict[str, Any]) -> str:
    """Returns the SHA-256 (hex) of a registered vocabulary: equal for equal vocabularies on any machine.

    `spec` has the arguments of the call `vocabulary`. Raises KeyError, TypeError, ValueError, AttributeError
    or struct.error if it is invalid.
    """
    digest = hashlib.sha256(b"aici vocabulary 1\0")

    def add(*parts: bytes) -> None:
        digest.update(struct.pack(f"<I{len(parts)}I", len(parts), *map(len, parts)))
        digest.update(b"".join(parts))

    add(*spec["tokens"])
    add(*(f"{token} {label}".encode() for token, label in sorted(spec["special"].items())))
    roles = (spec["vocab_size"], tuple(spec["eos"]), spec.get("bos"), spec.get("pad"), spec.get("unk"))
    add(repr(roles).encode())
    add(spec["tokenizer_kind"].encode(), spec["tokenizer_data"])
    if spec.get("turns"):
        add(spec["turns"])
    return digest.hexdigest()


_HEADER_BYTES = layout.HEADER_WORDS * 4


def build_image(
    tokens: Sequence[bytes],
    *,
    special: Collection[int],
    eos: Sequence[int],
    bos: int | None = None,
    pad: int | None = None,
    unk: int | None = None,
    vocab_size: int | None = None,
    turns: bytes = b"",
) -> bytes:
    """Builds the image of a vocabulary.

    ``tokens[i]`` holds the decoded bytes of token i; for a special token (never text) it is the display
    name. ``eos`` lists the end-of-sequence tokens, ``special`` the ids of all special tokens; those in
    ``eos`` need not be repeated there. ``vocab_size`` is the number of bits in a mask, if the model has more
    logits than the tokenizer has tokens. ``turns`` is the section of that name. Raises VocabularyError.
    """
    size = len(tokens) if vocab_size is None else vocab_size
    roles = {"bos": bos, "pad": pad, "unk": unk}
    specials = _check_tokens(tokens, size, special, eos, roles, turns)
    text = _with_text(tokens, specials)
    trie = build_trie(tokens, [i for i in text if len(tokens[i]) <= layout.MAX_TRIE_DEPTH])
    long_tokens = [i for i in text if len(tokens[i]) > layout.MAX_TRIE_DEPTH]
    offsets, data = _offsets(tokens, size), b"".join(tokens)
    mask_words, stride = -(-size // 32), -(-size // 512) * 16
    text_mask, class_masks, slice_masks = _masks(data, offsets, np.array(text), stride)

    sections: dict[str, NDArray[np.generic] | bytes] = {
        "nodes": trie.nodes,
        "order": trie.order,
        "class_masks": class_masks,
        "text_mask": text_mask,
        "token_offsets": offsets,
        "token_bytes": data,
        "flags": _flags(size, len(tokens), specials, eos),
        "eos": np.array(eos, np.uint32),
        "byte_class": byte_classes(),
        "duplicates": trie.duplicates,
        "long_tokens": np.array(long_tokens, np.uint32),
        "slices": np.array(SLICES, np.uint32),
        "slice_masks": slice_masks,
        "turns": turns,
    }
    header = {
        "vocab_size": size,
        "mask_words": mask_words,
        "mask_stride": stride,
        "num_nodes": len(trie.nodes) - 1,
        "num_ordered": len(trie.order),
        "num_eos": len(eos),
        "num_duplicates": len(trie.duplicates),
        "num_long": len(long_tokens),
        "max_token_len": max(len(tokens[i]) for i in text),
        "num_classes": NUM_CLASSES,
        "num_slices": len(SLICES),
        "num_turns": len(turns) // 4,
        **{name: layout.NONE if token is None else token for name, token in roles.items()},
    }
    return _assemble(header, sections)


def _with_text(tokens: Sequence[bytes], specials: Collection[int]) -> list[int]:
    text = [i for i, token in enumerate(tokens) if token and i not in specials]
    if not text:
        raise VocabularyError("no token of this vocabulary has text")
    return text


def _flags(size: int, used: int, specials: Collection[int], eos: Sequence[int]) -> NDArray[np.uint8]:
    """Returns the flags of `size` tokens, of which the first `used` exist."""
    flags = np.zeros(size, np.uint8)
    flags[list(specials)] |= layout.SPECIAL
    flags[list(eos)] |= layout.EOS
    flags[used:] |= layout.UNUSED
    return flags


def _offsets(tokens: Sequence[bytes], size: int) -> NDArray[np.uint32]:
    """Returns where each of `size` tokens begins in the joined texts, and the end; missing ones are empty."""
    offsets = np.zeros(size + 1, np.uint32)
    offsets[1 : len(tokens) + 1] = np.cumsum(np.fromiter(map(len, tokens), np.int64, len(tokens)))
    offsets[len(tokens) + 1 :] = offsets[len(tokens)]
    return offsets


def _check_tokens(
    tokens: Sequence[bytes],
    size: int,
    special: Collection[int],
    eos: Sequence[int],
    named: dict[str, int | None],
    turns: bytes,
) -> frozenset[int]:
    """Returns the ids of all special tokens. Raises VocabularyError if the vocabulary is invalid."""
    if size < len(tokens):
        raise VocabularyError(f"vocab_size is {size}, but the tokenizer has {len(tokens)} tokens")
    if size >= layout.NO_TOKEN:
        raise VocabularyError(f"{size} tokens are too many; the format holds {layout.NO_TOKEN - 1}")
    if sum(map(len, tokens)) > 0x7FFFFFFF:
        raise VocabularyError("the tokens have more than 2 GiB of text")
    if len(set(eos)) != len(eos):
        raise VocabularyError(f"eos names a token twice: {list(eos)}")
    for name, ids in (("special", special), ("eos", eos)):
        for i in ids:
            if not 0 <= i < size:
                raise VocabularyError(f"{name} token {i} is not in the vocabulary of {size} tokens")
    for name, token in named.items():
        if token is not None and not 0 <= token < size:
            raise VocabularyError(f"{name} token {token} is not in the vocabulary of {size} tokens")
    if len(turns) > layout.MAX_TURNS or len(turns) % 4:
        raise VocabularyError(f"turns has {len(turns)} bytes, not whole words up to {layout.MAX_TURNS} bytes")
    return frozenset(special) | frozenset(eos)


def _masks(
    data: bytes,
    offsets: NDArray[np.uint32],
    text: NDArray[np.int64],
    stride: int,
) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]:
    """Returns masks of text tokens.

    These are the mask of all text tokens, uint32 [stride]; one mask per signature bit, uint32 [32, stride];
    and one mask per slice, uint32 [slices, stride].
    """
    starts, ends = (offsets[text + more].astype(np.int64) for more in (0, 1))
    # Special tokens lie between text tokens: only the ranges of text tokens get bits.
    bits, _ = edge_bits(np.frombuffer(data, np.uint8), starts, ends - starts)
    ranges = np.stack([starts, ends], axis=1).reshape(-1)
    signatures = np.bitwise_or.reduceat(np.append(bits, np.uint32(0)), ranges)[::2]
    text_mask = _mask_of(text, stride)
    class_masks = [_mask_of(text[signatures & np.uint32(1 << c) != 0], stride) for c in range(32)]
    slice_masks = [_mask_of(text[signatures & ~np.uint32(kinds) == 0], stride) for kinds in SLICES]
    return text_mask, np.stack(class_masks), np.stack(slice_masks)


def _mask_of(ids: NDArray[np.int64], stride: int) -> NDArray[np.uint32]:
    bools = np.zeros(stride * 32, np.uint8)
    bools[ids] = 1
    return np.packbits(bools, bitorder="little").view(np.uint32)


def _assemble(header: dict[str, int], sections: dict[str, NDArray[np.generic] | bytes]) -> bytes:
    """Returns the image: the header with the offset of each section, then the sections one after another."""
    parts: list[bytes] = []
    at = _HEADER_BYTES
    for name, section in sections.items():
        blob = section if isinstance(section, bytes) else section.tobytes()
        header[name] = at
        parts.append(blob + bytes(-len(blob) % layout.ALIGNMENT))
        at += len(parts[-1])
    header |= {"magic": layout.MAGIC, "version": layout.VERSION, "total_size": at}
    words = np.zeros(layout.HEADER_WORDS, np.uint32)
    words[: len(layout.HEADER)] = [header[name] for name in layout.HEADER]
    return words.tobytes() + b"".join(parts)
