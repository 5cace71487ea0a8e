"""Requests that tests send."""

from __future__ import annotations

from typing import Any

from pyaici.server.apis.messages import MessagesRequest, parse_request

#: the example in ai00's description of the format, unchanged
EXAMPLE = """
{
  "model": "rwkv-world",
  "messages": [
    {"role": "user", "content": "What's the weather in Tokyo?"}
  ],
  "tools": [
    {
      "name": "get_weather",
      "description": "Get weather for a location",
      "input_schema": {
        "type": "object",
        "properties": {
          "location": {"type": "string"}
        },
        "required": ["location"]
      }
    }
  ],
  "bnf_validation": "structural",
  "stop": ["</ai00:assistant>"]
}
"""

QUESTION = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
THINKING = {"max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 1024}}
#: fields that ask for the grammar of ai00 itself
SEED = {"bnf_validation": "structural", "strict_seed_grammar": True}


def tool(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "description": f"What {name} does", "input_schema": schema}


def strings(*names: str, required: list[str] | None = None) -> dict[str, Any]:
    """Returns a schema of strings with these names; all are required by default."""
    properties = {name: {"type": "string"} for name in names}
    return {
        "type": "object",
        "properties": properties,
        "required": list(names) if required is None else required,
    }


#: the tools that the texts in ai00's description of the format call
TOOLS = [tool("get_weather", strings("location", "city", required=[])), tool("web_search", strings("query"))]


def request(**fields: Any) -> MessagesRequest:
    return parse_request({**QUESTION, **fields})


def call(name: str, *arguments: tuple[str, str]) -> str:
    """Returns a call as the model writes it."""
    parameters = "".join(f'    <parameter name="{key}">{value}</parameter>\n' for key, value in arguments)
    return f'  <invoke name="{name}">\n{parameters}  </invoke>\n'


def calls(*all: str) -> str:
    return f"<ai00:function_calls>\n{''.join(all)}</ai00:function_calls>"
