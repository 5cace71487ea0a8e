"""Results of MCP tools as values for controllers, and checks of arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mcp_types as types
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

from pyaici.client.calls import CallError


def value_of(result: types.CallToolResult) -> Any:
    """Returns the structured content, or else the texts: one as a string, others as a list.

    Raises CallError if the tool reports an error.
    """
    texts = [_text(block) for block in result.content]
    if result.is_error:
        raise CallError("tool", "\n".join(texts) or "the tool reports an error")
    if result.structured_content is not None:
        return result.structured_content
    return texts[0] if len(texts) == 1 else texts


def _text(block: types.ContentBlock) -> str:
    """Returns a text, or what other content is, without its data."""
    if isinstance(block, types.TextContent):
        return block.text
    if isinstance(block, types.ImageContent | types.AudioContent):
        return f"[{block.type}: {block.mime_type}]"
    if isinstance(block, types.EmbeddedResource):
        resource = block.resource
        if isinstance(resource, types.TextResourceContents):
            return resource.text
        return f"[resource: {resource.mime_type or 'data'}, {resource.uri}]"
    return f"[link: {block.uri}]"


def _unchecked(*_: Any) -> Iterator[ValidationError]:
    """Leaves a keyword to the server: a stranger's text could make its check take forever."""
    return iter(())


def _additional(validator: Any, extras: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if "patternProperties" not in schema:
        yield from Draft202012Validator.VALIDATORS["additionalProperties"](
            validator, extras, instance, schema
        )


_Checker = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    {
        "additionalProperties": _additional,
        **dict.fromkeys(("pattern", "patternProperties", "unevaluatedProperties", "uniqueItems"), _unchecked),
    },
)


def check_arguments(arguments: Any, schema: Any) -> dict[str, Any]:
    """Returns the arguments of a tool. Raises CallError if they do not match its schema."""
    if not isinstance(arguments, dict):
        raise CallError("arguments", "the arguments of a tool are an object")
    try:
        # with a registry of its own, it fetches no schemas
        error = best_match(_Checker(schema, registry=Registry()).iter_errors(arguments))
    except (Unresolvable, SchemaError, RecursionError, TypeError, ValueError):
        return arguments  # the schema is at fault: the server decides
    if error is not None:
        raise CallError("arguments", f"{error.json_path}: {error.message}")
    return arguments
