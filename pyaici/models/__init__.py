"""The default model: fetched from a Python package and converted once, then kept in the user's cache."""

from __future__ import annotations

from pyaici.models.default import DTYPES, default_gguf_path, default_model_path
from pyaici.models.store import ModelError

__all__ = ["DTYPES", "ModelError", "default_gguf_path", "default_model_path"]
