"""Requests of Ollama's API, turned into those of OpenAI's."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from pyaici.server.apis.fields import (
    MAX_MESSAGES,
    MAX_PARTS,
    Seed,
    StrictBody,
    Temperature,
    TopK,
    TopP,
    without_nulls,
)
from pyaici.server.apis.openai.requests import ChatRequest, Stop, Stops, Tool
from pyaici.server.apis.sampling import Penalty
from pyaici.server.http.errors import bad_request

Think = bool | Literal["low", "medium", "high"]
#: "json", or a JSON Schema
Format = Literal["json", ""] | dict[str, Any]


class OllamaBody(StrictBody):
    """A part of a request to Ollama's API, in which a field that is null is unset.

    Ollama is written in Go, whose reader of JSON skips null; so its clients send null for what is not set.
    """

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, body: Any) -> Any:
        return without_nulls(body)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core_schema))
        schema["additionalProperties"] = {"type": "null"}
        for name, field in schema.get("properties", {}).items():
            if name not in schema.get("required", ()) and {"type": "null"} not in field.get("anyOf", ()):
                kept = {
                    word: field.pop(word) for word in ("title", "description", "default") if word in field
                }
                schema["properties"][name] = {"anyOf": [field, {"type": "null"}], **kept}
        return schema


class Options(OllamaBody):
    """Options of a generation, with Ollama's defaults."""

    temperature: Temperature = 0.8
    top_k: TopK = 40
    top_p: TopP = 0.9
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
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
    # these change no answer, and matter only to Ollama
    num_ctx: int | None = None
    num_batch: int | None = None
    num_gpu: int | None = None
    num_keep: int | None = None
    num_thread: int | None = None
    main_gpu: int | None = None
    numa: bool | None = None
    low_vram: bool | None = None
    use_mmap: bool | None = None
    use_mlock: bool | None = None
    # these would change the answer
    mirostat: Literal[0] | None = None
    tfs_z: Literal[1] | None = None
    typical_p: Literal[1] | None = None

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
            "seed": self.seed,
            "stop": self.stop,
            "max_tokens": self.num_predict if self.num_predict > 0 else None,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "repetition_penalty": self.repeat_penalty,
        }


class _Request(OllamaBody):
    model: Annotated[str, Field(min_length=1, max_length=256)]
    stream: bool = True
    format: Format | None = None
    options: Options | None = None
    think: Think | None = None
    keep_alive: float | str | None = Field(None, description="ignored: the model stays loaded")

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

    prompt: str = ""
    suffix: str = Field("", description="text after the answer, for models that were trained to fill in")
    system: str = ""
    raw: bool = Field(False, description="do not use the chat template")
    # not supported
    template: Literal[""] | None = None
    context: Annotated[list[int], Field(max_length=0)] | None = None
    images: Annotated[list[str], Field(max_length=0)] | None = None

    def chat(self) -> ChatRequest:
        """Returns the request as a chat. Raises ApiError."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        messages = [*system, {"role": "user", "content": self.prompt}]
        return ChatRequest.model_validate({"messages": messages, **self.fields()})


class CalledFunction(OllamaBody):
    """The function that the assistant called."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    index: int | None = None
    description: str | None = None


class ToolCall(OllamaBody):
    """A call in a message of the assistant."""

    function: CalledFunction
    id: str | None = None
    type: Literal["function"] | None = None


class Message(OllamaBody):
    """A turn of a chat."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    thinking: str | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=MAX_PARTS, fail_fast=True)] | None = None
    images: Annotated[list[str], Field(max_length=0)] | None = None

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
    tools: Annotated[list[Tool], Field(max_length=128, fail_fast=True)] | None = None

    def chat(self) -> ChatRequest:
        """Returns the request as a chat of OpenAI's API. Raises ApiError."""
        tools = [tool.model_dump(exclude_none=True) for tool in self.tools or ()]
        messages = [message.wire() for message in self.messages]
        return ChatRequest.model_validate({"messages": messages, "tools": tools, **self.fields()})


class ModelName(OllamaBody):
    """The body of `POST /api/show`."""

    model: Annotated[str, Field(min_length=1, max_length=256)]
    verbose: bool | None = None
