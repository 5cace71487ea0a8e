"""All outputs of substring, one by one, and a vocabulary for them."""

from __future__ import annotations

from lab.runners.host import Vocab

#: pieces of texts, among them parts of characters
WORDS = [
    b"ab",
    b"ba",
    b"abc",
    b"a\n",
    b"the ",
    b" the",
    b"aaaa",
    b"\xc3\xa9a",
    b"a\xc3",
    b"\xb8\xad",
    b"\xad\xe4",
]
EOS = 256 + len(WORDS)


def vocabulary() -> Vocab:
    """Returns all bytes, WORDS and the end of the text."""
    return Vocab([*(bytes([b]) for b in range(256)), *WORDS, b"<eos>"], eos=[EOS])


def parts(text: str) -> set[bytes]:
    """Returns all nonempty substrings."""
    return {text[i:j].encode() for i in range(len(text)) for j in range(i + 1, len(text) + 1)}


def outputs(text: str, end: str) -> set[bytes]:
    """Returns all outputs. With a marker, an output is a part and the marker, which occurs only there."""
    if not end:
        return parts(text)
    mark = end.encode()
    found = {part + mark for part in parts(text)}

    def early(output: bytes) -> bool:
        return any(
            output[:at] in parts(text) and output[at : at + len(mark)] == mark
            for at in range(1, len(output) - len(mark))
        )

    return {output for output in found if not early(output)}
