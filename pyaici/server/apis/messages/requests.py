"""The request of the messages API: its fields with their types and defaults, and the rules beyond types.

The rules are ranges, required fields, and fields that exclude each other. Their errors say more than those of
types do. An error has a kind, a message, and the field of the request.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, field_validator

from pyaici.engines.sampling import MAX_TOP_K
from pyaici.server.apis.fields import MAX_MESSAGES, MAX_PARTS, OTHER_SAMPLING, OpenBody, Refused
from pyaici.server.apis.sampling import SamplingFields

#: the stop string that ends an answer in text
END_OF_ANSWER = "</ai00:assistant>"
#: tokens of an answer, if the request does not set them
DEFAULT_MAX_TOKENS = 1024

#: fields that would change the answer: of Anthropic's API, and of the other APIs here
_REFUSED = {
    **OTHER_SAMPLING,
    "mcp_servers": Refused("offer their tools in tools"),
    "container": Refused("offer a tool that runs code"),
    "compaction": Refused("ask for a summary in a message"),
    "thread": Refused("send all messages"),
    **dict.fromkeys(
        SamplingFields.model_fields.keys() - {"temperature", "top_p", "top_k", "seed"},
        Refused("POST /v1/chat/completions has it"),
    ),
    "repetition_penalty": Refused("POST /v1/chat/completions has it", (0, 1)),
}

Level = Literal["none", "structural", "schema_aware"]


class _Part(BaseModel):
    """A part of a request. Unknown fields are ignored; types are strict: a string is never a number."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class TextBlock(_Part):
    """A text."""

    type: Literal["text"]
    text: str


TextBlocks = Annotated[list[TextBlock], Field(max_length=MAX_PARTS, fail_fast=True)]


class ToolUseBlock(_Part):
    """A tool call that the model made."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class ToolReferenceBlock(_Part):
    """The name of a tool that a search for tools has found."""

    type: Literal["tool_reference"]
    tool_name: str

    @property
    def text(self) -> str:
        """The name, which is all that the model reads of it: the tools are described in any case."""
        return self.tool_name


ResultBlock = Annotated[TextBlock | ToolReferenceBlock, Field(discriminator="type")]


class ToolResultBlock(_Part):
    """The result of a tool call."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: str | Annotated[list[ResultBlock], Field(max_length=MAX_PARTS, fail_fast=True)] | None = None
    is_error: bool = False


class ThinkingBlock(_Part):
    """The model's thinking before its answer."""

    type: Literal["thinking"]
    thinking: str
    signature: str = ""


class RedactedThinkingBlock(_Part):
    """Thinking that only Anthropic's servers can read."""

    type: Literal["redacted_thinking"]
    data: str


AnyBlock = TextBlock | ToolUseBlock | ToolResultBlock | ThinkingBlock | RedactedThinkingBlock
Block = Annotated[AnyBlock, Field(discriminator="type")]


class Message(_Part):
    """A turn of the conversation, or instructions between turns (`system`, of texts alone)."""

    role: Literal["user", "assistant", "system"]
    content: str | Annotated[list[Block], Field(max_length=MAX_PARTS, fail_fast=True)]

    @property
    def blocks(self) -> list[AnyBlock]:
        """The content as blocks; a text is one block."""
        if isinstance(self.content, str):
            return [TextBlock(type="text", text=self.content)]
        return self.content

    @property
    def text(self) -> str:
        """The texts, each on lines of its own."""
        return "\n".join(block.text for block in self.blocks if isinstance(block, TextBlock))


class Tool(_Part):
    """A function that the model may call."""

    name: str
    description: str | None = None
    #: JSON Schema of the call's arguments: an object with one property for each argument
    input_schema: dict[str, Any]
    #: a call's arguments must match the schema
    strict: bool | None = None
    #: tools that the server itself would run are not supported
    type: Literal["custom"] | None = None


class ToolChoice(_Part):
    """Use of tools: optional (`auto`), forbidden (`none`), required (`any`), or the named tool (`tool`)."""

    type: Literal["auto", "none", "any", "tool"] = "auto"
    name: str | None = None
    disable_parallel_tool_use: bool = False


#: whether the answer shows the thinking, or only that there was some
Display = Literal["summarized", "omitted"]


class ThinkingEnabled(_Part):
    """The model thinks before it answers."""

    type: Literal["enabled"]
    budget_tokens: int
    display: Display | None = None


class ThinkingAdaptive(_Part):
    """The model thinks before it answers, without a budget."""

    type: Literal["adaptive"]
    display: Display | None = None


class ThinkingDisabled(_Part):
    """The model is not asked to think."""

    type: Literal["disabled"]


class OutputFormat(_Part):
    """The JSON Schema of an answer in text."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(_Part):
    """Options for the answer."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    format: OutputFormat | None = None
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None


class MessagesRequest(OpenBody):
    """The body of ``POST /api/v1/messages``."""

    model_config = ConfigDict(strict=True, frozen=True)
    refused: ClassVar = _REFUSED
    aliases: ClassVar = frozenset({"stop"})

    model: str
    messages: list[Message] = Field(max_length=MAX_MESSAGES, fail_fast=True)
    system: str | TextBlocks = ""
    max_tokens: int = DEFAULT_MAX_TOKENS
    stream: bool = False
    stop_sequences: list[str] = Field(
        default=[END_OF_ANSWER],
        validation_alias=AliasChoices("stop_sequences", "stop"),
        max_length=MAX_PARTS,  # the rules allow fewer, and have their own error
        fail_fast=True,
    )
    temperature: float = 1.0
    top_p: float = 0.5
    top_k: int = 128
    tools: list[Tool] = Field(default=[], max_length=MAX_PARTS, fail_fast=True)
    tool_choice: ToolChoice = ToolChoice()
    thinking: Annotated[
        ThinkingEnabled | ThinkingAdaptive | ThinkingDisabled, Field(discriminator="type")
    ] = ThinkingDisabled(type="disabled")
    output_config: OutputConfig = OutputConfig()
    metadata: Any = None
    #: a grammar in KBNF for the answer
    bnf_schema: str | None = None
    bnf_validation: Level | None = None
    #: where the structure is enforced: use the grammar of ai00 itself
    strict_seed_grammar: bool = False

    @field_validator("tool_choice", mode="before")
    @classmethod
    def _name_is_choice(cls, choice: Any) -> Any:
        return {"type": choice} if isinstance(choice, str) else choice

    @property
    def system_text(self) -> str:
        """The instructions to the model, as one text: also those of messages before the first turn."""
        system = [self.system] if isinstance(self.system, str) else [block.text for block in self.system]
        first = itertools.takewhile(lambda message: message.role == "system", self.messages)
        return "\n".join(filter(None, [*system, *(message.text for message in first)]))

    @property
    def thinks(self) -> bool:
        """Whether thinking is enabled."""
        return not isinstance(self.thinking, ThinkingDisabled)

    @property
    def hides_thinking(self) -> bool:
        """Whether the answer has blocks of thinking without their text."""
        return not isinstance(self.thinking, ThinkingDisabled) and self.thinking.display == "omitted"

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """The JSON Schema of an answer in text, if it has one."""
        form = self.output_config.format
        return None if form is None else form.schema_

    @property
    def callable_tools(self) -> list[Tool]:
        """The tools that the answer may call."""
        choice = self.tool_choice
        if choice.type == "none":
            return []
        return [tool for tool in self.tools if choice.type != "tool" or tool.name == choice.name]

    @property
    def must_call(self) -> bool:
        """Whether the answer must be a tool call, not a text."""
        return self.tool_choice.type in ("any", "tool")


def parse_request(body: Any) -> MessagesRequest:
    """Returns the request in a JSON body.

    Raises MessagesError if the body has another shape, or breaks a rule.
    """
    if not isinstance(body, dict):
        raise invalid("the body must be a JSON object")
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise invalid("the body contains half of a surrogate pair, which is not a character") from None
    try:
        request = MessagesRequest.model_validate(body)
    except ValidationError as error:
        raise from_validation(error, body) from None
    _check(request)
    return request


# -- rules beyond types --------------------------------------------------------------------------------------

#: names of tools; they are written into tags unchanged
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MAX_STOP_SEQUENCES = 8
#: most characters of a stop string, which is searched for with each token
MAX_STOP = 1024
MAX_TOOLS = 128
#: most characters of all tools' schemas in JSON: grammars grow with them, some quadratically
MAX_SCHEMAS = 128 << 10
MIN_THINKING_BUDGET = 1024


def _check(request: MessagesRequest) -> None:
    """Raises MessagesError for the first broken rule."""
    if not request.model:
        raise invalid("model is required", "model")
    if not request.messages:
        raise invalid("messages cannot be empty")
    turns = [(i, message) for i, message in enumerate(request.messages) if message.role != "system"]
    if not turns or turns[0][1].role != "user":
        raise invalid("first message must have role 'user'", f"messages.{turns[0][0] if turns else 0}.role")
    for i, message in enumerate(request.messages):
        if message.role == "system" and any(block.type != "text" for block in message.blocks):
            raise invalid("a message of the role system has texts alone", f"messages.{i}.content")
    _check_sampling(request)
    _check_thinking(request)
    _check_tools(request)
    _check_choice(request)
    _check_schemas(request)
    if request.bnf_schema is not None and not request.bnf_schema.strip():
        raise invalid("bnf_schema cannot be empty", "bnf_schema")


def _check_sampling(request: MessagesRequest) -> None:
    if request.max_tokens <= 0:
        raise invalid("max_tokens must be greater than 0", "max_tokens")
    if len(request.stop_sequences) > MAX_STOP_SEQUENCES:
        raise invalid(f"stop_sequences cannot have more than {MAX_STOP_SEQUENCES} items", "stop_sequences")
    for i, text in enumerate(request.stop_sequences):
        if not text:
            raise invalid("stop_sequences cannot contain empty strings", f"stop_sequences.{i}")
        if len(text) > MAX_STOP:
            raise invalid(f"a stop sequence has at most {MAX_STOP} characters", f"stop_sequences.{i}")
    if not 0 <= request.temperature <= 2:
        raise invalid("temperature must be between 0.0 and 2.0", "temperature")
    if not 0 <= request.top_p <= 1:
        raise invalid("top_p must be between 0.0 and 1.0", "top_p")
    if request.top_k <= 0:
        raise invalid("top_k must be greater than 0", "top_k")
    if request.top_k > MAX_TOP_K:
        raise invalid(f"top_k must be at most {MAX_TOP_K}", "top_k")


def _check_thinking(request: MessagesRequest) -> None:
    if request.thinking.type != "enabled":
        return
    if request.thinking.budget_tokens < MIN_THINKING_BUDGET:
        raise invalid(f"budget_tokens must be at least {MIN_THINKING_BUDGET}", "thinking.budget_tokens")
    if request.thinking.budget_tokens >= request.max_tokens:
        raise invalid("budget_tokens must be less than max_tokens", "thinking.budget_tokens")


def _check_tools(request: MessagesRequest) -> None:
    if len(request.tools) > MAX_TOOLS:
        raise invalid(f"there are {len(request.tools)} tools; at most {MAX_TOOLS} are allowed", "tools")
    size = sum(len(json.dumps(tool.input_schema)) for tool in request.tools)
    if size > MAX_SCHEMAS:
        raise invalid(
            f"the schemas of all tools have {size} characters; at most {MAX_SCHEMAS} are allowed", "tools"
        )
    seen: set[str] = set()
    for i, tool in enumerate(request.tools):
        if not TOOL_NAME.fullmatch(tool.name):
            raise invalid(
                f"the tool name {tool.name!r} is invalid: use 1 to 64 letters, digits, _ or -",
                f"tools.{i}.name",
            )
        if tool.name in seen:
            raise invalid(f"two tools have the name {tool.name}", f"tools.{i}.name")
        seen.add(tool.name)
        kinds = tool.input_schema.get("type", "object")
        if kinds != "object" and not (isinstance(kinds, list) and "object" in kinds):
            raise invalid(
                f"the arguments of {tool.name} must be an object, not {kinds}", f"tools.{i}.input_schema.type"
            )


def _check_schemas(request: MessagesRequest) -> None:
    """Checks that fields that need a level of checks have it."""
    needs = [f"tools.{i}.strict" for i, tool in enumerate(request.tools) if tool.strict]
    if request.output_schema is not None:
        needs.append("output_config.format")
    if needs and request.bnf_validation not in (None, "schema_aware"):
        raise invalid(f'{needs[0]} needs bnf_validation "schema_aware"', needs[0])
    if needs and request.bnf_schema is not None:
        raise invalid(f"{needs[0]} cannot be combined with bnf_schema: remove one of them", needs[0])
    if not request.strict_seed_grammar:
        return
    if request.bnf_validation != "structural":
        raise invalid('strict_seed_grammar needs bnf_validation "structural"', "strict_seed_grammar")
    if request.tool_choice.type != "auto" or request.tool_choice.disable_parallel_tool_use:
        raise invalid("the grammar of strict_seed_grammar always allows calls, and several", "tool_choice")


def _check_choice(request: MessagesRequest) -> None:
    choice = request.tool_choice
    if choice.type == "tool" and choice.name is None:
        raise invalid('tool_choice of type "tool" needs the name of a tool', "tool_choice.name")
    if not request.must_call:
        return
    if not request.tools:
        raise invalid("tool_choice requires a call, but there are no tools", "tool_choice")
    if not request.callable_tools:
        raise invalid(f"tool_choice names {choice.name}, which is not one of the tools", "tool_choice.name")
    if request.bnf_validation == "none":
        raise invalid(
            'a call can be enforced only with bnf_validation "structural" or "schema_aware"', "tool_choice"
        )
    if request.bnf_validation is None and request.bnf_schema is not None:
        raise invalid("a call cannot be enforced together with bnf_schema: remove one of them", "tool_choice")


Kind = Literal[
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "not_found_error",
    "rate_limit_error",
    "api_error",
    "overloaded_error",
]

#: the HTTP status that goes with each kind
STATUS: Mapping[Kind, int] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "rate_limit_error": 429,
    "api_error": 500,
    "overloaded_error": 503,
}


class MessagesError(Exception):
    """An answer that is an error. `param`: path of the field in the request, such as ``messages.0.role``."""

    def __init__(self, kind: Kind, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.param = param

    @property
    def status(self) -> int:
        """The HTTP status of the answer."""
        return STATUS[self.kind]

    def body(self) -> dict[str, Any]:
        """Returns the JSON body of the answer."""
        error = {"type": self.kind, "message": self.message}
        if self.param is not None:
            error["param"] = self.param
        return {"type": "error", "error": error}


def invalid(message: str, param: str | None = None) -> MessagesError:
    """Returns the error for an invalid request."""
    return MessagesError("invalid_request_error", message, param)


def from_validation(error: ValidationError, body: Any) -> MessagesError:
    """Returns the error for an invalid body: the first of the innermost problems.

    A field that may have one of several types yields a problem for each type. The innermost problem belongs
    to the type that the client intended.
    """
    problems = [(_path(body, problem["loc"]), problem) for problem in error.errors()]
    path, problem = max(problems, key=lambda found: len(found[0]))
    path += [problem["ctx"]["param"]] if problem["type"] == "field" else []
    param = ".".join(str(step) for step in path) or None
    if problem["type"] == "missing":
        return invalid(f"{param} is required", param)
    return invalid(f"{param or 'the body'}: {problem['msg']}", param)


def _path(body: Any, location: tuple[int | str, ...]) -> list[int | str]:
    """Returns the steps of pydantic's location that exist in the body; others name alternatives of a type."""
    path: list[int | str] = []
    for i, step in enumerate(location):
        is_key = isinstance(body, Mapping) and step in body
        is_index = isinstance(body, list) and isinstance(step, int) and step < len(body)
        if is_key or is_index:
            body = body[step]
            path.append(step)
        elif isinstance(body, Mapping) and i == len(location) - 1:
            path.append(step)  # the missing field
    return path
