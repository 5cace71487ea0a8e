"""Describes what a chat template writes between messages, as a section of the vocabulary image."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag


class Role(IntEnum):
    """The sender of a message; the numbers are those of the image."""

    USER = 0
    SYSTEM = 1
    TOOL = 2
    ASSISTANT = 3


class Form(IntFlag):
    """Changes that a template makes to the contents of a role's messages."""

    AS_IS = 0
    STRIP_START = 1
    STRIP_END = 2
    #: written as in a string of JSON, without the quotation marks
    JSON = 4


#: A part of a piece: text, a control token, or None for the place of the tool's name.
Item = bytes | int | None


@dataclass(frozen=True)
class Turns:
    """The pieces that a chat template writes between the contents of two messages, with control tokens.

    A vocabulary has them as bytes (`Vocabulary.turns`), which docs/vocabulary.md describes.
    """

    #: from the content of one message to that of the next; to ASSISTANT: up to where a new answer begins
    pieces: Mapping[tuple[Role, Role], Sequence[Item]] = field(default_factory=dict)
    forms: Mapping[Role, Form] = field(default_factory=dict)
    #: control tokens that are no special tokens: the tokenizer would find them in contents, too
    marks: Sequence[int] = ()
    #: why there are no pieces; empty if there are
    problem: str = ""

    def to_bytes(self) -> bytes:
        """Returns the section of the image."""
        words = [0] * _HEADER
        for (before, after), items in self.pieces.items():
            words[before * len(Role) + after] = len(words)
            words.append(len(items))
            for item in items:
                words += _words(item)
        for role, form in self.forms.items():
            words[_FORMS + role] = form
        if self.problem:
            words[_PROBLEM] = len(words)
            words += _words(self.problem.encode())
        words[_MARKS] = len(words)
        words += [len(self.marks), *self.marks]
        return struct.pack(f"<{len(words)}I", *words)

    @classmethod
    def from_bytes(cls, section: bytes) -> Turns:
        """Reads a section of the image. Raises ValueError, struct.error or IndexError if it is invalid."""
        words = struct.unpack(f"<{len(section) // 4}I", section)

        def items(at: int, count: int) -> list[Item]:
            found: list[Item] = []
            for _ in range(count):
                kind, value = words[at] & 3, words[at] >> 2
                at += 1
                if kind == _TEXT:
                    found.append(section[4 * at : 4 * at + value])
                    at += -(-value // 4)
                else:
                    found.append(value if kind == _TOKEN else None)
            return found

        pieces = {
            (before, after): items(at + 1, words[at])
            for before in Role
            for after in Role
            if (at := words[before * len(Role) + after])
        }
        problem = items(words[_PROBLEM], 1)[0] if words[_PROBLEM] else b""
        marks = words[words[_MARKS] + 1 :][: words[words[_MARKS]]]
        forms = {role: Form(words[_FORMS + role]) for role in Role}
        return cls(pieces, forms, marks, problem.decode() if isinstance(problem, bytes) else "")


#: words of the section: offsets of the pieces, forms, offsets of the problem and of the marks
_FORMS = len(Role) ** 2
_PROBLEM, _MARKS, _HEADER = _FORMS + 4, _FORMS + 5, _FORMS + 6
#: kinds of items
_TEXT, _TOKEN, _NAME = 0, 1, 2


def _words(item: Item) -> list[int]:
    if item is None:
        return [_NAME]
    if isinstance(item, int):
        return [_TOKEN | item << 2]
    padded = item + bytes(-len(item) % 4)
    return [_TEXT | len(item) << 2, *struct.unpack(f"<{len(padded) // 4}I", padded)]
