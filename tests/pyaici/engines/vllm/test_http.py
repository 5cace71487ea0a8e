"""Controllers in requests to vLLM's OpenAI server, with the official client."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import openai
import pytest

from lab.vllm.server import MODEL, Server, Servers
from pyaici.client.control import Daemon
from pyaici.toolchain import build_controller
from tests.pyaici import one_client
from tests.pyaici.engines.vllm.requests import FRANCE, YEAR

pytestmark = pytest.mark.slow

#: always writes the same text
GREET = r"""
#include "aici.h"

AICI_CONTROLLER

static aici_step_arg arg = {sizeof arg};
static aici_mid_result mid;
static uint32_t tokens[16];

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }

AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) {
    mid = (aici_mid_result){.size = sizeof mid, .verb = AICI_STOP};
    if (arg.step == 1) {
        mid.verb = AICI_SPLICE;
        mid.num_ff_tokens = aici_tokenize("Good day!", 9);
        mid.ff_tokens = (uint32_t)tokens;
        aici_read(AICI_TOKENIZED, 0, tokens, sizeof tokens);
    }
    return &mid;
}
"""


@pytest.fixture
def controlled(servers: Servers, daemon: Daemon) -> Server:
    """A server whose controllers run in the daemon."""
    return servers(AICI_SOCKET=str(daemon.socket_path))


def xargs(controller: str, arg: str = "", **more: Any) -> dict[str, Any]:
    return {"vllm_xargs": {"aici_controller": controller, "aici_arg": arg, **more}}


def complete(server: Server, extra: dict[str, Any], **options: Any) -> Any:
    settings = {"model": MODEL, "prompt": FRANCE, "temperature": 0, "max_tokens": 30, **options}
    return server.client.completions.create(**settings, extra_body=extra)


def test_a_completion_follows_its_pattern(controlled: Server) -> None:
    choice = complete(controlled, xargs("regex", YEAR)).choices[0]
    assert re.fullmatch(YEAR, choice.text)
    assert (choice.finish_reason, choice.stop_reason) == ("stop", "controller")


def test_a_client_of_both_servers_works(controlled: Server) -> None:
    """tests/pyaici/server/openai/test_completions.py sends the same requests to `aici serve`."""
    whole, streamed, chat, script = one_client.answers(controlled.client, MODEL)
    assert re.fullmatch(one_client.YEAR, whole) and streamed == whole
    assert json.loads(chat) in ({"whale": "fish"}, {"whale": "mammal"})
    assert re.fullmatch(r" 2 \+ 3 = [0-9] and 6", script)


def test_every_token_has_a_log_probability(controlled: Server) -> None:
    choice = complete(controlled, xargs("json_schema", '{"const": "one two three"}'), logprobs=1).choices[0]
    assert choice.text == '"one two three"'
    assert "".join(choice.logprobs.tokens) == choice.text
    assert len(choice.logprobs.token_logprobs) == len(choice.logprobs.tokens)


def test_a_stream_has_the_same_text_as_a_whole_completion(controlled: Server) -> None:
    whole = complete(controlled, xargs("regex", YEAR)).choices[0].text
    pieces = [chunk.choices[0].text for chunk in complete(controlled, xargs("regex", YEAR), stream=True)]
    assert "".join(pieces) == whole and len(pieces) > 2
    held = complete(controlled, xargs("regex", YEAR, aici_hold="true"), stream=True)
    assert [text for chunk in held if (text := chunk.choices[0].text)] == [whole]


def test_a_chat_answer_follows_its_schema(controlled: Server) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}},
        "required": ["city"],
        "additionalProperties": False,
    }
    messages: Any = [{"role": "user", "content": "What is the capital of France? Answer in JSON."}]
    for stream in (False, True):
        answer: Any = controlled.client.chat.completions.create(
            model=MODEL,
            messages=messages,
            temperature=0,
            max_tokens=60,
            stream=stream,
            extra_body=xargs("json_schema", json.dumps(schema)),
        )
        if stream:
            text = "".join(chunk.choices[0].delta.content or "" for chunk in answer)
        else:
            text = answer.choices[0].message.content
        assert "city" in json.loads(text)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (xargs("regex", "[a-"), "controller regex: .*column 1: this class is not closed"),
        (xargs("rejex"), "no controller is called 'rejex'"),
        ({"vllm_xargs": {"aici_controler": "regex"}}, "did you mean aici_controller"),
        (xargs("json_schema", '{"type": "int"}'), "#/type: one of null, boolean"),
    ],
    ids=["argument", "name", "key", "schema"],
)
def test_an_invalid_controller_is_an_error_of_its_request(
    controlled: Server, extra: dict[str, Any], message: str
) -> None:
    """Later requests are not affected."""
    with pytest.raises(openai.BadRequestError, match=message):
        complete(controlled, extra)
    with pytest.raises(openai.APIError, match=message):
        list(complete(controlled, extra, stream=True))
    assert complete(controlled, {}, max_tokens=3).choices[0].finish_reason == "length"


def test_grammars_of_vllm_and_several_choices_work_too(controlled: Server) -> None:
    native = complete(controlled, {"structured_outputs": {"choice": ["red", "green"]}}).choices[0].text
    assert native in ("red", "green")
    several = complete(controlled, xargs("regex", YEAR), n=2, temperature=1.5, seed=3).choices
    assert all(re.fullmatch(YEAR, choice.text) for choice in several) and len(several) == 2


def test_an_uploaded_controller_can_be_used(controlled: Server, daemon: Daemon, tmp_path: Path) -> None:
    """Uploads a controller to the daemon while the server runs. Requests name it by its tag."""
    (tmp_path / "greet.c").write_text(GREET)
    build_controller(tmp_path / "greet.c", tmp_path / "greet.wasm")
    command = [sys.executable, "-m", "pyaici.cli", "upload", str(tmp_path / "greet.wasm"), "--tag", "greet"]
    subprocess.run([*command, "--socket", str(daemon.socket_path)], check=True, capture_output=True)
    choice = complete(controlled, xargs("greet")).choices[0]
    assert (choice.text, choice.stop_reason) == ("Good day!", "controller")
    assert complete(controlled, xargs("greet"), max_tokens=1).choices[0].finish_reason == "length"


def test_forks_of_a_controller_become_choices(controlled: Server) -> None:
    extra = {"top_k": 1, **xargs("showcase", aici_fork=1, aici_hold=1)}
    completion = complete(controlled, extra, prompt="Once upon a time", n=4, temperature=1, max_tokens=60)
    *used, unused = sorted(completion.choices, key=lambda choice: choice.index)
    assert all(choice.text.startswith("Once upon a time, far away,") for choice in used)
    assert len({choice.text for choice in used}) == 3
    assert (unused.text, unused.finish_reason, unused.stop_reason) == ("", "stop", "unused")


def test_the_server_shuts_down_cleanly(controlled: Server) -> None:
    assert controlled.close() == 0, controlled.tail()
