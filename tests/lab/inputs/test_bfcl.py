"""Conversations of the leaderboard: their tools carry out the calls that are written down."""

from __future__ import annotations

import json

from lab.inputs.bfcl import conversations


def test_tools_carry_out_the_calls_of_their_conversation() -> None:
    found = conversations(12)
    assert len({conversation.tools for conversation in found}) == 12
    for conversation in found:
        calls = [call for _, calls in conversation.turns for call in calls]
        assert calls and all(f"{call.partition('(')[0]}(" in conversation.tools for call in calls)
        tool = conversation.start()
        failed = [answer for answer in map(tool, calls) if "error" in (json.loads(answer) or {})]
        assert len(failed) <= len(calls) / 4, "some calls are wrong on purpose"
    first = found[0].start()
    assert json.loads(first("cd(folder='document')")) == {"current_working_directory": "document"}
    assert "error" in json.loads(first("cd(folder='document')")), "the state has changed"
    other = found[0].start()
    assert "error" not in json.loads(other("cd('document')"))
