"""Reads the header of a GGUF file: its metadata and the places of its tensors, without the tensors.

Source: the format's description in the ggml repository, docs/gguf.md; versions 2 and 3, little-endian.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aicirt.contract.errors import VocabularyError

#: number types of the format: their `struct` code and numpy dtype
_NUMBERS = {
    0: ("B", "u1"),
    1: ("b", "i1"),
    2: ("H", "u2"),
    3: ("h", "i2"),
    4: ("I", "u4"),
    5: ("i", "i4"),
    6: ("f", "f4"),
    7: ("?", "?"),
    10: ("Q", "u8"),
    11: ("q", "i8"),
    12: ("d", "f8"),
}
_STRING, _ARRAY = 8, 9
#: bytes of a header: that of a vocabulary of a million tokens has 40 MB
_MAX_HEADER = 256 << 20
#: bounds of its parts; the largest models stay far below them
_MAX_KEYS, _MAX_TENSORS, _MAX_ITEMS, _MAX_BYTES = 1 << 12, 1 << 16, 1 << 22, 1 << 24


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """The header of a GGUF file."""

    #: values by key: numbers, texts as bytes, arrays as numpy arrays or lists of bytes
    metadata: dict[str, Any]
    #: offset of the first byte of tensor data in the file
    data_start: int
    #: names of the tensors
    tensors: list[str]

    def text(self, key: str, default: str = "") -> str:
        """Returns a text of the metadata, or `default` if there is none."""
        value = self.metadata.get(key)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else default

    def number(self, key: str) -> int | None:
        """Returns an integer of the metadata, or None if there is none."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


def is_gguf(path: Path) -> bool:
    """Returns whether the file begins as a GGUF file does."""
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


def read_gguf_header(path: Path) -> GgufHeader:
    """Returns the header of a file.

    Raises VocabularyError if the file is not GGUF, is of another version, ends too early or contradicts
    itself; OSError if it cannot be read.
    """
    if not is_gguf(path):
        raise VocabularyError(f"{path} is not a GGUF file: it does not begin with GGUF")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return parse_gguf_header(data, str(path))


def parse_gguf_header(data: mmap.mmap | bytes, name: str) -> GgufHeader:
    """Returns the header of a file's contents. Raises VocabularyError as `read_gguf_header` does."""
    try:
        return _Reader(data).header()
    except (struct.error, ValueError) as error:
        raise VocabularyError(f"{name} is not a complete GGUF file: {error}; download it again") from None


class _Reader:
    def __init__(self, data: mmap.mmap | bytes) -> None:
        self._data = data
        self._end = min(len(data), _MAX_HEADER)
        self._at = 4

    def header(self) -> GgufHeader:
        version = self._number("I")
        if version not in (2, 3):
            raise ValueError(f"its version is {version}; versions 2 and 3 are supported")
        num_tensors, num_keys = self._number("Q"), self._number("Q")
        if num_tensors > _MAX_TENSORS or num_keys > _MAX_KEYS:
            raise ValueError(f"it declares {num_tensors} tensors and {num_keys} keys")
        metadata = {}
        for _ in range(num_keys):
            key = self._string().decode("utf-8", "replace")
            metadata[key] = self._value(self._number("I"))
        tensors = []
        for _ in range(num_tensors):
            tensors.append(self._string().decode("utf-8", "replace"))
            dimensions = self._number("I")
            if dimensions > 8:
                raise ValueError(f"the tensor {tensors[-1]!r} has {dimensions} dimensions")
            self._skip(8 * dimensions + 4 + 8)
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError(f"its alignment is {alignment!r}")
        return GgufHeader(metadata, -(-self._at // alignment) * alignment, tensors)

    def _value(self, kind: int) -> Any:
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind][0])
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            raise ValueError(f"a value has the unknown type {kind}")
        item, count = self._number("I"), self._number("Q")
        if count > _MAX_ITEMS:
            raise ValueError(f"an array has {count} items")
        if item == _STRING:
            return self._strings(count)
        if item not in _NUMBERS:
            raise ValueError(f"an array has items of type {item}")
        dtype = np.dtype(_NUMBERS[item][1])
        return np.frombuffer(self._skip(count * dtype.itemsize), dtype)

    def _number(self, code: str) -> Any:
        size = struct.calcsize(code)
        return struct.unpack("<" + code, self._skip(size))[0]

    def _string(self) -> bytes:
        size = self._number("Q")
        if size > _MAX_BYTES:
            raise ValueError(f"a text has {size} bytes")
        return self._skip(size)

    def _strings(self, count: int) -> list[bytes]:
        """Returns so many texts. A vocabulary has hundreds of thousands, so this loop makes few calls."""
        data, end, found = self._data, self._end, []
        for _ in range(count):
            start = self._at + 8
            size = int.from_bytes(data[self._at : start], "little")
            if size > _MAX_BYTES or start + size > end:
                self._string()  # raises the error
            self._at = start + size
            found.append(data[start : self._at])
        return found

    def _skip(self, size: int) -> bytes:
        end = self._at + size
        if end > self._end:
            if self._end == _MAX_HEADER:
                raise ValueError(f"its header has more than {_MAX_HEADER >> 20} MiB")
            raise ValueError(f"it ends at byte {len(self._data)}, in the middle of its header")
        part = self._data[self._at : end]
        self._at = end
        return part
