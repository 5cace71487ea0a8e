"""The OpenAI server without a daemon: its texts, and processes that are killed during sixteen streams.

Half of the streams have a controller. The last test ends the server.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from lab.system.processes import family, left_behind, private_daemons
from lab.vllm.server import MODEL, Server, Servers
from lab.vllm.streams import PrivateRuntime, Stream, await_chunks
from tests.pyaici.engines.vllm.requests import FRANCE, YEAR

pytestmark = pytest.mark.slow

#: runs all requests of a test at once, and lets them last
OPTIONS = ("--max-num-seqs=17", "--max-model-len=8000")


@pytest.fixture
def server(servers: Servers) -> Server:
    return servers(*OPTIONS)


def test_completions_equal_transformers(server: Server, reference: Callable[..., list[list[int]]]) -> None:
    completion: Any = server.client.completions.create(
        model=MODEL, prompt=FRANCE, temperature=0, max_tokens=24, extra_body={"return_token_ids": True}
    )
    assert [completion.choices[0].token_ids] == reference([FRANCE], 24)
    assert server.complete(FRANCE, max_tokens=24) == completion.choices[0].text


@pytest.mark.real_worker  # its text has no words
def test_a_streamed_chat_equals_transformers(
    server: Server, reference: Callable[..., list[list[int]]]
) -> None:
    chat: Any = [{"role": "user", "content": "Name a colour."}]
    settings: Any = {"model": MODEL, "messages": chat, "temperature": 0, "max_tokens": 20}
    whole: Any = server.client.chat.completions.create(**settings, extra_body={"return_token_ids": True})
    assert [whole.choices[0].token_ids] == reference([chat], 20)
    chunks: Any = server.client.chat.completions.create(**settings, stream=True)
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks]
    assert "".join(pieces) == whole.choices[0].message.content
    assert sum(map(bool, pieces)) > 2


def test_an_unknown_model_is_refused(server: Server) -> None:
    with pytest.raises(openai.NotFoundError, match="nobody"):
        server.client.completions.create(model="nobody", prompt=FRANCE)


def test_a_server_is_reused_for_the_same_options(servers: Servers, server: Server) -> None:
    assert servers(*OPTIONS) is server
    assert server.is_healthy()


PROMPTS = [f"{start} {number} is" for number in (1, 2) for start in ("Rule", "Tip", "Step", "Day")]
#: a pattern without an end
WORDS = "( [a-z]+)+"
#: more tokens than a test waits for
ENDLESS = 7000


@pytest.fixture(scope="session")
def alone(servers: Servers) -> list[str]:
    """The texts of the free streams without controlled ones."""
    streams = [Stream(servers(*OPTIONS), prompt, max_tokens=200) for prompt in PROMPTS]
    return [stream.wait().text for stream in streams]


def begin(server: Server) -> tuple[list[Stream], list[Stream]]:
    """Returns free and controlled streams that have begun. They last until the test ends them."""
    controlled = [Stream(server, prompt, "regex", WORDS, max_tokens=ENDLESS) for prompt in PROMPTS]
    await_chunks(controlled)  # the first ones wait for the runtime to start
    free = [Stream(server, prompt, max_tokens=ENDLESS) for prompt in PROMPTS]
    await_chunks(free)
    return free, controlled


def go_on(streams: list[Stream]) -> None:
    """Waits until each stream has received more chunks."""
    await_chunks(streams, max(stream.chunks for stream in streams) + 20)


def check_free(streams: list[Stream], alone: list[str]) -> None:
    """Ends free streams, whose texts must be those without controlled ones."""
    for stream, text in zip(streams, alone, strict=True):
        assert stream.error is None and not stream.ended
        written = stream.stop().text
        count = min(len(written), len(text))
        assert count and written[:count] == text[:count]


def begun_runtime(server: Server) -> PrivateRuntime:
    """Returns the server's runtime. Finding it takes so long that requests may end meanwhile."""
    Stream(server, "The year is", "regex", YEAR, max_tokens=30).wait()
    return PrivateRuntime(server)


@pytest.mark.parametrize("which", ["supervisor", "workers"])
def test_the_end_of_the_runtime_ends_only_controlled_requests(
    server: Server, alone: list[str], which: str
) -> None:
    """The next request with a controller works."""
    runtime = begun_runtime(server)
    doomed = [runtime.pid] if which == "supervisor" else runtime.workers()
    with ThreadPoolExecutor() as pool:
        free, controlled = begin(server)
        extra = {"vllm_xargs": {"aici_controller": "regex", "aici_arg": WORDS}}
        whole = pool.submit(
            server.client.completions.create,
            model=MODEL,
            prompt=PROMPTS[0],
            max_tokens=ENDLESS,
            extra_body=extra,
        )
        go_on(controlled)
        for pid in doomed:
            os.kill(pid, signal.SIGKILL)
        for stream in controlled:
            error = stream.wait().error
            assert isinstance(error, openai.APIError), (stream.text, stream.finish)
            assert "controllers cannot be run at present" in error.message
            assert re.fullmatch(WORDS, stream.text)
        with pytest.raises(
            openai.InternalServerError, match="controllers cannot be run at present"
        ) as raised:
            whole.result()
        assert raised.value.status_code == 503
    go_on(free)
    check_free(free, alone)
    year = Stream(server, "The year is", "regex", YEAR, max_tokens=30).wait()
    assert year.error is None and re.fullmatch(YEAR, year.text)
    runtime = PrivateRuntime(server)
    while runtime.sequences():  # controllers of ended requests end, too
        time.sleep(0.05)


def test_a_runtime_that_hangs_delays_only_new_controlled_requests(server: Server, alone: list[str]) -> None:
    """Running controllers go on: their steps do not need aicirt's supervisor, only its workers."""
    supervisor = begun_runtime(server).pid
    free, controlled = begin(server)
    os.kill(supervisor, signal.SIGSTOP)
    try:
        new = [Stream(server, "The year is", "regex", arg, max_tokens=30) for arg in (YEAR, f"{YEAR}!")]
        go_on([*free, *controlled])
        check_free(free, alone)
        assert [stream.stop().error for stream in controlled] == [None] * len(controlled)
        assert [(stream.chunks, stream.error) for stream in new] == [(0, None)] * 2
    finally:
        os.kill(supervisor, signal.SIGCONT)
    texts = [stream.wait().text for stream in new]
    assert re.fullmatch(YEAR, texts[0]) and re.fullmatch(f"{YEAR}!", texts[1]), [new[0].error, new[1].error]


def test_the_end_of_the_engine_leaves_nothing_behind(server: Server) -> None:
    """All requests end, as they do without AICI."""
    engine = begun_runtime(server).engine
    members = family(server.process.pid)
    members |= private_daemons(members)
    free, controlled = begin(server)
    os.kill(engine, signal.SIGKILL)
    for stream in free + controlled:
        assert isinstance(stream.wait().error, openai.OpenAIError | httpx.HTTPError), stream.finish
    server.process.wait()  # vLLM's server ends with its engine
    assert left_behind(members) == []
