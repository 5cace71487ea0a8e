"""Processes are killed during sixteen streams of vLLM's server; half of the streams have a controller."""

from __future__ import annotations

import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest

from tests.processes import family, left_behind, private_daemons
from tests.pyaici.engines.vllm.requests import YEAR
from tests.pyaici.engines.vllm.server import MODEL, Server, Servers
from tests.pyaici.engines.vllm.streams import PrivateRuntime, Stream, await_chunks

pytestmark = pytest.mark.slow

PROMPTS = [f"{start} {number} is" for number in (1, 2) for start in ("Rule", "Tip", "Step", "Day")]
#: a pattern without an end
WORDS = "( [a-z]+)+"
#: long enough that no request ends before a test has seen its beginning
LENGTH = 400


@pytest.fixture
def server(servers: Servers) -> Server:
    """A server that runs all requests at once, with a private runtime."""
    return servers("--max-num-seqs=17")


@pytest.fixture(scope="module")
def alone(servers: Servers) -> list[str]:
    """The texts of the free streams without controlled ones."""
    streams = [Stream(servers("--max-num-seqs=17"), prompt, max_tokens=LENGTH) for prompt in PROMPTS]
    return [stream.wait().text for stream in streams]


def begin(server: Server) -> tuple[list[Stream], list[Stream]]:
    """Returns free and controlled streams that have begun."""
    controlled = [Stream(server, prompt, "regex", WORDS, max_tokens=LENGTH) for prompt in PROMPTS]
    await_chunks(controlled)  # the first ones wait for the runtime to start
    free = [Stream(server, prompt, max_tokens=LENGTH) for prompt in PROMPTS]
    await_chunks(free)
    return free, controlled


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
            max_tokens=LENGTH,
            extra_body=extra,
        )
        before = [stream.chunks for stream in controlled]
        await_chunks(controlled, max(before) + 3)
        assert not any(stream.ended for stream in free)
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
    assert [(stream.wait().text, stream.finish, stream.error) for stream in free] == [
        (text, "length", None) for text in alone
    ]
    year = Stream(server, "The year is", "regex", YEAR, max_tokens=30).wait()
    assert year.error is None and re.fullmatch(YEAR, year.text)
    runtime = PrivateRuntime(server)
    deadline = time.monotonic() + 60
    while runtime.sequences():
        assert time.monotonic() < deadline, "controllers of ended requests are still running"
        time.sleep(0.05)


def test_a_runtime_that_hangs_delays_only_new_controlled_requests(server: Server, alone: list[str]) -> None:
    """Running controllers go on: their steps do not need aicirt's supervisor, only its workers."""
    supervisor = begun_runtime(server).pid
    free, controlled = begin(server)
    os.kill(supervisor, signal.SIGSTOP)
    try:
        new = [Stream(server, "The year is", "regex", arg, max_tokens=30) for arg in (YEAR, f"{YEAR}!")]
        assert [(stream.wait().text, stream.error) for stream in free] == [(text, None) for text in alone]
        assert [(stream.wait().finish, stream.error) for stream in controlled] == [("length", None)] * 8
        assert [(stream.chunks, stream.error) for stream in new] == [(0, None)] * 2
    finally:
        os.kill(supervisor, signal.SIGCONT)
    texts = [stream.wait().text for stream in new]
    assert re.fullmatch(YEAR, texts[0]) and re.fullmatch(f"{YEAR}!", texts[1]), [new[0].error, new[1].error]


def test_the_end_of_the_engine_leaves_nothing_behind(server: Server, alone: list[str]) -> None:
    """All requests end, as they do without AICI."""
    engine = begun_runtime(server).engine
    members = family(server.process.pid)
    members |= private_daemons(members)
    free, controlled = begin(server)
    os.kill(engine, signal.SIGKILL)
    for stream in free + controlled:
        assert isinstance(stream.wait().error, openai.OpenAIError | httpx.HTTPError), stream.finish
    server.process.wait(120)  # vLLM's server ends with its engine
    assert left_behind(members) == []
