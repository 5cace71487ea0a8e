"""Where a context ends: not in the middle of what the tokenizer would have made one token of."""

from __future__ import annotations

import re

#: Most characters that move: the longer the prefix, the more ways there are to spell it.
MAX_MOVED = 64

#: the last white space that follows something else, with all after it
_LAST_PIECE = re.compile(r"(?<=\S)\s+\S*\Z")


def heal_context(context: str, prefix: str, max_moved: int = MAX_MOVED) -> tuple[str, str]:
    """Moves the context's last piece into the prefix: returns both anew, together the same text.

    A context that is tokenized by itself ends with tokens that the model would not have seen there:
    four spaces before ``pri`` are three spaces and `` print`` in one go. What is conditioned on is
    exact only relative to the context's tokens, so these must not decide how the text goes on.

    The piece begins where white space follows something else: tokenizers of the GPT-2 family begin a
    token there, whatever follows. (Those that add line breaks to the punctuation before them differ
    in that case.) Where the prefix itself begins so, nothing has to move. If there is no such place in
    the last `max_moved` characters, nothing moves, unless that is the whole context.
    """
    if prefix[:1].isspace() and not context[-1:].isspace():
        return context, prefix
    found = _LAST_PIECE.search(context)
    start = found.start() if found is not None else 0
    if len(context) - start > max_moved:
        return context, prefix
    return context[:start], context[start:] + prefix
