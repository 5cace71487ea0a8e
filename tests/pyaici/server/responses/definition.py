"""Checks responses and events against the definition of Open Responses, and against OpenAI's own types."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any

import openai.types.responses as official
from pydantic import BaseModel, TypeAdapter

from lab.system.fetch import pypi_unpacked

#: the version that is implemented
VERSION = "2026-04-24"
#: OpenAI's names for two events of reasoning differ
_OTHER_NAMES = ("response.reasoning.delta", "response.reasoning.done")
_OFFICIAL_EVENT: TypeAdapter[Any] = TypeAdapter(official.ResponseStreamEvent)
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


def check_response(response: Any) -> None:
    """Raises ValidationError for a response that is not as defined, or not as OpenAI's client has it."""
    _definition().ResponseResource.model_validate_json(json.dumps(response), strict=True)
    if response["error"]:  # the code is a text, and in OpenAI's client one of its own
        response = {**response, "error": {**response["error"], "code": "server_error"}}
    form = response["text"]["format"]
    if form["type"] == "json_schema":  # the definition says null, and OpenAI's client an object
        response = {**response, "text": {"format": {**form, "schema": {}}}}
    official.Response.model_validate(response)


def check_events(events: Iterable[dict[str, Any]]) -> list[str]:
    """Checks each event, their numbers, and the order of each item's events; returns their types.

    Raises AssertionError or ValidationError.
    """
    types: list[str] = []
    done: list[Any] = []
    opened: dict[str, Any] | None = None
    text = ""
    for number, event in enumerate(events):
        kind = event["type"]
        _events()[kind].model_validate_json(json.dumps(event), strict=True)
        if kind not in _OTHER_NAMES and kind != "error" and "response" not in event:
            _OFFICIAL_EVENT.validate_python(event)
        assert event["sequence_number"] == number
        types.append(kind)
        if "response" in event:
            check_response(event["response"])
        if kind == "response.output_item.added":
            assert opened is None and event["output_index"] == len(done)
            opened, text = event["item"], ""
            assert opened["status"] == "in_progress"
        elif "item_id" in event:
            assert opened and event["item_id"] == opened["id"] and event["output_index"] == len(done)
            if kind.endswith(".delta"):
                text = text[: len(text) - event.get("retracted", 0)] + event["delta"]
            elif kind.endswith("_part.done"):
                assert event["part"]["text"] == text
            elif kind.endswith(".done"):
                assert event.get("text", event.get("arguments")) == text
        elif kind == "response.output_item.done":
            assert opened and event["item"]["id"] == opened["id"]
            opened = None
            done.append(event["item"])
    assert types[:2] == ["response.created", "response.in_progress"] and types[-1] in _ENDS
    assert opened is None and event["response"]["output"] == done
    return types
