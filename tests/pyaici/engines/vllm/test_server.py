"""The OpenAI server without a daemon: without controllers it writes the same tokens as Transformers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import openai
import pytest

from tests.pyaici.engines.vllm.requests import FRANCE, YEAR
from tests.pyaici.engines.vllm.server import MODEL, Server, Servers

pytestmark = pytest.mark.slow


def test_completions_equal_transformers(server: Server, reference: Callable[..., list[list[int]]]) -> None:
    completion: Any = server.client.completions.create(
        model=MODEL, prompt=FRANCE, temperature=0, max_tokens=24, extra_body={"return_token_ids": True}
    )
    assert [completion.choices[0].token_ids] == reference([FRANCE], 24)
    assert server.complete(FRANCE, max_tokens=24) == completion.choices[0].text


def test_a_streamed_chat_equals_transformers(
    server: Server, reference: Callable[..., list[list[int]]]
) -> None:
    chat: Any = [{"role": "user", "content": "Name a colour."}]
    settings: Any = {"model": MODEL, "messages": chat, "temperature": 0, "max_tokens": 20}
    whole: Any = server.client.chat.completions.create(**settings, extra_body={"return_token_ids": True})
    assert [whole.choices[0].token_ids] == reference([chat], 20)
    chunks: Any = server.client.chat.completions.create(**settings, stream=True)
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks]
    assert "".join(pieces) == whole.choices[0].message.content
    assert sum(map(bool, pieces)) > 2


def test_an_unknown_model_is_refused(server: Server) -> None:
    with pytest.raises(openai.NotFoundError, match="nobody"):
        server.client.completions.create(model="nobody", prompt=FRANCE)


def test_a_server_is_reused_for_the_same_options(servers: Servers, server: Server) -> None:
    assert servers() is server
    assert server.is_healthy()


def test_a_private_runtime_ends_with_the_server(server: Server) -> None:
    extra = {"vllm_xargs": {"aici_controller": "regex", "aici_arg": YEAR}}
    assert re.fullmatch(YEAR, server.complete(FRANCE, max_tokens=30, extra_body=extra))
    assert server.close() == 0, server.tail()
