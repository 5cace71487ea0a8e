"""Controllers in SGLang: a grammar backend that SGLang finds by its entry point."""

from __future__ import annotations

from dataclasses import replace

from pyaici.client.arguments import MASK_ONLY

#: the value of `--grammar-backend`
BACKEND = "aici"
#: the versions of SGLang that the backend supports; pyproject.toml has the same
VERSIONS = ">=0.5.23,<0.5.24"
#: SGLang applies a bitmask to each token's logits, and nothing else; splices are forced token by token
CAPABILITIES = replace(MASK_ONLY, ff_tokens=True, dense=False)
