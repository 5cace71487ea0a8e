"""Requests of the shape that Claude Code sends, through Anthropic's client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anthropic
import pytest

from tests.pyaici.server.serving import Serving

REQUESTS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("claude_code.json").read_text())


@pytest.fixture(scope="module")
def client(exact_server: Serving, tokens: dict[str, str]) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=exact_server.url, api_key=tokens["eve"], max_retries=0)


@pytest.mark.parametrize("sent", REQUESTS, ids=[sent["name"] for sent in REQUESTS])
def test_streams_and_counts_are_those_of_the_client(
    client: anthropic.Anthropic, sent: dict[str, Any]
) -> None:
    raw = client.beta.messages.with_raw_response.create(
        model="default",
        max_tokens=sent["body"]["max_tokens"],
        messages=sent["body"]["messages"],
        betas=sent["betas"],
        stream=True,
        extra_body=sent["body"],
    )
    assert raw.headers.get("x-aici-ignored", "") == sent["ignored"]
    first, *events, changed, last = list(raw.parse())
    assert (first.type, changed.type, last.type) == ("message_start", "message_delta", "message_stop")
    assert first.type == "message_start" and first.message.usage.input_tokens > 5
    assert changed.type == "message_delta" and changed.usage.output_tokens > 0
    assert changed.delta.stop_reason in ("end_turn", "max_tokens", "tool_use")
    opened: list[int] = []
    kinds: list[str] = []
    for event in events:
        if event.type == "content_block_start":
            assert event.index == len(kinds)
            opened.append(event.index)
            kinds.append(event.content_block.type)
        elif event.type == "content_block_delta":
            assert opened == [event.index]
        elif event.type == "content_block_stop":
            assert opened == [event.index]
            opened.clear()
    assert not opened and set(kinds) <= {"text", "thinking", "tool_use"}
    if "blocks" in sent:
        assert kinds == sent["blocks"]
    counted = client.beta.messages.with_raw_response.count_tokens(
        model="default",
        messages=sent["body"]["messages"],
        betas=sent["betas"],
        extra_body={name: value for name, value in sent["body"].items() if name != "max_tokens"},
    )
    assert counted.headers.get("x-aici-ignored", "") == sent["ignored"]
    assert counted.parse().input_tokens == first.message.usage.input_tokens
