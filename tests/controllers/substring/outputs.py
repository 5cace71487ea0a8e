"""All outputs of substring, one by one."""

from __future__ import annotations


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
