"""The length of tests whose number of cases is a choice: short, or long with `test.sh --thorough`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest


def thorough() -> bool:
    """Tells whether tests run in their long form."""
    return os.environ.get("AICI_THOROUGH") == "1"


def is_left_out(item: pytest.Item) -> bool:
    """Tells whether a test is for the long form alone. A file that the command line names runs whole."""
    return not thorough() and item.get_closest_marker("thorough") is not None and not is_named(item)


def is_named(item: pytest.Item) -> bool:
    """Tells whether the command line names the test's file."""
    folder = item.config.invocation_params.dir
    return item.path in {(folder / argument.partition("::")[0]).resolve() for argument in item.config.args}


def cases(short: int, long: int) -> int:
    """Returns the number of cases of a test in its present form. Both forms begin with the same cases."""
    return long if thorough() else short


def also(*values: Any) -> tuple[Any, ...]:
    """Returns values of a parameter that tests take only in their long form."""
    return values if thorough() else ()
