"""Moves the end of a context into the prefix, so that no token of the whole text is split."""

from __future__ import annotations

import re

#: Most characters that are moved: the longer the prefix, the more ways there are to spell it.
MAX_MOVED = 64

#: the last white space that follows another character, and everything after it
_LAST_PIECE = re.compile(r"(?<=\S)\s+\S*\Z")


def heal_context(context: str, prefix: str, max_moved: int = MAX_MOVED) -> tuple[str, str]:
    """Moves the context's last piece into the prefix; returns the new context and prefix (the same text).

    A context that is tokenized by itself ends with tokens that the model would not see in the whole text.
    For example, four spaces before ``print`` become a token of three spaces and the token `` print``.
    Samples are exact only relative to the context's tokens, so these must not bias the continuation.

    The piece begins where white space follows another character: tokenizers of the GPT-2 family begin a
    token there, whatever follows. (Tokenizers that join line breaks to the punctuation before them differ
    in that case.) If the prefix itself begins at such a place, nothing is moved. If the last `max_moved`
    characters contain no such place, nothing is moved, unless they are the whole context.
    """
    if prefix[:1].isspace() and not context[-1:].isspace():
        return context, prefix
    found = _LAST_PIECE.search(context)
    start = found.start() if found is not None else 0
    if len(context) - start > max_moved:
        return context, prefix
    return context[:start], context[start:] + prefix
