"""The length of tests whose number of cases is a choice: short, or long with `test.sh --thorough`."""

from __future__ import annotations

import os
from typing import Any


def thorough() -> bool:
    """Tells whether tests run in their long form."""
    return os.environ.get("AICI_THOROUGH") == "1"


def cases(short: int, long: int) -> int:
    """Returns the number of cases of a test in its present form. Both forms begin with the same cases."""
    return long if thorough() else short


def also(*values: Any) -> tuple[Any, ...]:
    """Returns values of a parameter that tests take only in their long form."""
    return values if thorough() else ()
