"""Playgrounds of tests share a daemon, unless something about it would differ."""

from __future__ import annotations

import pytest

from pyaici.testing import Playground
from tests.shared_daemon import sharing


def test_playgrounds_share_a_daemon_in_the_same_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    def socket(playground: Playground) -> object:
        return playground.runtime._require_daemon().socket_path

    with (
        sharing()
    ):  # anew: earlier tests may have ended the daemon of this process, or changed its environment
        with Playground() as one:
            shared = socket(one)
            with Playground() as other:
                assert socket(other) == shared
            assert one.play("uppercase", "AB").text == "AB"
        monkeypatch.setenv("AICI_LIMITS", "mid_ms=77")
        with Playground() as apart:
            assert socket(apart) != shared
        with Playground(limits={"mid_ms": 78}) as apart:
            assert socket(apart) != shared
