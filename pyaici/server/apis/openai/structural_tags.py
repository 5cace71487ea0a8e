"""Structural tags, as vLLM and xgrammar define them: texts with parts that follow formats."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from pyaici.server.answers.grammar import model_ends, with_reasoning
from pyaici.server.answers.kbnf import ANY_TEXT, json_of, one_of, quoted, until, without
from pyaici.server.answers.plan import Start
from pyaici.server.apis.fields import StrictBody
from pyaici.server.http.errors import bad_request

#: most nested formats, and most parts of one
_MAX_DEPTH, _MAX_PARTS = 32, 256
#: excludes where only their absence, the default, is supported
_None = Annotated[list[str], Field(max_length=0)]


class _Format(StrictBody):
    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)


class ConstString(_Format):
    """A fixed text."""

    type: Literal["const_string"]
    value: str


class JsonSchema(_Format):
    """JSON that matches a schema."""

    type: Literal["json_schema"]
    json_schema: dict[str, Any] | bool
    style: Literal["json"] = "json"
    any_order: Literal[False] = False
    max_whitespace_cnt: None = None
    excludes: _None = Field(default_factory=list)


class Regex(_Format):
    """A text that matches a regular expression."""

    type: Literal["regex"]
    pattern: str


class AnyText(_Format):
    """Any text."""

    type: Literal["any_text"]
    max_tokens: None = None
    max_chars: None = None
    excludes: Annotated[list[str], Field(max_length=_MAX_PARTS)] = Field(default_factory=list)


class Elements(_Format):
    """Formats one after another (`sequence`), or one of several (`or`)."""

    type: Literal["sequence", "or"]
    elements: Annotated[list[Format], Field(min_length=1, max_length=_MAX_PARTS)]


class Tag(_Format):
    """A content between two marks."""

    type: Literal["tag"] = "tag"
    begin: str
    content: Format
    end: str | Annotated[list[str], Field(min_length=1, max_length=_MAX_PARTS)]

    @property
    def ends(self) -> list[str]:
        """The texts that may end the tag."""
        return [self.end] if isinstance(self.end, str) else self.end


class TriggeredTags(_Format):
    """Any text in which a trigger begins one of the tags."""

    type: Literal["triggered_tags"]
    triggers: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=_MAX_PARTS)]
    tags: Annotated[list[Tag], Field(min_length=1, max_length=_MAX_PARTS)]
    at_least_one: bool = False
    stop_after_first: bool = False
    excludes: _None = Field(default_factory=list)


class SeparatedTags(_Format):
    """Tags with a text between them."""

    type: Literal["tags_with_separator"]
    tags: Annotated[list[Tag], Field(min_length=1, max_length=_MAX_PARTS)]
    separator: str
    at_least_one: bool = False
    stop_after_first: bool = False


Format = Annotated[
    ConstString | JsonSchema | Regex | AnyText | Elements | Tag | TriggeredTags | SeparatedTags,
    Field(discriminator="type"),
]


class Structure(_Format):
    """A tag of the older form, with JSON in it."""

    begin: str
    schema_: dict[str, Any] | bool = Field(alias="schema")
    end: str


class StructuralTag(_Format):
    """A format, or in the older form `structures` and `triggers`."""

    type: Literal["structural_tag"] = "structural_tag"
    format: Format | None = None
    structures: Annotated[list[Structure], Field(min_length=1, max_length=_MAX_PARTS)] | None = None
    triggers: Annotated[list[str], Field(min_length=1, max_length=_MAX_PARTS)] | None = None
    at_least_one: bool = False


for _model in (Elements, Tag, TriggeredTags, SeparatedTags, StructuralTag):
    _model.model_rebuild()


def structural_tag_grammar(tag: StructuralTag, start: Start, param: str) -> str:
    """Returns the argument of the controller `kbnf` for texts with these tags.

    `param`: the request's field, for errors.

    Raises ApiError for formats whose end cannot be found in the text.
    """
    writer = _Writer(param)
    if (tag.format is None) == (tag.structures is None):
        raise bad_request(f"{param} needs either format or structures", param)
    if tag.format is not None:
        answer = writer.format(tag.format, last=True)
    else:
        tags = [
            Tag(begin=one.begin, content=JsonSchema(type="json_schema", json_schema=one.schema_), end=one.end)
            for one in tag.structures or ()
        ]
        older = TriggeredTags(
            type="triggered_tags", triggers=tag.triggers or [], tags=tags, at_least_one=tag.at_least_one
        )
        answer = writer.format(older, last=True)
    return model_ends(with_reasoning(start, answer or "''", writer.rules))


class _Writer:
    """Writes expressions of KBNF, and the rules that these need."""

    def __init__(self, param: str) -> None:
        self._param = param
        self._depth = 0
        self.rules: list[str] = []

    def format(self, form: Any, *, last: bool) -> str:
        """Returns the expression of a format. `last`: nothing follows it in the answer."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise bad_request(f"{self._param} is nested too deeply", self._param)
        expression: str = getattr(self, f"_{form.type}")(form, last)
        self._depth -= 1
        return expression

    def _const_string(self, form: ConstString, last: bool) -> str:
        return quoted(form.value)

    def _json_schema(self, form: JsonSchema, last: bool) -> str:
        return self._rule("json", json_of(form.json_schema))

    def _regex(self, form: Regex, last: bool) -> str:
        return self._rule("pattern", "#" + quoted(form.pattern))

    def _any_text(self, form: AnyText, last: bool) -> str:
        if not last:
            raise self._refused("any_text", "it must be the content of a tag, or the last part of the answer")
        return f"({without(form.excludes)})?" if form.excludes else ANY_TEXT

    def _sequence(self, form: Elements, last: bool) -> str:
        final = len(form.elements) - 1
        parts = [self.format(part, last=last and i == final) for i, part in enumerate(form.elements)]
        return " ".join(parts)

    def _or(self, form: Elements, last: bool) -> str:
        return one_of([self.format(part, last=last) for part in form.elements])

    def _tag(self, form: Tag, last: bool, after: str = "") -> str:
        """Returns the expression of a tag, or of what follows `after`, with which the tag begins."""
        begin = quoted(form.begin.removeprefix(after))
        if isinstance(form.content, AnyText):
            if not all(form.ends):
                return f"{begin} {self.format(form.content, last=last)}"
            if form.content.excludes:
                raise self._refused("any_text", "excludes cannot be used in a tag")
            return f"{begin} {until(*form.ends)}"
        return f"{begin} {self.format(form.content, last=False)} {one_of(map(quoted, form.ends))}"

    def _triggered_tags(self, form: TriggeredTags, last: bool) -> str:
        if not last:
            raise self._refused(form.type, "nothing can follow it")
        for tag in form.tags:
            if sum(tag.begin.startswith(trigger) for trigger in form.triggers) != 1:
                raise self._refused(form.type, f"{tag.begin!r} must begin with exactly one of the triggers")
        parts, rest = [], f"({without(form.triggers)})?"
        for trigger in form.triggers:
            tags = [tag for tag in form.tags if tag.begin.startswith(trigger)]
            if tags:
                inner = one_of([self._tag(tag, last=False, after=trigger) for tag in tags])
                parts.append(f"{rest} {quoted(trigger)} {inner}")
        first = one_of([self._tag(tag, last=False) for tag in form.tags]) if form.at_least_one else ""
        if form.stop_after_first:
            return first or f"({one_of(parts)} | {rest})"
        return f"{first} {one_of(parts)}* {rest}"

    def _tags_with_separator(self, form: SeparatedTags, last: bool) -> str:
        # a rule, since it may be written twice, and have such tags in it
        tags = self._rule("tags", one_of([self._tag(tag, last=False) for tag in form.tags]))
        between = quoted(form.separator) if form.separator else ""
        several = tags if form.stop_after_first else f"{tags} ({between} {tags})*"
        return several if form.at_least_one else f"({several})?"

    def _rule(self, name: str, expression: str) -> str:
        """Adds a rule, and returns its name."""
        numbered = f"{name}_{len(self.rules)}"
        self.rules.append(f"{numbered} ::= {expression};")
        return numbered

    def _refused(self, kind: str, reason: str) -> Exception:
        return bad_request(f"{self._param}: {kind} is not supported here: {reason}", self._param)
