"""An MCP server for tests that speaks the protocol by hand, and breaks it: `python rogue.py`."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

OBJECT: dict[str, Any] = {"type": "object"}
#: takes longer than the universe has existed, for texts such as "aaaa...!"
PATTERN = "^(a+)+$"
OTHER_DRAFT = {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": PATTERN}
#: each part is checked twice for each time that the part before it is
DOUBLING = {f"d{number}": {"allOf": [{"$ref": f"#/$defs/d{number + 1}"}] * 2} for number in range(60)}
SCHEMAS: dict[str, Any] = {
    "echo": OBJECT,
    "drafts": OBJECT | {"properties": {"a": OTHER_DRAFT}},
    "doubling": OBJECT | {"$ref": "#/$defs/d0", "$defs": DOUBLING | {"d60": OBJECT}},
    "huge": OBJECT | {"properties": {"a": {"maximum": 10**30}}},
    "odd": OBJECT | {"properties": {"a": {"minimum": float("nan")}}},
    "malformed": OBJECT | {"properties": {"a": {"type": "strange"}}},
    "pattern": OBJECT,
    "mismatch": OBJECT,
    "broken": OBJECT,
    "asks": OBJECT,
}
RESULTS = {"pattern": {"properties": {"a": {"pattern": PATTERN}}}, "mismatch": {"required": ["b"]}}


def say(message: Any) -> None:
    text = message if isinstance(message, str) else json.dumps({"jsonrpc": "2.0", **message})
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def call(number: int, name: str, arguments: Any) -> None:
    """Answers a call."""
    if name == "broken":
        text = {"content": [{"type": "text", "text": "HALF"}]}
        answer = json.dumps({"jsonrpc": "2.0", "id": number, "result": text})
        say(answer.replace("HALF", "\\ud800"))
    elif name == "asks":  # without reading an answer
        for asked in range(5000):
            say({"id": asked, "method": "ping"})
        time.sleep(3600)
    elif name in RESULTS:
        say({"id": number, "result": {"content": [], "structuredContent": {"a": "a" * 60 + "!"}}})
    else:
        content = [{"type": "text", "text": json.dumps(arguments)}]
        say({"id": number, "result": {"content": content}})


def main() -> None:
    tools = [
        {
            "name": name,
            "inputSchema": schema,
            **({"outputSchema": OBJECT | RESULTS[name]} if name in RESULTS else {}),
        }
        for name, schema in SCHEMAS.items()
    ]
    about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "rogue", "version": "1"}}
    for line in sys.stdin:
        message = json.loads(line)
        number, method, params = message.get("id"), message.get("method"), message.get("params", {})
        if method == "initialize":
            say({"id": number, "result": {"protocolVersion": "2025-06-18", **about}})
        elif method == "tools/list":
            say({"id": number, "result": {"tools": tools}})
        elif method == "tools/call":
            call(number, params["name"], params.get("arguments"))
        elif number is not None:
            say({"id": number, "error": {"code": -32601, "message": "unknown"}})


if __name__ == "__main__":
    main()
