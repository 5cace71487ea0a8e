"""The messages API of ai00: its requests, the grammars of answers, and the answers."""

from __future__ import annotations

from pyaici.server.apis.messages.plan import Plan, PromptFormat, plan
from pyaici.server.apis.messages.requests import MessagesError, MessagesRequest, parse_request
from pyaici.server.apis.messages.responses import Answer, Usage, fold

__all__ = [
    "Answer",
    "MessagesError",
    "MessagesRequest",
    "Plan",
    "PromptFormat",
    "Usage",
    "fold",
    "parse_request",
    "plan",
]
