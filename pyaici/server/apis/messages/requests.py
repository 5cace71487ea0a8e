"""The request of the messages API: its fields, with their types and defaults."""

from __future__ import annotations

import itertools
import json
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
)

from pyaici.server.apis.fields import MAX_MESSAGES, MAX_PARTS, OTHER_SAMPLING, OpenBody, Refused
from pyaici.server.apis.messages.errors import from_validation, invalid
from pyaici.server.apis.messages.rules import check
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
        max_length=MAX_PARTS,  # `rules` allows fewer, and has its own error
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

    Raises MessagesError if the body has another shape, or breaks a rule of `rules.check`.
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
    check(request)
    return request
