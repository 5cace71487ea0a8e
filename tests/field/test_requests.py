"""Reports about the APIs of other servers: the right requests are refused, and the right texts are allowed.

Each line of `requests.jsonl` is a case: the report, the path, the body, and whole answers of the model that
the request must `accept` and `reject`, or a part of the message with which it must be `refused`. `wrong` says
what was wrong at first.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from aicirt.wasm import Program
from lab.oracles.grammars.vocabularies import byte_vocab
from lab.oracles.grammars.walk import Controller
from pyaici.server.apis.ollama.requests import ChatBody
from pyaici.server.apis.openai.chat_plan import plan_chat
from pyaici.server.apis.openai.constraints import constraint
from pyaici.server.apis.openai.requests import ChatRequest, CompletionRequest
from pyaici.server.http.errors import ApiError
from pyaici.server.http.users import Role, User
from pyaici.server.service import ControllerCall
from tests.field.test_masks import check, program
from tests.pyaici.server.openai.byte_model import byte_model
from tests.pyaici.server.openai.templates import TEMPLATES

__all__ = ["program"]

REQUESTS = [json.loads(line) for line in Path(__file__).with_name("requests.jsonl").read_text().splitlines()]


def planned(path: str, body: dict[str, Any]) -> ControllerCall | None:
    """Returns the controller that the server would start. Raises ApiError or ValidationError for a 400."""
    if path == "/v1/completions":
        return constraint(CompletionRequest.model_validate(body))
    chat = ChatBody.model_validate(body).chat() if path == "/api/chat" else ChatRequest.model_validate(body)
    return plan_chat(byte_model(TEMPLATES["Qwen2.5"]), chat, User("eve", Role.RUN)).job.controller


@pytest.mark.parametrize("case", [pytest.param(case, id=case["report"]) for case in REQUESTS])
def test_reported_requests(case: dict[str, Any], program: Callable[[str], Program]) -> None:
    vocab, words = byte_vocab(), case.get("refused", "")
    try:
        call = planned(case["path"], case["body"])
    except (ApiError, ValidationError) as error:
        assert words and words in str(error)
        return
    assert call is not None
    made = Controller(program(call.controller), vocab, call.arg)
    if words:
        assert words in made.refusal()
    else:
        check(made, vocab, case["accept"], case["reject"])
