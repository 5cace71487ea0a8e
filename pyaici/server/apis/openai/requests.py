"""Requests of OpenAI's API, with our additional fields."""

from __future__ import annotations

import itertools
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from pyaici.server.answers.tools import round_of
from pyaici.server.apis.controllers import ScriptBody
from pyaici.server.apis.fields import (
    MAX_MESSAGES,
    MAX_PARTS,
    OTHER_SAMPLING,
    Choices,
    ControllerName,
    MaxTokens,
    OpenBody,
    Part,
    Refused,
    StrictBody,
    TokenIds,
    TopLogprobs,
)
from pyaici.server.apis.mcp import MAX_TOOL_CALLS, McpChoice, McpTool, tool_kind
from pyaici.server.apis.sampling import SamplingFields

Stop = Annotated[str, Field(min_length=1, max_length=1024)]
Stops = Annotated[list[Stop], Field(max_length=16, fail_fast=True)]

#: fields that would change the answer and that no engine here supports
_REFUSED = {
    **OTHER_SAMPLING,
    # of OpenAI's API
    "audio": Refused("answers are texts"),
    "best_of": Refused("use n, and choose among the answers", (1,)),
    "function_call": Refused("use tool_choice", ("none", "auto")),
    "functions": Refused("use tools"),
    "modalities": Refused("answers are texts", (["text"], [])),
    "moderation": Refused("check the texts with a moderator of your own"),
    "suffix": Refused("POST /api/generate has it"),
    "verbosity": Refused("say in the messages how long the answer should be", ("medium",)),
    "web_search_options": Refused("offer a search in tools"),
    # of vLLM's server
    "add_generation_prompt": Refused("send a prompt to /v1/completions", (True,)),
    "allowed_token_ids": Refused("use regex, choice or grammar"),
    "chat_template": Refused("send a prompt to /v1/completions", ()),
    "continue_final_message": Refused("send a prompt to /v1/completions"),
    "documents": Refused("put them into the messages"),
    "guided_whitespace_pattern": Refused("use regex or grammar"),
    "include_stop_str_in_output": Refused("add the stop string to the answer"),
    "length_penalty": Refused("use the controller beam", (1,)),
    "logits_processors": Refused("use a controller or a script"),
    "logprob_token_ids": Refused("use top_logprobs"),
    "prompt_logprobs": Refused("send the prompt to /v1/completions with echo and logprobs", ()),
    "repetition_detection": Refused("use repetition_penalty or max_tokens"),
    "prompt_embeds": Refused("send a prompt as text or token ids"),
    "return_prompt_text": Refused("POST /tokenize has the tokens of a prompt"),
    "return_token_ids": Refused("use logprobs, which has the bytes of tokens"),
    "return_tokens_as_token_ids": Refused("use logprobs, which has the bytes of tokens"),
    "skip_special_tokens": Refused("special tokens are no part of answers", (True,)),
    "truncate_prompt_tokens": Refused("shorten the prompt", (-1,)),
    "use_beam_search": Refused("use the controller beam"),
    "watermarking": Refused("answers have no watermark"),
    # of other servers
    "enable_thinking": Refused("use reasoning_effort or chat_template_kwargs", ()),
    "max_new_tokens": Refused("use max_tokens", (-1,)),
    "n_predict": Refused("use max_tokens", (-1,)),
    "reasoning": Refused("use reasoning_effort"),
    "repeat_penalty": Refused("use repetition_penalty", (1,)),
    "thinking": Refused("use reasoning_effort or chat_template_kwargs", ()),
}


#: for completions and for chats: the fields of the other route, too
_REFUSED_IN_COMPLETIONS = {
    **_REFUSED,
    **dict.fromkeys(
        (
            *("messages", "tools", "tool_choice", "parallel_tool_calls", "top_logprobs"),
            *("max_completion_tokens", "reasoning_effort", "include_reasoning", "thinking_token_budget"),
            *("chat_template_kwargs", "max_tool_calls"),
        ),
        Refused("it is for /v1/chat/completions"),
    ),
}
_REFUSED_IN_CHATS = {
    **_REFUSED,
    **dict.fromkeys(("prompt", "echo"), Refused("it is for /v1/completions")),
    "add_special_tokens": Refused("the chat template adds them"),
}
_REFUSED_IN_MESSAGES = {
    "audio": Refused("send its transcript as content"),
    "function_call": Refused("use tool_calls"),
}
_REFUSED_IN_TOOLS = {"custom": Refused("use a function")}
ToolCalls = Annotated[int, Field(ge=1, le=MAX_TOOL_CALLS)]
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


_RUN = Refused("use POST /v1/run, which reports all sequences and events", (False, 0, "0", "false"))
_FLAG = Literal[True, False, 0, 1, "true", "false", "1", "0"]


class VllmArguments(OpenBody):
    """The controller of a request, with the keys that AICI's plugin in vLLM reads.

    `aici_keep`, for how long a suspended sequence keeps its cache there, changes nothing here.
    """

    refused: ClassVar = {
        **dict.fromkeys(("aici_fork", "aici_events", "aici_counts"), _RUN),
        "aici_copies": Refused("use n", (1, "1")),
        "aici_after_thinking": Refused(
            "use response_format or tools, which apply after the reasoning", (False, 0, "0", "false")
        ),
        "aici_template": Refused("use chat_template_kwargs"),
        "aici_name": Refused("use POST /v1/run, whose name it is"),
        "aici_owner": Refused("the token of the request names the owner"),
    }

    aici_controller: ControllerName | None = None
    aici_arg: Any = None
    aici_script: ScriptBody | Text | None = None
    aici_hold: _FLAG | None = None
    aici_calls: _FLAG | None = None

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, body: Any) -> Any:
        """Keys of others are for logits processors of vLLM, which would change the answer."""
        known = {*cls.model_fields, *cls.refused, "aici_keep"}
        for name in body if isinstance(body, dict) else ():
            if name not in known:
                words = "this server has no such key; the controller of a request is aici_controller or "
                raise PydanticCustomError("field", "{words}", {"param": name, "words": words + "aici_script"})
        return body

    @property
    def holds(self) -> bool:
        """Whether the client wants text only that no controller removes any more."""
        return self.aici_hold in (True, 1, "true", "1")


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
        None, description="a schema (an object, true or false): the answer is JSON that matches it"
    )
    choice: Texts | None = Field(None, description="the answer is one of these texts")
    structured_outputs: StructuredOutputs | None = Field(None, description="the same, as vLLM has it")
    guided_json: JsonText | None = Field(None, description="a schema as json_schema takes it, or its text")
    guided_regex: Text | None = Field(None, description="the same as regex")
    guided_choice: Texts | None = Field(None, description="the same as choice")
    guided_grammar: Text | None = Field(None, description="the same as grammar")


class StreamOptions(OpenBody):
    """Options for streamed responses."""

    include_usage: bool = False


class JsonSchemaFormat(Part):
    """The JSON Schema of an answer."""

    model_config = ConfigDict(populate_by_name=True)

    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Part):
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


class GenerationRequest(Constrained, SamplingFields, OpenBody):
    """Fields that completions and chats have in common."""

    model_config = ConfigDict(strict=True)
    refused: ClassVar = _REFUSED

    model: str | None = Field(None, max_length=256)
    n: Choices | None = None
    stop: Stop | Stops | None = Field(
        None, description="a text of 1 to 1024 characters, or a list of up to 16 of them"
    )
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: Any = Field(None, description="a label of the request, as `metadata`: it asks for nothing")
    metadata: Any = None
    response_format: ResponseFormat | None = None
    vllm_xargs: VllmArguments | None = Field(None, description="the controller, as AICI in vLLM takes it")

    @model_validator(mode="after")
    def _hold_no_stream(self) -> Self:
        if self.stream and self.vllm_xargs is not None and self.vllm_xargs.holds:
            raise ValueError(
                "this server holds no stream back: leave out aici_hold and follow backtrack, or leave out "
                "stream"
            )
        return self

    @property
    def stop_strings(self) -> list[str]:
        """The stop strings as a list."""
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or ())


class CompletionRequest(GenerationRequest):
    """The body of `POST /v1/completions`."""

    refused: ClassVar = _REFUSED_IN_COMPLETIONS

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
    add_special_tokens: bool | None = Field(
        None, description="false = without the special tokens that the model expects around a prompt"
    )

    @property
    def prompts(self) -> list[str | list[int]]:
        """All prompts as a list."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if isinstance(self.prompt[0], int):
            return [self.prompt]
        return list(self.prompt)


class TextPart(BaseModel):
    """A text part of a message, which may be a refusal. Other parts are not supported."""

    type: Literal["text", "refusal"]
    text: str = Field(validation_alias=AliasChoices("text", "refusal"))


class FunctionCall(Part):
    """The function that an assistant called. `arguments` is JSON."""

    name: str
    arguments: str = "{}"


class ToolCall(Part):
    """A call in an assistant's message."""

    refused: ClassVar = _REFUSED_IN_TOOLS

    id: str | None = None
    type: Literal["function"] = "function"
    function: FunctionCall


class McpCall(Part):
    """A call of a tool of an MCP server in an assistant's message, as answers have it."""

    id: str | None = None
    name: str
    arguments: str = "{}"
    output: str | None = None
    error: dict[str, Any] | None = None

    @property
    def call(self) -> ToolCall:
        """The call as that of a function."""
        return ToolCall(id=self.id, function=FunctionCall(name=self.name, arguments=self.arguments))

    @property
    def result(self) -> Message:
        """The result as a message of its own."""
        text = f"error: {self.error.get('message')}" if self.error else self.output or ""
        return Message(role="tool", tool_call_id=self.id, content=text)


class Message(Part):
    """A turn of a chat."""

    refused: ClassVar = _REFUSED_IN_MESSAGES

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[TextPart], Field(max_length=MAX_PARTS, fail_fast=True)] | None = None
    refusal: str | None = None
    name: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=MAX_PARTS, fail_fast=True)] | None = None
    tool_call_id: str | None = None
    mcp_calls: Annotated[list[McpCall], Field(max_length=MAX_PARTS, fail_fast=True)] | None = Field(
        default=None, description="calls of tools of MCP servers, which came before the content"
    )
    reasoning_content: str | None = None
    reasoning: str | None = None

    @field_validator("content", mode="before")
    @classmethod
    def _is_text(cls, content: Any) -> Any:
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type", "text") not in ("text", "refusal"):
                kind = str(part["type"])[:64]
                raise ValueError(f"parts of the type {kind!r} are not supported: the model reads text only")
        return content

    @model_validator(mode="after")
    def _has_content(self) -> Message:
        if self.content is None and self.role != "assistant":
            raise ValueError("a message needs content; only a message of the assistant may be without")
        return self

    @property
    def turns(self) -> list[Message]:
        """The message, after its calls of tools of MCP servers: those of one answer, and their results."""
        turns: list[Message] = []
        for _, group in itertools.groupby(self.mcp_calls or (), lambda call: round_of(call.id)):
            calls = list(group)
            turns.append(Message(role="assistant", tool_calls=[call.call for call in calls]))
            turns += [call.result for call in calls]
        return [*turns, self] if self.text or self.tool_calls or not turns else turns

    @property
    def text(self) -> str:
        """The text of all parts."""
        if self.content is None or isinstance(self.content, str):
            return self.content or self.refusal or ""
        return "".join(part.text for part in self.content)


class Function(Part):
    """A function that the model may call."""

    name: str = Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Part):
    """A tool, which is a function."""

    refused: ClassVar = _REFUSED_IN_TOOLS

    type: Literal["function"]
    function: Function


def names_differ(tools: list[Any]) -> list[Any]:
    """Returns the tools. Raises ValueError if two functions have the same name."""
    names = [tool.function.name for tool in tools if isinstance(tool, Tool)]
    if len(set(names)) < len(names):
        raise ValueError("two tools have the same name")
    return tools


AnyTool = Annotated[
    Annotated[Tool, Tag("a function")] | Annotated[McpTool, Tag("an MCP server")], Discriminator(tool_kind)
]


class NamedFunction(BaseModel):
    """The name of a function."""

    name: str


class ToolChoice(Part):
    """A tool that the answer must call."""

    refused: ClassVar = _REFUSED_IN_TOOLS

    type: Literal["function"]
    function: NamedFunction


class AllowedTools(Part):
    """The tools that the answer may call, or must call one of."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[ToolChoice], Field(min_length=1, max_length=128, fail_fast=True)]


class AllowedToolChoice(Part):
    """A choice among some of the tools."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


class ChatRequest(GenerationRequest):
    """The body of `POST /v1/chat/completions`."""

    refused: ClassVar = _REFUSED_IN_CHATS

    messages: list[Message] = Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)
    max_tokens: MaxTokens | None = None
    max_completion_tokens: MaxTokens | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    tools: (
        Annotated[list[AnyTool], Field(max_length=128, fail_fast=True), AfterValidator(names_differ)] | None
    ) = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | McpChoice | AllowedToolChoice | None = (
        None
    )
    parallel_tool_calls: bool | None = None
    max_tool_calls: ToolCalls | None = Field(None, description="most calls of tools of MCP servers")
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
