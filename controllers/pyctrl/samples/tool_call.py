"""A tool call: the model chooses a tool and its arguments, the script computes, the model continues.

Prompt: Add 23 and 19.
"""

import json

from aici import choice, force, gen, schema, set_var

TOOLS = {
    "add": lambda a, b: a + b,
    "multiply": lambda a, b: a * b,
}
TOOL = choice([f" {name}" for name in TOOLS])
NUMBER = {"type": "integer", "minimum": 0, "maximum": 999}
ARGUMENTS = schema(
    {
        "type": "object",
        "properties": {"a": NUMBER, "b": NUMBER},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    whitespace="compact",
)


async def main():
    await force(f"Tools: {', '.join(TOOLS)}\nTool:")
    tool = (await gen(TOOL)).strip()
    await force("\nArguments:\n")
    values = json.loads(await gen(ARGUMENTS, max_tokens=24))
    # This runs between two tokens, inside the sandbox. If a tool needs the network, the caller runs it: it
    # reads the call from a variable and sends the result with the next request.
    result = TOOLS[tool](values["a"], values["b"])
    set_var("call", json.dumps({"tool": tool, "arguments": values, "result": result}))
    await force(f"\nResult: {result}\nSo the answer is {result}")
    await gen(regex=r"[^\n.]{0,30}\.", max_tokens=8)
