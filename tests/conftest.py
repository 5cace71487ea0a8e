"""What all tests need of the process that they run in."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

# A shell starts background jobs with Ctrl-C ignored, and what is ignored stays so in every child:
# the programs that tests interrupt would never notice.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def module_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The user's own modules and tags are not for tests, nor those of tests that run beside these."""
    before = os.environ.get("AICI_STORE")
    os.environ["AICI_STORE"] = str(tmp_path_factory.mktemp("store") / "modules")
    yield
    if before is None:
        del os.environ["AICI_STORE"]
    else:
        os.environ["AICI_STORE"] = before
