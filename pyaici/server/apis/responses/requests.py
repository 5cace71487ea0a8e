"""Requests of the Responses API, turned into chats of OpenAI's API."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)

from pyaici.server.answers.tools import round_of
from pyaici.server.apis.fields import (
    MAX_MESSAGES,
    MAX_PARTS,
    MaxTokens,
    OpenBody,
    Part,
    Refused,
    TopLogprobs,
)
from pyaici.server.apis.mcp import McpChoice, McpTool, tool_kind
from pyaici.server.apis.openai.requests import ChatRequest, Constrained, Function, NamedFunction, ToolCalls
from pyaici.server.apis.sampling import SamplingFields
from pyaici.server.http.errors import ApiError, bad_request

#: fields that chats refuse and that this API has
_OWN = frozenset({"reasoning", "prompt"})
_REFUSED = {
    **{name: refused for name, refused in ChatRequest.refused.items() if name not in _OWN},
    "background": Refused("leave the connection open: the answer ends with it", (False,)),
    "context_management": Refused("shorten the input"),
    "conversation": Refused("use previous_response_id"),
    "prompt": Refused("send the text of the prompt as input"),
    # of chats
    "logprobs": Refused("use top_logprobs, or message.output_text.logprobs in include", (False,)),
    "max_completion_tokens": Refused("use max_output_tokens"),
    "max_tokens": Refused("use max_output_tokens"),
    "messages": Refused("use input"),
    "n": Refused("send the request several times", (1,)),
    "reasoning_effort": Refused("use reasoning.effort"),
    "stop": Refused("POST /v1/chat/completions has it"),
    **dict.fromkeys(
        ("chat_template_kwargs", "include_reasoning", "thinking_token_budget"),
        Refused("use reasoning.effort, or POST /v1/chat/completions"),
    ),
}
_REFUSED_IN_TEXT = {"verbosity": Refused("say in the input how long the answer should be", ("medium",))}
#: kinds of items that are not read, and how to do without them
_OTHER_ITEMS = {"compaction": "send the items that it stands for"}
#: names in a chat of what a request calls otherwise
_TERMS = {
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
    "response_format.json_schema.schema": "text.format.schema",
    "tool_choice.function.name": "tool_choice.name",
    "tool_choice.allowed_tools.tools": "tool_choice.tools",
    "max_tokens": "max_output_tokens",
    "messages": "input",
}


LabelName = Annotated[str, Field(max_length=64)]
Label = Annotated[str, Field(max_length=512)]


class TextPart(BaseModel):
    """A text part of an item, which may be a refusal. Other parts are not supported."""

    type: Literal["input_text", "output_text", "text", "refusal", "reasoning_text", "summary_text"]
    text: str = Field(validation_alias=AliasChoices("text", "refusal"))


Parts = Annotated[list[TextPart], Field(max_length=MAX_PARTS, fail_fast=True)]


class Item(Part):
    """An item of a conversation: a message, a call, the result of a call, or reasoning; or the id of one.

    Calls of tools of MCP servers have their results in them.
    """

    type: Literal[
        "message",
        "function_call",
        "function_call_output",
        "reasoning",
        "mcp_call",
        "mcp_list_tools",
        "item_reference",
    ] = "message"
    id: str | None = None
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | Parts | None = None
    call_id: str | None = Field(None, min_length=1, max_length=256)
    name: str | None = None
    arguments: str | None = None
    output: str | Parts | None = None
    server_label: str | None = Field(None, max_length=64)
    error: Any = None
    tools: list[Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_known(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        kind = body.get("type")
        if isinstance(kind, str) and kind in _OTHER_ITEMS:
            raise ValueError(f"items of the type {kind!r} are not supported: {_OTHER_ITEMS[kind]}")
        named = {name for name, value in body.items() if value is not None}
        return {**body, "type": "item_reference"} if named == {"id"} else body

    @field_validator("content", "output", mode="before")
    @classmethod
    def _is_text(cls, content: Any) -> Any:
        known = TextPart.model_fields["type"].annotation.__args__  # type: ignore[union-attr]
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type", "input_text") not in known:
                kind = str(part["type"])[:64]
                raise ValueError(f"parts of the type {kind!r} are not supported: the model reads text only")
        return content

    @model_validator(mode="after")
    def _is_whole(self) -> Item:
        needed = {
            "message": ("role", "content"),
            "function_call": ("call_id", "name", "arguments"),
            "function_call_output": ("call_id", "output"),
            "mcp_call": ("id", "server_label", "name", "arguments"),
            "mcp_list_tools": ("server_label", "tools"),
            "item_reference": ("id",),
        }
        for name in needed.get(self.type, ()):
            if getattr(self, name) is None:
                raise ValueError(f"an item of the type {self.type} needs {name}")
        return self

    @property
    def text(self) -> str:
        """The text of all parts of a message, or of the result of a call."""
        content = self.output if self.type in ("function_call_output", "mcp_call") else self.content
        if content is None and self.error is not None:
            return f"error: {_message_of(self.error)}"
        if content is None or isinstance(content, str):
            return content or ""
        return "".join(part.text for part in content)


def _message_of(error: Any) -> str:
    """Returns the text of the error of a call, as the model was told of it."""
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        return str(error["message"])
    if isinstance(error, dict) and isinstance(parts := error.get("content"), list):
        return "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
    return json.dumps(error, ensure_ascii=False)


def _as_items(given: Any) -> Any:
    """Returns an input as a list: a text is a message of the user."""
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


Items = Annotated[
    list[Item],
    Field(max_length=MAX_MESSAGES, fail_fast=True),
    BeforeValidator(_as_items, json_schema_input_type=str | list[Item]),
]


class FunctionTool(Function):
    """A function that the model may call."""

    type: Literal["function"]

    @model_validator(mode="before")
    @classmethod
    def _is_function(cls, body: Any) -> Any:
        kind = body.get("type") if isinstance(body, dict) else None
        if isinstance(kind, str) and kind != "function":
            raise ValueError(f"tools of the type {kind[:64]!r} are not supported: use a function, or mcp")
        return body

    def echo(self) -> dict[str, Any]:
        """Returns the tool as responses repeat it."""
        return {
            "type": "function",
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
            "strict": self.strict is not False,
        }


AnyTool = Annotated[
    Annotated[FunctionTool, Tag("a function")] | Annotated[McpTool, Tag("an MCP server")],
    Discriminator(tool_kind),
]


class NamedTool(NamedFunction):
    """The name of a function that the model may call, or must call."""

    type: Literal["function"]

    def for_chat(self) -> dict[str, Any]:
        """Returns the choice of the tool in a chat."""
        return {"type": "function", "function": {"name": self.name}}


class AllowedTools(Part):
    """The tools that the answer may call, or must call one of."""

    type: Literal["allowed_tools"]
    mode: Literal["none", "auto", "required"] = "auto"
    tools: Annotated[list[NamedTool], Field(min_length=1, max_length=128, fail_fast=True)]

    def for_chat(self) -> Any:
        """Returns the choice among the tools in a chat."""
        if self.mode == "none":
            return "none"
        allowed = {"mode": self.mode, "tools": [tool.for_chat() for tool in self.tools]}
        return {"type": "allowed_tools", "allowed_tools": allowed}


class TextFormat(Part):
    """The format of the answer's text."""

    model_config = ConfigDict(populate_by_name=True)

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = Field(None, max_length=256)
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None

    @model_validator(mode="after")
    def _has_schema(self) -> TextFormat:
        if self.type == "json_schema" and self.schema_ is None:
            raise ValueError("a format of the type json_schema needs a schema")
        return self

    def for_chat(self) -> dict[str, Any]:
        """Returns the format of a chat."""
        if self.type != "json_schema":
            return {"type": self.type}
        return {"type": self.type, "json_schema": {"name": self.name, "schema": self.schema_}}

    def echo(self) -> dict[str, Any]:
        """Returns the format as responses repeat it. The schema is null in them by definition."""
        if self.type != "json_schema":
            return {"type": self.type}
        names = {"type": self.type, "name": self.name or "", "description": self.description}
        return {**names, "schema": None, "strict": self.strict is not False}


class TextOptions(OpenBody):
    """Options of the answer's text."""

    refused: ClassVar = _REFUSED_IN_TEXT

    format: TextFormat | None = None
    verbosity: Literal["medium"] | None = None


class Reasoning(OpenBody):
    """Options of the model's reasoning."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = Field(
        None, description="for the model's chat template; none = the model does not reason"
    )


class ResponsesRequest(Constrained, SamplingFields, OpenBody):
    """The body of `POST /v1/responses`."""

    model_config = ConfigDict(strict=True)
    refused: ClassVar = _REFUSED

    model: str | None = Field(None, max_length=256)
    input: Items = Field(
        default_factory=list, description="a text of the user, or the items of a conversation"
    )
    instructions: str | None = None
    previous_response_id: str | None = Field(None, max_length=256)
    store: bool | None = Field(None, description="default: true")
    stream: bool | None = None
    max_output_tokens: MaxTokens | None = None
    top_logprobs: TopLogprobs | None = None
    include: Annotated[list[str], Field(max_length=64, fail_fast=True)] | None = None
    text: TextOptions | None = None
    reasoning: Reasoning | None = None
    tools: Annotated[list[AnyTool], Field(max_length=128, fail_fast=True)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | McpChoice | AllowedTools | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: ToolCalls | None = Field(None, description="most calls of tools of MCP servers")
    metadata: Annotated[dict[LabelName, Label], Field(max_length=16)] | None = None
    safety_identifier: str | None = Field(None, max_length=256)
    prompt_cache_key: str | None = Field(None, max_length=256)
    user: Any = Field(None, description="a label of the request, as `metadata`: it asks for nothing")

    @property
    def references(self) -> set[str]:
        """The ids of stored items in the input."""
        return {item.id for item in self.input if item.type == "item_reference" and item.id}

    @property
    def lists_logprobs(self) -> bool:
        """Whether the answer lists the log-probabilities of its tokens."""
        return bool(self.top_logprobs) or "message.output_text.logprobs" in (self.include or ())

    def chat(self, items: Sequence[Item]) -> ChatRequest:
        """Returns the request as a chat about these items. Raises ApiError."""
        shared = (*Constrained.model_fields, *SamplingFields.model_fields)
        choice, text = self.tool_choice, self.text
        fields = {
            **{name: getattr(self, name) for name in shared},
            "messages": chat_messages(items, self.instructions),
            "max_tokens": self.max_output_tokens,
            "logprobs": self.lists_logprobs,
            "top_logprobs": self.top_logprobs,
            "response_format": text.format.for_chat() if text and text.format else None,
            "reasoning_effort": self.reasoning.effort if self.reasoning else None,
            "tools": [
                {"type": "function", "function": tool.model_dump(exclude={"type"}, exclude_none=True)}
                if isinstance(tool, FunctionTool)
                else tool
                for tool in self.tools or ()
            ],
            "tool_choice": choice.for_chat() if isinstance(choice, NamedTool | AllowedTools) else choice,
            "parallel_tool_calls": self.parallel_tool_calls,
            "max_tool_calls": self.max_tool_calls,
        }
        try:
            return ChatRequest.model_validate(fields)
        except ValidationError as error:
            problem = error.errors()[0]
            param = _TERMS.get(str(problem["loc"][0]), str(problem["loc"][0]))
            message = problem["msg"].removeprefix("Value error, ")
            raise bad_request(f"{param}: {message[:1].lower()}{message[1:]}", param) from None


def chat_messages(items: Iterable[Item], instructions: str | None) -> list[dict[str, Any]]:
    """Returns the messages of a chat for items. Earlier reasoning is left out, as chat templates do.

    The instructions come first, in one message with a system message that the items begin with: few
    templates have room for two. Calls of tools of MCP servers that belong to one answer follow each other,
    and then their results.
    """
    messages: list[dict[str, Any]] = []
    #: the message with the present round of such calls, and what their ids have in common
    caller: dict[str, Any] = {}
    present: str | None = None
    if instructions:
        messages.append({"role": "system", "content": instructions})
    for item in items:
        last = messages[-1] if messages else {}
        before, present = present, round_of(item.id) if item.type == "mcp_call" else None
        if item.type in ("function_call", "mcp_call"):
            if present is None or present != before:
                caller = last
                if last.get("role") != "assistant":
                    messages.append(caller := {"role": "assistant", "content": None})
            function = {"name": item.name, "arguments": item.arguments}
            call_id = item.call_id or item.id
            caller.setdefault("tool_calls", []).append(
                {"id": call_id, "type": "function", "function": function}
            )
            if item.type == "mcp_call":
                messages.append({"role": "tool", "tool_call_id": call_id, "content": item.text})
        elif item.type == "function_call_output":
            messages.append({"role": "tool", "tool_call_id": item.call_id, "content": item.text})
        elif (
            item.type == "message"
            and item.role in ("system", "developer")
            and len(messages) == 1
            and (last["role"] == "system")
        ):
            last["content"] += f"\n\n{item.text}"
        elif item.type == "message":
            messages.append({"role": item.role, "content": item.text})
    return messages


def in_own_terms(error: ApiError) -> ApiError:
    """Returns an error about a field of the chat as one about the request's field that it comes from."""
    own = _TERMS.get(error.param or "")
    if own is None or error.param is None:
        return error
    message = error.message.replace(error.param, own)
    return ApiError(
        error.status,
        message,
        kind=error.kind,
        code=error.code,
        param=own,
        log=error.log,
        headers=error.headers,
    )
