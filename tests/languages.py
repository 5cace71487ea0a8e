"""Helper for tests of languages whose compilers the package does not include."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pyaici.toolchain import MissingToolchain


@contextmanager
def compiler_or_skip() -> Iterator[None]:
    """Skips the test if the build in the block lacks a compiler, with the advice of the error.

    If scripts/test.sh has fetched the compilers, it sets AICI_LANGUAGES, and a missing compiler is an error.
    """
    try:
        yield
    except MissingToolchain as missing:
        if os.environ.get("AICI_LANGUAGES"):
            raise
        pytest.skip(str(missing))
