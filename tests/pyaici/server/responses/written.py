"""Tools that the server calls in a request, whatever the model: a script writes the calls in its place."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pyaici.server.apis.mcp import SCRIPT
from tests.pyaici.server.responses.definition import check_events
from tests.pyaici.server.serving import Serving

#: takes the place of the model in our script, and prints what came before the last answer
_WRITTEN = """
from aici import force, next_step, text

class Answer:
    finish_reason, tokens = "eos", []

async def write():
    if len(answers) == 1:
        print(text())
    await force(answers.pop(0))
    await next_step()
    return Answer

answers = """
_GENERATED = "generate(grammar, max_tokens=tokens_left, leave=False, logprobs=False)"


def asked_to_add(*rounds: Sequence[int]) -> dict[str, Any]:
    """Returns the fields of a request with an answer that adds 1 to each number, for each round, and a text.

    The calculator is the MCP server `calc`, and the chat template the default model's.
    """
    source = SCRIPT.read_text()
    assert _GENERATED in source
    answers = []
    for numbers in rounds:
        calls = [{"name": "add", "arguments": {"a": number, "b": 1}} for number in numbers]
        answers.append(f"<tool_call>{json.dumps(calls)}</tool_call>")
    written = f"{_WRITTEN}{[*answers, 'Done.']!r}\n\ntry:\n"
    source = source.replace(_GENERATED, "write()").replace("try:\n", written, 1)
    return {
        "tools": [{"type": "mcp", "server_label": "calc", "allowed_tools": ["add"]}],
        "script": {"language": "python", "source": source},
    }


def check_written_calls(serving: Serving) -> None:
    """Checks that calls of one answer are made together, up to the limit, in a response and in a chat.

    `serving`: with the default model's chat template, and the calculator as the MCP server `calc`.
    """
    asked = {**asked_to_add([1, 2, 3]), "max_tool_calls": 2}
    events = serving.events("/v1/responses", input="Add.", stream=True, **asked)
    assert check_events(events).count("response.mcp_call.completed") == 2
    response = events[-1]["response"]
    kinds = [item["type"] for item in response["output"]]
    assert kinds == ["mcp_list_tools", "mcp_call", "mcp_call", "message"]
    _, *calls, message = response["output"]
    assert [json.loads(call["output"])["result"] for call in calls] == [2, 3]
    assert message["content"][0]["text"] == "Done."
    for told in ('{"result": 2}', '{"result": 3}', "error: no more calls are allowed"):
        assert f"<tool_response>\n{told}\n</tool_response>" in response["log"]
    with serving.client() as client:
        messages = [{"role": "user", "content": "Add."}]
        answer = client.post("/v1/chat/completions", json={"messages": messages, **asked})
    assert answer.status_code == 200, answer.text
    said = answer.json()["choices"][0]["message"]
    assert said["content"] == "Done."
    assert [(call["output"], call["error"]) for call in said["mcp_calls"]] == [
        (call["output"], None) for call in calls
    ]
    assert serving.metrics()["aici_engine_read_again_tokens_total"] == 0
