"""Reads a vocabulary image (docs/vocabulary.md)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from aicirt.contract.errors import VocabularyError
from aicirt.vocab import layout

_ITEM_TYPES = {"token_bytes": np.uint8, "flags": np.uint8, "byte_class": np.uint8}


class VocabularyImage:
    """A view of an image in any buffer, without a copy.

    Raises VocabularyError if the buffer does not hold an image of this version.
    """

    def __init__(self, buffer: bytes | bytearray | memoryview) -> None:
        self._view = memoryview(buffer).cast("B")
        if len(self._view) < layout.HEADER_WORDS * 4:
            raise VocabularyError(
                f"not a vocabulary image: {len(self._view)} bytes are too few for its header"
            )
        words = np.frombuffer(self._view, np.uint32, layout.HEADER_WORDS)
        self.header: dict[str, int] = dict(zip(layout.HEADER, words.tolist(), strict=False))
        if self.header["magic"] != layout.MAGIC:
            raise VocabularyError("not a vocabulary image: its first word is wrong")
        if self.header["version"] != layout.VERSION:
            raise VocabularyError(
                f"the vocabulary image has version {self.header['version']}, but this runtime reads version "
                f"{layout.VERSION}"
            )
        if self.header["total_size"] > len(self._view):
            raise VocabularyError(
                f"the vocabulary image is truncated: {len(self._view)} of {self.header['total_size']} bytes"
            )
        self._check_sections()
        #: number of token ids, and words of a mask
        self.vocab_size: int = self.header["vocab_size"]
        self.mask_words: int = self.header["mask_words"]

    def _check_sections(self) -> None:
        header = self.header
        stride = 4 * header["mask_stride"]
        sizes = {
            "nodes": 4 * layout.NODE_WORDS * (header["num_nodes"] + 1),
            "order": 4 * header["num_ordered"],
            "class_masks": 32 * stride,
            "text_mask": 4 * header["mask_words"],
            "token_offsets": 4 * (header["vocab_size"] + 1),
            "token_bytes": 0,
            "flags": header["vocab_size"],
            "eos": 4 * header["num_eos"],
            "byte_class": 256,
            "duplicates": 8 * header["num_duplicates"],
            "long_tokens": 4 * header["num_long"],
            "slices": 4 * header["num_slices"],
            "slice_masks": header["num_slices"] * stride,
            "turns": 4 * header["num_turns"],
        }
        for name, size in sizes.items():
            if header[name] + size > header["total_size"]:
                raise VocabularyError(
                    f"section {name} of the vocabulary image reaches beyond the image's end"
                )
        if header["mask_words"] != -(-header["vocab_size"] // 32) or stride < 4 * header["mask_words"]:
            raise VocabularyError("the masks of the vocabulary image do not match its number of tokens")

    def section(self, name: str, count: int) -> NDArray[np.generic]:
        """Returns the first ``count`` items of a section, as uint32 or, if the format says so, uint8."""
        return np.frombuffer(self._view, _ITEM_TYPES.get(name, np.uint32), count, self.header[name])

    @cached_property
    def _offsets(self) -> memoryview:
        start = self.header["token_offsets"]
        return self._view[start : start + 4 * (self.vocab_size + 1)].cast("I")

    def token(self, token: int) -> bytes:
        """Returns the bytes of a token, or the display name of a special token. Raises VocabularyError."""
        if not 0 <= token < self.vocab_size:
            raise VocabularyError(f"token {token} is not in the vocabulary of {self.vocab_size} tokens")
        start = self.header["token_bytes"]
        return bytes(self._view[start + self._offsets[token] : start + self._offsets[token + 1]])

    def flags(self, token: int) -> int:
        """Returns a token's flags: layout.SPECIAL, layout.EOS, layout.UNUSED. Raises VocabularyError."""
        if not 0 <= token < self.vocab_size:
            raise VocabularyError(f"token {token} is not in the vocabulary of {self.vocab_size} tokens")
        return self._view[self.header["flags"] + token]

    def is_special(self, token: int) -> bool:
        """Returns whether a token is special, that is, never text. Raises VocabularyError."""
        return bool(self.flags(token) & layout.SPECIAL)

    @property
    def eos(self) -> list[int]:
        """The end-of-sequence tokens."""
        return [int(i) for i in self.section("eos", self.header["num_eos"])]

    @property
    def bos(self) -> int | None:
        """The beginning-of-sequence token."""
        return self._named("bos")

    @property
    def pad(self) -> int | None:
        """The padding token."""
        return self._named("pad")

    @property
    def unk(self) -> int | None:
        """The token for unknown text."""
        return self._named("unk")

    def _named(self, name: str) -> int | None:
        return None if self.header[name] == layout.NONE else self.header[name]

    @property
    def nodes(self) -> NDArray[np.uint32]:
        """The trie, uint32 [N + 1, 4]."""
        count = (self.header["num_nodes"] + 1) * layout.NODE_WORDS
        return self.section("nodes", count).view(np.uint32).reshape(-1, layout.NODE_WORDS)

    @property
    def text_mask(self) -> NDArray[np.uint32]:
        """The mask of all text tokens, uint32 [W]."""
        return self.section("text_mask", self.mask_words).view(np.uint32)

    def class_mask(self, bit: int) -> NDArray[np.uint32]:
        """Returns the mask of the tokens in which this signature bit occurs, uint32 [W]."""
        stride = self.header["mask_stride"]
        masks = self.section("class_masks", 32 * stride).view(np.uint32)
        return masks[bit * stride : bit * stride + self.mask_words]

    @property
    def slices(self) -> list[tuple[int, NDArray[np.uint32]]]:
        """Pairs (signature, mask): a set of bits, and the tokens that have no other bits, uint32 [W]."""
        stride, count = self.header["mask_stride"], self.header["num_slices"]
        masks = self.section("slice_masks", count * stride).view(np.uint32).reshape(count, stride)
        kinds = self.section("slices", count).tolist()
        return [(kind, masks[i, : self.mask_words]) for i, kind in enumerate(kinds)]

    @property
    def turns(self) -> bytes:
        """The section of what the model's chat template writes between messages; empty if there is none."""
        return self.section("turns", self.header["num_turns"]).tobytes()

    def tokens_of(self, mask: NDArray[np.uint32]) -> list[int]:
        """Returns the tokens that a mask, uint32 [W], allows, in order."""
        bools = np.unpackbits(np.ascontiguousarray(mask).view(np.uint8), bitorder="little")
        return [int(i) for i in np.flatnonzero(bools[: self.vocab_size])]

    def decode(self, tokens: Iterable[int]) -> bytes:
        """Returns the text of tokens, skipping special tokens. Raises VocabularyError."""
        return b"".join(self.token(t) for t in tokens if not self.is_special(t))
