"""Requests of Ollama's API, turned into those of OpenAI's."""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field

from pyaici.server.apis.fields import (
    MAX_MESSAGES,
    MAX_PARTS,
    OTHER_SAMPLING,
    OpenBody,
    Part,
    Refused,
    Seed,
    Temperature,
    TopK,
    TopP,
)
from pyaici.server.apis.openai.requests import ChatRequest, Stop, Stops, Tool, names_differ
from pyaici.server.apis.sampling import Penalty
from pyaici.server.http.errors import bad_request

Think = bool | Literal["low", "medium", "high"]
#: "json", or a JSON Schema
Format = Literal["json", ""] | dict[str, Any]


_REFUSED_OPTIONS = {
    **OTHER_SAMPLING,
    "penalize_newline": Refused("POST /v1/chat/completions has logit_bias", (True,)),
}


class Options(OpenBody):
    """Options of a generation, with Ollama's defaults."""

    model_config = ConfigDict(strict=True)
    refused: ClassVar = _REFUSED_OPTIONS

    temperature: Temperature = 0.8
    top_k: TopK = 40
    top_p: TopP = 0.9
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    typical_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    seed: Seed | None = None
    stop: Stop | Stops | None = None
    num_predict: Annotated[int, Field(ge=-2, le=1 << 20)] = Field(
        -1, description="most tokens of the answer; below 0 = as many as the server allows"
    )
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    repeat_penalty: Annotated[float, Field(gt=0, le=100)] = 1.0
    #: -1: repeat_penalty is for all tokens
    repeat_last_n: int | None = None

    def sampling(self) -> dict[str, Any]:
        """Returns the fields of OpenAI's API with the same meaning. Raises ApiError."""
        if self.repeat_penalty != 1 and self.repeat_last_n != -1:
            raise bad_request(
                "repeat_penalty is supported for all tokens only: add repeat_last_n -1",
                "options.repeat_penalty",
            )
        return {
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "min_p": self.min_p,
            "typical_p": self.typical_p,
            "seed": self.seed,
            "stop": self.stop,
            "max_tokens": self.num_predict if self.num_predict > 0 else None,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "repetition_penalty": self.repeat_penalty,
        }


_REFUSED_IN_MESSAGES = {"images": Refused("the model reads texts alone")}
_REFUSED = {
    **dict.fromkeys(Options.model_fields, Refused("put it into options", ())),
    **dict.fromkeys(("logprobs", "top_logprobs"), Refused("POST /v1/chat/completions has it")),
}
_REFUSED_TO_GENERATE = {
    **_REFUSED,
    **_REFUSED_IN_MESSAGES,
    "template": Refused("send the whole prompt, with raw"),
    "context": Refused("send earlier turns to /api/chat"),
}


class _Request(OpenBody):
    model_config = ConfigDict(strict=True)
    refused: ClassVar = _REFUSED

    model: Annotated[str, Field(min_length=1, max_length=256)]
    stream: bool = True
    format: Format | None = None
    options: Options | None = None
    think: Think | None = None

    def fields(self) -> dict[str, Any]:
        """Returns the fields of OpenAI's API for options, format and thinking. Raises ApiError."""
        found = (self.options or Options.model_validate({})).sampling()
        if self.format == "json":
            found["response_format"] = {"type": "json_object"}
        elif self.format:
            schema = {"name": "format", "schema": self.format}
            found["response_format"] = {"type": "json_schema", "json_schema": schema}
        if self.think is not None:
            thinks = "medium" if self.think else "none"
            found["reasoning_effort"] = self.think if isinstance(self.think, str) else thinks
        return found


class GenerateRequest(_Request):
    """The body of `POST /api/generate`."""

    refused: ClassVar = _REFUSED_TO_GENERATE

    prompt: str = ""
    suffix: str = Field("", description="text after the answer, for models that were trained to fill in")
    system: str = ""
    raw: bool = Field(False, description="do not use the chat template")

    def chat(self) -> ChatRequest:
        """Returns the request as a chat. Raises ApiError."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        messages = [*system, {"role": "user", "content": self.prompt}]
        return ChatRequest.model_validate({"messages": messages, **self.fields()})


class CalledFunction(Part):
    """The function that the assistant called."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    index: int | None = None
    description: str | None = None


class ToolCall(Part):
    """A call in a message of the assistant."""

    function: CalledFunction
    id: str | None = None
    type: Literal["function"] | None = None


class Message(Part):
    """A turn of a chat."""

    refused: ClassVar = _REFUSED_IN_MESSAGES

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    thinking: str | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=MAX_PARTS, fail_fast=True)] | None = None

    def wire(self) -> dict[str, Any]:
        """Returns the message as OpenAI's API has it."""
        calls = [
            {
                "id": call.id,
                "function": {"name": call.function.name, "arguments": json.dumps(call.function.arguments)},
            }
            for call in self.tool_calls or ()
        ]
        message: dict[str, Any] = {"role": self.role, "content": self.content, "name": self.tool_name}
        if calls:
            message["tool_calls"] = calls
        if self.role == "tool":
            message["tool_call_id"] = self.tool_call_id
        return message


class ChatBody(_Request):
    """The body of `POST /api/chat`."""

    messages: Annotated[list[Message], Field(max_length=MAX_MESSAGES, fail_fast=True)] = Field(
        default_factory=list
    )
    tools: (
        Annotated[list[Tool], Field(max_length=128, fail_fast=True), AfterValidator(names_differ)] | None
    ) = None

    def chat(self) -> ChatRequest:
        """Returns the request as a chat of OpenAI's API. Raises ApiError."""
        tools = [tool.model_dump(exclude_none=True) for tool in self.tools or ()]
        messages = [message.wire() for message in self.messages]
        return ChatRequest.model_validate({"messages": messages, "tools": tools, **self.fields()})


class ModelName(Part):
    """The body of `POST /api/show`."""

    model: Annotated[str, Field(min_length=1, max_length=256)]
    verbose: bool | None = None
