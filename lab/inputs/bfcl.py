"""Conversations with tools of the Berkeley Function-Calling Leaderboard (v4), from its package on PyPI.

Each has questions, the calls that answer them, and tools with a state: a file system, a car, a broker. The
tools run here; those that need further packages are left out.
"""

from __future__ import annotations

import ast
import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lab.system.fetch import pypi_unpacked

#: by class: its module among the tools, and the file of its descriptions
_TOOLS = {
    "GorillaFileSystem": "gorilla_file_system",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}
_MODULES = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"


@dataclass(frozen=True, slots=True)
class Conversation:
    """Questions of a user, and the calls with which an agent answers each."""

    name: str
    #: the tools: a line for each, with its name, parameters and purpose
    tools: str
    #: of each turn: the question, and calls as Python writes them
    turns: list[tuple[str, list[str]]]
    _state: dict[str, Any]

    def start(self) -> Callable[[str], str]:
        """Returns a function that carries out a call, on tools in the state of the beginning."""
        tools = [_tool(name, state) for name, state in self._state.items()]

        def call(expression: str) -> str:
            parsed = ast.parse(expression, mode="eval").body
            assert isinstance(parsed, ast.Call) and isinstance(parsed.func, ast.Name)
            args = [ast.literal_eval(value) for value in parsed.args]
            named = {str(entry.arg): ast.literal_eval(entry.value) for entry in parsed.keywords}
            tool = next(tool for tool in tools if hasattr(tool, parsed.func.id))
            return json.dumps(getattr(tool, parsed.func.id)(*args, **named), default=str)

        return call


def conversations(count: int) -> list[Conversation]:
    """Returns the first so many conversations with different sets of tools."""
    data = pypi_unpacked("bfcl-eval") / "bfcl_eval" / "data"
    name = "BFCL_v4_multi_turn_base.json"
    cases = [json.loads(line) for line in (data / name).read_text().splitlines()]
    answers = [json.loads(line) for line in (data / "possible_answer" / name).read_text().splitlines()]
    found: list[Conversation] = []
    seen: set[tuple[str, ...]] = set()
    for case, answer in zip(cases, answers, strict=True):
        assert case["id"] == answer["id"]
        names = tuple(case["involved_classes"])
        if names in seen or not all(name in _TOOLS for name in names):
            continue
        seen.add(names)
        files = [data / "multi_turn_func_doc" / f"{_TOOLS[name]}.json" for name in names]
        described = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        turns = zip(case["question"], answer["ground_truth"], strict=True)
        found.append(
            Conversation(
                case["id"],
                "".join(_line(function) for function in described),
                [(messages[-1]["content"], calls) for messages, calls in turns if calls],
                {name: case["initial_config"].get(name, {}) for name in names},
            )
        )
        if len(found) == count:
            break
    return found


def _line(function: dict[str, Any]) -> str:
    parameters = ", ".join(function["parameters"]["properties"])
    purpose = function["description"].rpartition("Tool description: ")[2].partition(". ")[0]
    return f"{function['name']}({parameters}): {purpose}\n"


def _tool(name: str, state: dict[str, Any]) -> Any:
    """Returns a tool in this state."""
    folder = str(pypi_unpacked("bfcl-eval"))
    if folder not in sys.path:
        sys.path.append(folder)
    tool = getattr(importlib.import_module(f"{_MODULES}.{_TOOLS[name]}"), name)()
    tool._load_scenario(state)
    return tool
