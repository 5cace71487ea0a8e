"""Checks responses and events against the definition of Open Responses, and against OpenAI's own types.

The definition has no tools of MCP servers: OpenAI's types alone check their items and events.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any

from pydantic import BaseModel, TypeAdapter

from lab.system.fetch import pypi_unpacked

#: the version that is implemented
VERSION = "2026-04-24"
#: OpenAI's names for two events of reasoning differ
_OTHER_NAMES = ("response.reasoning.delta", "response.reasoning.done")
_ENDS = ("response.completed", "response.incomplete", "response.failed")


@cache
def _definition() -> Any:
    """Returns the module of models that are generated from the definition."""
    folder = pypi_unpacked("openresponses-types") / "openresponses_types"
    spec = importlib.util.spec_from_file_location("openresponses_types", folder / "__init__.py")
    assert spec and spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.__spec_version__ == VERSION
    return module


@cache
def _events() -> dict[str, type[BaseModel]]:
    """Returns the models of all events by type."""
    models = [model for name, model in vars(_definition()).items() if name.endswith("StreamingEvent")]
    found = {next(iter(model.model_fields["type"].annotation)).value: model for model in models}
    assert len(found) == len(models) == 24
    return found


@cache
def _official_event() -> TypeAdapter[Any]:
    """Returns what checks an event by the types of OpenAI's client, which take a second to import."""
    import openai.types.responses as official

    return TypeAdapter(official.ResponseStreamEvent)


def check_response(response: Any) -> None:
    """Raises ValidationError for a response that is not as defined, or not as OpenAI's client has it."""
    _definition().ResponseResource.model_validate_json(json.dumps(_defined(response)), strict=True)
    if response["error"]:  # the code is a text, and in OpenAI's client one of its own
        response = {**response, "error": {**response["error"], "code": "server_error"}}
    form = response["text"]["format"]
    if form["type"] == "json_schema":  # the definition says null, and OpenAI's client an object
        response = {**response, "text": {"format": {**form, "schema": {}}}}
    import openai.types.responses as official

    official.Response.model_validate(response)


def _defined(response: Any) -> Any:
    """Returns a response without tools of MCP servers and their items."""
    tools = [tool for tool in response["tools"] if tool["type"] != "mcp"]
    output = [item for item in response["output"] if not item["type"].startswith("mcp_")]
    choice = response["tool_choice"]
    choice = "required" if isinstance(choice, dict) and choice["type"] == "mcp" else choice
    return {**response, "tools": tools, "output": output, "tool_choice": choice}


def check_events(events: Iterable[dict[str, Any]]) -> list[str]:
    """Checks each event, their numbers, and the order of each item's events; returns their types.

    Raises AssertionError or ValidationError.
    """
    types: list[str] = []
    done: dict[int, Any] = {}
    #: by their places, of which only the last can be another item than a call of a tool of an MCP server
    opened: dict[int, Any] = {}
    text = ""
    for number, event in enumerate(events):
        kind = event["type"]
        place = event.get("output_index", -1)
        mcp = "mcp" in kind or event.get("item", {}).get("type", "").startswith("mcp_")
        if not mcp:
            defined = {**event, "response": _defined(event["response"])} if "response" in event else event
            _events()[kind].model_validate_json(json.dumps(defined), strict=True)
        if kind not in _OTHER_NAMES and kind != "error" and "response" not in event:
            _official_event().validate_python(event)
        assert event["sequence_number"] == number
        types.append(kind)
        if "response" in event:
            check_response(event["response"])
        if kind == "response.output_item.added":
            assert place == len(done) + len(opened)
            assert all(item["type"] == "mcp_call" for item in opened.values())
            opened[place], text = event["item"], ""
            assert event["item"].get("status", "in_progress") == "in_progress"
        elif "item_id" in event:
            assert event["item_id"] == opened[place]["id"]
            if kind.endswith(".delta"):
                text = text[: len(text) - event.get("backtrack", 0)] + event["delta"]
            elif kind.endswith("_part.done"):
                assert event["part"]["text"] == text
            elif kind.endswith(".done"):
                assert event.get("text", event.get("arguments")) == text
        elif kind == "response.output_item.done":
            assert event["item"]["id"] == opened.pop(place)["id"]
            done[place] = event["item"]
    assert types[:2] == ["response.created", "response.in_progress"] and types[-1] in _ENDS
    assert not opened and event["response"]["output"] == [done[place] for place in sorted(done)]
    return types
