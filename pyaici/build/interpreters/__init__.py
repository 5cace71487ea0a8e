"""Builds controllers that are script interpreters, from third-party C sources and our own glue.

The C sources are fetched and never kept in the repository. A folder of ``controllers`` with an
``interpreter.toml`` is an interpreter. It holds the glue, the files that the interpreter needs for a port,
and a library in the language of the scripts.
"""

from __future__ import annotations

from .base import SHARED, InterpreterBase
from .languages import LANGUAGES, Language
from .manifest import MANIFEST, Manifest, is_interpreter
from .notice import notices
from .sdist import FOLDER_VARIABLE

__all__ = [
    "FOLDER_VARIABLE",
    "LANGUAGES",
    "MANIFEST",
    "SHARED",
    "InterpreterBase",
    "Language",
    "Manifest",
    "is_interpreter",
    "notices",
]
