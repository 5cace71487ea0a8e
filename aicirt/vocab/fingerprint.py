"""The fingerprint of a vocabulary, by which the daemon knows it, and which it computes itself."""

from __future__ import annotations

import hashlib
import struct
from typing import Any


def fingerprint_of(spec: dict[str, Any]) -> str:
    """SHA-256 (hex) of all that a client registers: equal for equal vocabularies on any machine.

    `spec` is what the call `vocabulary` registers. Raises KeyError, TypeError, ValueError, AttributeError or
    struct.error for what is none.
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
    return digest.hexdigest()
