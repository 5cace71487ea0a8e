"""A vocabulary as a worker has it: the image to map into guests, and the tokenizer."""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING

import numpy as np

from aicirt.errors import ProtocolError
from aicirt.vocab.reader import VocabularyImage
from aicirt.vocab.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from aicirt.wasm.instance import Instance


class LoadedVocabulary:
    """One registered vocabulary."""

    __slots__ = ("_fd", "_size", "_tokenize", "exact", "image", "vocab_size")

    def __init__(
        self, image_fd: int, image_bytes: int, tokenizer_fd: int, tokenizer_bytes: int, tokenizer_kind: str
    ) -> None:
        """Takes over the descriptors. Raises VocabularyError if the tokenizer cannot be loaded."""
        try:
            data = os.pread(tokenizer_fd, tokenizer_bytes, 0) if tokenizer_bytes else b""
            if len(data) != tokenizer_bytes:
                raise ProtocolError(f"the tokenizer has {len(data)} bytes, {tokenizer_bytes} were announced")
        finally:
            os.close(tokenizer_fd)
        try:
            self._size = image_bytes
            self.image = VocabularyImage(memoryview(mmap.mmap(image_fd, image_bytes, prot=mmap.PROT_READ)))
            self.vocab_size = self.image.vocab_size
            tokens = [self.image.token(token) for token in range(self.vocab_size)]
            self._tokenize = load_tokenizer(tokenizer_kind, data, tokens)
        except BaseException:
            os.close(image_fd)
            raise
        self._fd = image_fd
        #: the model's own tokenizer, not a stand-in
        self.exact = self._tokenize.exact

    def map_into(self, instance: Instance) -> int:
        """Address of the image in the guest; mapped at the first call."""
        for mapping in instance.mappings:  # the image is the only thing that is ever mapped
            return mapping.address
        return instance.map_readonly(self._fd, self._size)

    @property
    def file(self) -> tuple[int, int]:
        """Descriptor and size of the image."""
        return self._fd, self._size

    def tokenize(self, text: bytes) -> bytes:
        """Tokens as little-endian uint32."""
        return np.asarray(self._tokenize(text), dtype="<u4").tobytes()
