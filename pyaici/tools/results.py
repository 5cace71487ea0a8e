"""Results of MCP tools as values for controllers, and checks of arguments and results."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import attrs
import mcp_types as types
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.validators import extend
from referencing import Registry

from pyaici.client.calls import CallError

#: CPU time of one check, in seconds. A few references that double each other would take years
_CHECK_SECONDS = 0.25
#: keywords that are left to the server: one check takes forever, or the square of the value's size
_UNCHECKED = ("pattern", "patternProperties", "unevaluatedItems", "unevaluatedProperties", "uniqueItems")


def value_of(result: types.CallToolResult) -> Any:
    """Returns the structured content, or else the texts: one as a string, others as a list.

    Raises CallError if the tool reports an error.
    """
    texts = [_block_text(block) for block in result.content]
    if result.is_error:
        raise CallError("tool", "\n".join(texts) or "the tool reports an error")
    if result.structured_content is not None:
        return result.structured_content
    return texts[0] if len(texts) == 1 else texts


def _block_text(block: types.ContentBlock) -> str:
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


# -- checks ---------------------------------------------------------------------------------------


class _Clock(threading.local):
    """The CPU time of this thread at which its check has to end."""

    end = 0.0


_clock = _Clock()


def _bounded(keyword: Any) -> Any:
    """Returns the check of a keyword with an end. Raises TimeoutError after it."""

    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        if time.thread_time() > _clock.end:
            raise TimeoutError
        return keyword(validator, value, instance, schema)

    return check


def _additional(validator: Any, extras: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if "patternProperties" not in schema:
        yield from Draft202012Validator.VALIDATORS["additionalProperties"](
            validator, extras, instance, schema
        )


_KEYWORDS = Draft202012Validator.VALIDATORS | {
    "additionalProperties": _additional,
    **dict.fromkeys(_UNCHECKED, lambda *_: iter(())),
}
_Checker = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator, {name: _bounded(keyword) for name, keyword in _KEYWORDS.items()}
)
# its own takes the validator that a part names in "$schema", whose keywords are not ours
_Checker.evolve = attrs.evolve


def mismatch(value: Any, schema: Any) -> str:
    """Returns where a value does not match a schema, and why; "" if it does, or if the schema is at fault.

    Some keywords are left to the server. A check that takes too long ends without a result. Call it in a
    thread of its own: it may take a quarter of a second.
    """
    _clock.end = time.thread_time() + _CHECK_SECONDS
    try:
        # with a registry of its own, it fetches no schemas
        error = best_match(_Checker(schema, registry=Registry()).iter_errors(value))
    except Exception:  # whatever a malformed schema leads to: the server decides
        return ""
    return "" if error is None else f"{error.json_path}: {error.message}"
