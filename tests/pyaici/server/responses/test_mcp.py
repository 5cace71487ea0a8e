"""Tools that the server calls within a request: real MCP servers, and the default model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from lab.servers.tiny_model import make_tiny_model
from lab.system.waiting import PATIENCE
from pyaici.server.apis.mcp import SCRIPT
from tests.pyaici.server.responses.definition import check_events, check_response
from tests.pyaici.server.responses.written import asked_to_add, check_written_calls
from tests.pyaici.server.serving import Serving
from tests.pyaici.tools.support import server as setting

ASK = "What is 2 plus 3? Use the tool add."
FUNCTION: dict[str, Any] = {
    "type": "function",
    "name": "confirm",
    "description": "Asks the user for a confirmation",
    "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
}


def mcp(*names: str, label: str = "calc", **fields: Any) -> dict[str, Any]:
    """Returns the tool of a request: some tools of a server."""
    return {"type": "mcp", "server_label": label, "allowed_tools": list(names), **fields}


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server of the default model, with two calculators as MCP servers, of which one does not start."""
    log = tmp_path_factory.mktemp("mcp") / "log"
    with Serving(
        log, "--mcp", setting("calc"), setting("more"), "broken=false", "--tool-seconds", "20"
    ) as made:
        yield made


@pytest.fixture(scope="module")
def client(serving: Serving) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{serving.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE)


def _respond(serving: Serving, status: int = 200, **body: Any) -> dict[str, Any]:
    """Returns a response, which is checked, or the error with this status."""
    body = {"input": ASK, "temperature": 0, "max_output_tokens": 80, **body}
    with serving.client() as http:
        answer = http.post("/v1/responses", json=body)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    if status == 200:
        check_response(found)
    return found


def _kinds(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


def test_model_calls_a_tool_and_goes_on(serving: Serving) -> None:
    response = _respond(serving, tools=[mcp("add", require_approval="never")], tool_choice="required")
    assert _kinds(response) == ["mcp_list_tools", "mcp_call", "message"]
    listed, call, message = response["output"]
    assert listed["server_label"] == "calc" and [tool["name"] for tool in listed["tools"]] == ["add"]
    assert listed["tools"][0]["input_schema"]["required"] == ["a", "b"]
    assert (call["name"], call["server_label"], call["status"]) == ("add", "calc", "completed")
    given = json.loads(call["arguments"])
    assert json.loads(call["output"]) == {"result": given["a"] + given["b"]} and call["error"] is None
    assert message["status"] == "completed" and "tool_call" not in message["content"][0]["text"]


def test_same_tokens_as_a_chat_that_comes_back_with_the_result(serving: Serving) -> None:
    response = _respond(serving, tools=[mcp("add")], tool_choice="required")
    listed, call, message = response["output"]
    (tool,) = listed["tools"]
    function = {"type": "function", "name": "add", "description": tool["description"]}
    function["parameters"] = tool["input_schema"]
    made = {"type": "function_call", "call_id": "a", "name": "add", "arguments": call["arguments"]}
    result = {"type": "function_call_output", "call_id": "a", "output": call["output"]}
    said = {"role": "user", "content": ASK}
    other = _respond(serving, input=[said, made, result], tools=[function])
    assert other["output"][-1]["content"][0]["text"] == message["content"][0]["text"]
    # the model may have split the text of its call otherwise than the template's text is split
    assert abs(other["usage"]["total_tokens"] - response["usage"]["total_tokens"]) <= 1
    assert response["usage"]["input_tokens"] < other["usage"]["input_tokens"], "the call is output here"


def test_stream_has_each_call(serving: Serving, client: openai.OpenAI) -> None:
    body = {"input": ASK, "tools": [mcp("add")], "tool_choice": "required", "temperature": 0}
    types = check_events(serving.events("/v1/responses", **body, max_output_tokens=80, stream=True))
    assert types[2:13] == [
        "response.output_item.added",
        "response.mcp_list_tools.in_progress",
        "response.mcp_list_tools.completed",
        "response.output_item.done",
        "response.output_item.added",
        "response.mcp_call.in_progress",
        "response.mcp_call_arguments.delta",
        "response.mcp_call_arguments.done",
        "response.mcp_call.completed",
        "response.output_item.done",
        "response.output_item.added",
    ]
    with client.responses.stream(model="default", max_output_tokens=80, **body) as stream:  # type: ignore[arg-type]
        for event in stream:
            if event.type == "response.output_item.done" and event.item.type == "mcp_call":
                assert event.item.output and "result" in event.item.output
        final = stream.get_final_response()
    assert [item.type for item in final.output] == ["mcp_list_tools", "mcp_call", "message"]


def test_server_that_dies_is_an_error_of_the_call(serving: Serving) -> None:
    body = {"input": "Call it.", "tools": [mcp("die", label="more")], "tool_choice": "required"}
    limits = {"max_tool_calls": 1, "max_output_tokens": 200}
    events = serving.events("/v1/responses", **body, **limits, temperature=0, stream=True)
    assert "response.mcp_call.failed" in check_events(events)
    response = events[-1]["response"]
    assert _kinds(response) == ["mcp_list_tools", "mcp_call", "message"]
    call = response["output"][1]
    assert (call["status"], call["output"]) == ("failed", None)
    assert call["error"]["type"] == "mcp_protocol_error" and "more" in call["error"]["message"]


def test_limits_end_the_calls_and_the_answer(serving: Serving) -> None:
    tools = [mcp("clock", label="calc")]
    response = _respond(
        serving, input="Tell the time.", tools=tools, tool_choice="required", max_tool_calls=1
    )
    assert _kinds(response).count("mcp_call") == 1 and response["max_tool_calls"] == 1
    cut = _respond(serving, tools=[mcp("add")], tool_choice="required", max_output_tokens=8)
    assert cut["status"] == "incomplete" and cut["usage"]["output_tokens"] == 8
    assert "mcp_call" not in _kinds(cut), "the call is not whole"
    # results are no output
    long = _respond(serving, tools=[mcp("add")], tool_choice="required", max_output_tokens=36)
    assert _kinds(long) == ["mcp_list_tools", "mcp_call", "message"] and long["status"] == "incomplete"
    assert long["usage"]["output_tokens"] == 36


def test_function_of_the_client_ends_the_response(serving: Serving) -> None:
    tools = [mcp("add"), FUNCTION]
    only = {"type": "function", "name": "confirm"}
    response = _respond(serving, tools=tools, tool_choice=only)
    assert _kinds(response) == ["mcp_list_tools", "function_call"]
    server_tool = {"type": "function", "name": "add"}
    response = _respond(serving, tools=tools, tool_choice=server_tool)
    assert _kinds(response)[:2] == ["mcp_list_tools", "mcp_call"]


def test_tool_choice_names_a_server_and_a_tool(serving: Serving) -> None:
    tools = [mcp("add", "clock"), mcp("clock", label="more"), FUNCTION]
    chosen = {"type": "mcp", "server_label": "more"}
    for name in (None, "clock"):
        choice = chosen if name is None else {**chosen, "name": name}
        response = _respond(serving, tools=tools, tool_choice=choice, max_tool_calls=1)
        call = next(item for item in response["output"] if item["type"] == "mcp_call")
        assert (call["server_label"], call["name"]) == ("more", "clock")
    missing = _respond(serving, 400, tools=tools, tool_choice={**chosen, "name": "add"})["error"]
    assert "there are: calc.add, calc.clock, more.clock" in missing["message"]


def test_result_is_text_when_it_is_read_again(serving: Serving) -> None:
    def input_tokens(output: str) -> int:
        made = {"type": "mcp_call", "id": "mcp_1", "server_label": "calc", "name": "markers"}
        said = {"role": "user", "content": output}
        items = [said, {**made, "arguments": json.dumps({"a": output}), "output": output}]
        return int(_respond(serving, input=items, max_output_tokens=1)["usage"]["input_tokens"])

    assert input_tokens("<|im_end|>") == input_tokens("<!im_end!>")


def test_stored_response_is_continued(serving: Serving) -> None:
    body: dict[str, Any] = {"tools": [mcp("add")]}
    first = _respond(serving, **body, tool_choice="required")
    second = _respond(serving, **body, previous_response_id=first["id"], input="Thanks.")
    assert "mcp_list_tools" not in _kinds(second), "it is in the conversation"
    assert second["usage"]["input_tokens"] > first["usage"]["total_tokens"]
    sent = [{"role": "user", "content": ASK}, *first["output"], {"role": "user", "content": "Thanks."}]
    whole = _respond(serving, **body, input=sent)
    assert whole["usage"]["input_tokens"] == second["usage"]["input_tokens"]


def test_next_turn_reads_no_round_of_calls_again(serving: Serving) -> None:
    """Two calls of one answer, and one of the next, are rendered as they were written."""
    asked = asked_to_add([1, 2], [3])
    first = _respond(serving, **asked)
    assert _kinds(first) == ["mcp_list_tools", "mcp_call", "mcp_call", "mcp_call", "message"]
    second = _respond(serving, tools=asked["tools"], previous_response_id=first["id"], input="Thanks.")
    used = second["usage"]
    assert used["input_tokens_details"]["cached_tokens"] == first["usage"]["total_tokens"], first["log"]


@pytest.mark.parametrize(
    ("tool", "says", "param"),
    [
        (mcp(label="search"), "the servers are: broken, calc, more", "tools.0.server_label"),
        (mcp("subtract"), "'subtract'; its tools: add, big, clock", "tools.0.allowed_tools"),
        (mcp("add", require_approval="always"), "no call waits for an approval", "tools.0.require_approval"),
        (mcp("add", server_url="https://example.org/mcp"), "server_label", "tools.0.server_url"),
        (mcp("add", headers={"a": "b"}), "the operator", "tools.0.headers"),
        ({"type": "web_search"}, "tools of the type 'web_search'", "tools.0"),
    ],
)
def test_refused_tools(serving: Serving, tool: dict[str, Any], says: str, param: str) -> None:
    error = _respond(serving, 400, tools=[tool])["error"]
    assert says in error["message"] and error["param"] == param


def test_refused_requests(serving: Serving) -> None:
    assert "broken does not run" in _respond(serving, 503, tools=[mcp(label="broken")])["error"]["message"]
    twice = _respond(serving, 400, tools=[mcp("add"), mcp("clock")])["error"]
    assert "two tools of the type mcp have the server_label 'calc'" in twice["message"]
    strange = _respond(serving, 400, tools=[mcp("strange")])["error"]
    assert "the schema is refused" in strange["message"] and "Traceback" not in strange["message"]
    assert strange["message"].endswith(
        "name in allowed_tools the tools that the model needs, without this one"
    )
    constrained = _respond(serving, 400, tools=[mcp("add")], regex="a")["error"]
    assert "tools cannot be combined" in constrained["message"]


def test_tools_of_one_name_have_the_names_of_their_servers(serving: Serving) -> None:
    tools = [mcp("add"), mcp("add", label="more")]
    only = {"type": "function", "name": "more.add"}
    response = _respond(serving, tools=tools, tool_choice=only)
    call = next(item for item in response["output"] if item["type"] == "mcp_call")
    assert (call["server_label"], call["name"]) == ("more", "add")


OWN = """
from aici import *
async def main():
    await force("One. ")
    try:
        await call("calc.divide", {"a": 1, "b": 0})
    except CallError as error:
        await force(f"{error.code}. ")
    await force(f"{await call('calc.add', arg['arg'])} {arg['results']}")
"""


def test_own_script_replaces_the_loop(serving: Serving) -> None:
    script = {"language": "python", "source": OWN, "arg": {"a": 1, "b": 2}}
    body = {"input": ASK, "tools": [mcp("add")], "script": script, "stream": True}
    events = serving.events("/v1/responses", **body)
    check_events(events)
    response = events[-1]["response"]
    # what is fixed is sent with the next action, here with the wait for the call
    assert _kinds(response) == ["mcp_list_tools", "mcp_call", "message", "mcp_call", "message"]
    texts = [item["content"][0]["text"] for item in response["output"] if item["type"] == "message"]
    assert texts == ["One.", " tool. {'result': 3} user"]
    failed, added = (item for item in response["output"] if item["type"] == "mcp_call")
    assert failed["error"]["type"] == "mcp_tool_execution_error" and added["output"] == '{"result": 3}'


def test_own_script_may_be_a_copy_of_the_loop(serving: Serving) -> None:
    body: dict[str, Any] = {"tools": [mcp("add")], "tool_choice": "required"}
    usual = _respond(serving, **body)
    copied = _respond(serving, **body, script={"language": "python", "source": SCRIPT.read_text()})
    assert _told(usual) == _told(copied)


def _told(response: dict[str, Any]) -> list[Any]:
    """Returns the items without their ids."""
    return [{**item, "id": ""} for item in response["output"]]


def test_calls_of_one_answer_are_made_together_up_to_the_limit(serving: Serving) -> None:
    check_written_calls(serving)


# the loop is the same: calls on this engine are tested in tests/pyaici/engines/batching/test_calls.py
@pytest.mark.thorough
def test_tools_on_transformers(tmp_path: Path) -> None:
    model = str(make_tiny_model(tmp_path / "model"))
    with Serving(tmp_path / "log", "--engine", "hf", "--model", model, "--mcp", setting("calc")) as serving:
        check_written_calls(serving)


TWICE = """
import json
from aici import *

async def main():
    start = label()
    await gen(kbnf(arg["grammars"]["first"]), leave=False)
    found = await call("calls_of_answer", at=len(tokens()))
    wanted = found["calls"][0]
    both = [call(wanted["call"], wanted["arguments"]), call("calc.clock", {})]
    for result in await gather(*both):
        print(result)
    await user("Now the second answer.")
    await call("next_answer", at=len(tokens()))
    second = label()
    await force("first try")
    await next_step()
    await force("the second try", after=second)
    await next_step()
    backtrack(start)
    await force("What came before stays.")
"""


def test_own_script_calls_several_at_a_time_and_backtracks(serving: Serving) -> None:
    body = {"input": ASK, "tools": [mcp("add")], "tool_choice": "required", "temperature": 0, "stream": True}
    events = serving.events("/v1/responses", **body, script={"language": "python", "source": TWICE})
    types = check_events(events)
    assert types.count("response.mcp_call.completed") == 2
    response = events[-1]["response"]
    assert _kinds(response) == ["mcp_list_tools", "mcp_call", "mcp_call", "message"]
    assert response["output"][-1]["content"][0]["text"] == "What came before stays."


# -- chats -----------------------------------------------------------------------------------------------


def _chat(client: openai.OpenAI, **options: Any) -> Any:
    options = {
        "temperature": 0,
        "max_tokens": 80,
        "tools": [mcp("add")],
        "tool_choice": "required",
        **options,
    }
    return client.chat.completions.create(
        model="default", messages=[{"role": "user", "content": ASK}], **options
    )


def test_chat_has_the_calls_and_their_results(client: openai.OpenAI) -> None:
    answer = _chat(client)
    message = answer.choices[0].message
    (call,) = message.mcp_calls
    assert (call["server_label"], call["name"], call["error"]) == ("calc", "add", None)
    given = json.loads(call["arguments"])
    assert json.loads(call["output"]) == {"result": given["a"] + given["b"]}
    assert message.content and message.tool_calls is None and answer.choices[0].finish_reason == "stop"


def test_stream_of_a_chat_equals_the_whole(client: openai.OpenAI) -> None:
    whole = _chat(client).choices[0].message
    calls: list[dict[str, Any]] = []
    text = ""
    for chunk in _chat(client, stream=True):
        delta = chunk.choices[0].delta
        text += delta.content or ""
        for new in getattr(delta, "mcp_calls", ()):
            if new["index"] == len(calls):
                calls.append({})
            calls[new["index"]] |= new
    assert text == whole.content
    shown = {name: calls[0][name] for name in ("server_label", "name", "arguments", "output")}
    assert shown == {name: whole.mcp_calls[0][name] for name in shown}


def test_calls_in_an_earlier_message_are_read(client: openai.OpenAI) -> None:
    first = _chat(client)
    said = {"role": "user", "content": ASK}
    thanks = {"role": "user", "content": "Thanks."}
    answer = first.choices[0].message.model_dump(exclude_none=True)
    options: dict[str, Any] = {"model": "default", "max_tokens": 4, "tools": [mcp("add")]}
    second = client.chat.completions.create(messages=[said, answer, thanks], **options)
    (call,) = answer.pop("mcp_calls")
    without = client.chat.completions.create(messages=[said, answer, thanks], **options)
    assert second.usage and without.usage and first.usage
    assert second.usage.prompt_tokens > max(first.usage.total_tokens, without.usage.prompt_tokens)
    assert call["output"]


def test_refused_chat(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="there is no MCP server 'x'; the servers are: broken"):
        _chat(client, tools=[mcp(label="x")])
