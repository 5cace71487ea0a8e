"""A reasoning parser of vLLM for any model: tests choose the token that ends the thinking."""

from __future__ import annotations

from typing import Any


class Marker:
    """The token; `<|im_end|>` unless a test chooses another one."""

    token = "<|im_end|>"


def register_marker() -> None:
    """Registers the parser as "marker" with vLLM, in this process."""
    from vllm.reasoning import ReasoningParserManager
    from vllm.reasoning.basic_parsers import BaseThinkingReasoningParser

    class Parser(BaseThinkingReasoningParser):
        def __init__(self, tokenizer: Any, chat_template_kwargs: dict[str, Any] | None = None) -> None:
            super().__init__(tokenizer)
            self._thinks = (chat_template_kwargs or {}).get("enable_thinking", True)

        def is_reasoning_end(self, input_ids: Any) -> bool:
            """Returns True also for a chat whose template has turned the thinking off."""
            return not self._thinks or bool(super().is_reasoning_end(input_ids))

        @property
        def start_token(self) -> Any:
            return "<|im_start|>"

        @property
        def end_token(self) -> Any:
            return Marker.token

    ReasoningParserManager.register_module("marker", module=Parser)
