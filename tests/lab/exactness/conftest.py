"""Controllers, compiled as for their own tests."""

from __future__ import annotations

from tests.controllers.conftest import host, program

__all__ = ["host", "program"]
