"""Requests of OpenAI's API, with our additional fields."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from pyaici.server.apis.controllers import ScriptBody
from pyaici.server.apis.fields import (
    MAX_MESSAGES,
    MAX_PARTS,
    Choices,
    ControllerName,
    MaxTokens,
    StrictBody,
    TokenIds,
    TopLogprobs,
    check_count,
    misnamed,
)
from pyaici.server.apis.sampling import SamplingFields

Stop = Annotated[str, Field(min_length=1, max_length=1024)]
Stops = Annotated[list[Stop], Field(max_length=16, fail_fast=True)]

#: fields that would change the answer and that no engine here supports, with the values that change nothing
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    # of vLLM's server
    "use_beam_search": (None, False),
    "length_penalty": (None, 1),
    "prompt_logprobs": (None,),
    "truncate_prompt_tokens": (None, -1),
    "include_stop_str_in_output": (None, False),
    "skip_special_tokens": (None, True),
    "spaces_between_special_tokens": (None, True),
    "allowed_token_ids": (None, []),
    "add_generation_prompt": (None, True),
    "continue_final_message": (None, False),
    "documents": (None, []),
    "chat_template": (None,),
    "mm_processor_kwargs": (None, {}),
    "logits_processors": (None, []),
    "return_tokens_as_token_ids": (None, False),
    "return_token_ids": (None, False),
    "vllm_xargs": (None, {}),
    "guided_whitespace_pattern": (None,),
    # of OpenAI's API
    "verbosity": (None, "medium"),
    "best_of": (None, 1),
    "suffix": (None, ""),
    "functions": (None, []),
    "function_call": (None, "none", "auto"),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "prediction": (None,),
    "web_search_options": (None,),
}


Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[list[str], Field(min_length=1, max_length=1 << 16, fail_fast=True)]
#: a schema, which may be written as a text
JsonText = dict[str, Any] | bool | Text


class StructuredOutputs(StrictBody):
    """The constraint of an answer, as vLLM's server has it: at most one of these fields."""

    json_: JsonText | None = Field(None, alias="json")
    regex: Text | None = None
    choice: Texts | None = None
    grammar: Text | None = None
    json_object: bool | None = None
    structural_tag: dict[str, Any] | Text | None = None
    # these would change the texts of a schema
    disable_any_whitespace: Literal[False] | None = None
    disable_additional_properties: Literal[False] | None = None
    whitespace_pattern: None = None
    disable_fallback: bool | None = Field(None, description="ignored: there is one engine for constraints")


#: fields of one route, which the other one would have to ignore
_OF_ONE_ROUTE = {
    **dict.fromkeys(("prompt", "echo"), "/v1/completions"),
    **dict.fromkeys(
        (
            *("messages", "tools", "tool_choice", "parallel_tool_calls", "top_logprobs"),
            *("max_completion_tokens", "reasoning_effort", "include_reasoning", "thinking_token_budget"),
            "chat_template_kwargs",
        ),
        "/v1/chat/completions",
    ),
}


class Constrained(BaseModel):
    """Additions to OpenAI's API: at most one of these fields constrains the answer."""

    controller: ControllerName | None = None
    controller_arg: Any = Field(None, description="the controller's argument: a text, or JSON")
    script: ScriptBody | None = Field(None, description="a controller as a script, in the request")
    grammar: str | None = Field(
        None,
        min_length=1,
        description="the answer matches this grammar, in Lark, GBNF (root ::= ...), KBNF (start ::= ...;) "
        "or yacc (%%)",
    )
    regex: str | None = Field(
        None, min_length=1, description="the whole answer matches this regular expression"
    )
    json_schema: dict[str, Any] | bool | None = Field(
        None, description="the answer is JSON that matches this schema"
    )
    choice: Texts | None = Field(None, description="the answer is one of these texts")
    structured_outputs: StructuredOutputs | None = Field(None, description="the same, as vLLM has it")
    guided_json: JsonText | None = Field(None, description="the same as json_schema")
    guided_regex: Text | None = Field(None, description="the same as regex")
    guided_choice: Texts | None = Field(None, description="the same as choice")
    guided_grammar: Text | None = Field(None, description="the same as grammar")


class StreamOptions(BaseModel):
    """Options for streamed responses."""

    include_usage: bool = False


class JsonSchemaFormat(BaseModel):
    """The JSON Schema of an answer."""

    model_config = ConfigDict(populate_by_name=True)

    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormat(BaseModel):
    """The format of an answer."""

    # the other fields of a structural tag are read with it
    model_config = ConfigDict(extra="allow")

    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    json_schema: JsonSchemaFormat | None = None

    @model_validator(mode="after")
    def _has_schema(self) -> ResponseFormat:
        if self.type == "json_schema" and (self.json_schema is None or self.json_schema.schema_ is None):
            raise ValueError('a response_format of the type json_schema needs json_schema: {"schema": {...}}')
        return self

    @property
    def structural_tag(self) -> dict[str, Any] | None:
        """The structural tag, if that is the type."""
        if self.type != "structural_tag":
            return None
        return {"type": self.type, **(self.model_extra or {})}


class GenerationRequest(Constrained, SamplingFields):
    """Fields that completions and chats have in common."""

    # clients send new fields that matter only to other servers
    model_config = ConfigDict(extra="ignore", strict=True)

    model: str | None = Field(None, max_length=256)
    n: Choices | None = None
    stop: Stop | Stops | None = Field(
        None, description="a text of 1 to 1024 characters, or a list of up to 16 of them"
    )
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    response_format: ResponseFormat | None = None

    @model_validator(mode="before")
    @classmethod
    def _check_unknown(cls, body: Any) -> Any:
        """Refuses unsupported fields, and unknown fields that look like mistyped ones."""
        if not isinstance(body, dict):
            return body
        check_count(body)
        for name, value in body.items():
            if name in _NEUTRAL and not any(value == neutral for neutral in _NEUTRAL[name]):
                raise PydanticCustomError("field", "this field is not supported", {"param": name})
            if value and name in _OF_ONE_ROUTE and name not in cls.model_fields:
                words = "this field is for {route}"
                raise PydanticCustomError("field", words, {"param": name, "route": _OF_ONE_ROUTE[name]})
        if found := misnamed(body, {*cls.model_fields, *_NEUTRAL}):
            raise PydanticCustomError("field", "{words}", {"param": found[0], "words": found[1]})
        return body

    @property
    def stop_strings(self) -> list[str]:
        """The stop strings as a list."""
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or ())


class CompletionRequest(GenerationRequest):
    """The body of `POST /v1/completions`."""

    prompt: (
        str
        | Annotated[list[str], Field(min_length=1, max_length=64, fail_fast=True)]
        | Annotated[TokenIds, Field(min_length=1)]
        | Annotated[
            list[Annotated[TokenIds, Field(min_length=1)]],
            Field(min_length=1, max_length=64, fail_fast=True),
        ]
    ) = Field("", description="a text, or token ids, or a list of up to 64 of either")
    max_tokens: Annotated[int, Field(ge=0, le=1 << 20)] | None = Field(
        None, description="default: 16; 0 = no answer, for `echo`"
    )
    logprobs: TopLogprobs | None = None
    echo: bool | None = None

    @property
    def prompts(self) -> list[str | list[int]]:
        """All prompts as a list."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if isinstance(self.prompt[0], int):
            return [self.prompt]
        return list(self.prompt)


class TextPart(BaseModel):
    """A text part of a message. Other parts are not supported."""

    type: Literal["text"]
    text: str


class FunctionCall(BaseModel):
    """The function that an assistant called. `arguments` is JSON."""

    name: str
    arguments: str = "{}"


class ToolCall(BaseModel):
    """A call in an assistant's message."""

    id: str | None = None
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(BaseModel):
    """A turn of a chat."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[TextPart], Field(max_length=MAX_PARTS, fail_fast=True)] | None = None
    name: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=MAX_PARTS, fail_fast=True)] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None

    @field_validator("content", mode="before")
    @classmethod
    def _is_text(cls, content: Any) -> Any:
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type", "text") != "text":
                kind = str(part["type"])[:64]
                raise ValueError(f"parts of the type {kind!r} are not supported: the model reads text only")
        return content

    @model_validator(mode="after")
    def _has_content(self) -> Message:
        if self.content is None and self.role != "assistant":
            raise ValueError("a message needs content; only a message of the assistant may be without")
        return self

    @property
    def text(self) -> str:
        """The text of all parts."""
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        return "".join(part.text for part in self.content)


class Function(BaseModel):
    """A function that the model may call."""

    name: str = Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(BaseModel):
    """A tool, which is a function."""

    type: Literal["function"]
    function: Function


class NamedFunction(BaseModel):
    """The name of a function."""

    name: str


class ToolChoice(BaseModel):
    """A tool that the answer must call."""

    type: Literal["function"]
    function: NamedFunction


class ChatRequest(GenerationRequest):
    """The body of `POST /v1/chat/completions`."""

    messages: list[Message] = Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)
    max_tokens: MaxTokens | None = None
    max_completion_tokens: MaxTokens | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    tools: Annotated[list[Tool], Field(max_length=128, fail_fast=True)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = Field(
        None, description="for the model's chat template; none = the model does not reason"
    )
    include_reasoning: bool | None = Field(None, description="default: true")
    thinking_token_budget: Annotated[int, Field(ge=-1, le=1 << 20)] | None = Field(
        None, description="most tokens of reasoning; -1 = no limit"
    )
    chat_template_kwargs: dict[str, Any] | None = Field(
        None, description="variables for the model's chat template"
    )

    @field_validator("tools")
    @classmethod
    def _names_differ(cls, tools: list[Tool] | None) -> list[Tool] | None:
        names = [tool.function.name for tool in tools or ()]
        if len(set(names)) < len(names):
            raise ValueError("two tools have the same name")
        return tools
