"""Failures of the runtime reach clients by code alone; their messages go to the log."""

from __future__ import annotations

import logging

import pytest

from aicirt.contract import errors
from aicirt.contract.errors import AiciError, ControllerError, ModuleError, RuntimeFailure, error_from_wire
from pyaici.server.http.errors import from_aici

#: failures with messages that are meant for clients: limits, and what they can do
TOLD = {"space", "owner_limit", "worker_died", "template_gone"}
SECRET = "modules cannot be stored in /home/ada/.cache (pid 4711)"


CODES = {kind.code for kind in vars(errors).values() if hasattr(kind, "code")}


@pytest.mark.parametrize("code", sorted(CODES))
def test_failures_are_told_by_code(code: str, caplog: pytest.LogCaptureFixture) -> None:
    error = error_from_wire([code, SECRET, {}])
    with caplog.at_level(logging.WARNING):
        answer = from_aici(error)
    assert answer.code == code
    own = isinstance(error, RuntimeFailure) and code not in TOLD
    if own or type(error) is AiciError:
        assert "/home" not in answer.message and SECRET in caplog.text
    else:
        assert isinstance(error, ControllerError | ModuleError) or answer.message == SECRET
        assert answer.message == SECRET and SECRET not in caplog.text
