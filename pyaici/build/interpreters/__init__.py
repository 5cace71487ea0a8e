"""Builds controllers that are interpreters of scripts: C that others have written, fetched and never kept in
the repository, with glue of ours.

A folder of ``controllers`` with an ``interpreter.toml`` is one. It holds the glue, what the interpreter asks
of a port, and a library in the language of scripts.
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
