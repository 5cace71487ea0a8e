"""A tool call: the model chooses the tool and its arguments, the script computes, the model goes on.

Prompt: Add 23 and 19.
"""

import json

from aici import fixed, gen, options, schema, set_var

TOOLS = {
    "add": lambda a, b: a + b,
    "multiply": lambda a, b: a * b,
}
TOOL = options([f" {name}" for name in TOOLS])
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
    await fixed(f"Tools: {', '.join(TOOLS)}\nTool:")
    tool = (await gen(TOOL)).strip()
    await fixed("\nArguments:\n")
    values = json.loads(await gen(ARGUMENTS, max_tokens=24))
    # This happens between two tokens, inside of the sandbox. A tool that needs a network is run by the
    # caller, who reads the call in a variable and sends the result along with the next request.
    result = TOOLS[tool](values["a"], values["b"])
    set_var("call", json.dumps({"tool": tool, "arguments": values, "result": result}))
    await fixed(f"\nResult: {result}\nSo the answer is {result}")
    await gen(regex=r"[^\n.]{0,30}\.", max_tokens=8)
