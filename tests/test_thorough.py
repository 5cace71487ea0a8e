"""Tests for the long form alone are left out, unless their file is named."""

from __future__ import annotations

import pytest

from tests.thorough import is_left_out


def test_marked_tests_run_in_the_long_form_or_if_their_file_is_named(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request.config, "args", ["tests"])
    monkeypatch.delenv("AICI_THOROUGH", raising=False)
    assert not is_left_out(request.node)
    request.node.add_marker(pytest.mark.thorough)
    assert is_left_out(request.node)
    monkeypatch.setattr(request.config, "args", ["tests/test_thorough.py::test_other"])
    assert not is_left_out(request.node)
    for other in ("tests/test_durations.py", "tests/lab/test_thorough.py"):
        monkeypatch.setattr(request.config, "args", [other])
        assert is_left_out(request.node)
    monkeypatch.setenv("AICI_THOROUGH", "1")
    assert not is_left_out(request.node)
