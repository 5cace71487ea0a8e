"""Nothing whose cost grows with a request runs in the event loop, where all others would wait."""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import thread_time
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyaici.engines.record import shared_length
from pyaici.server.answers.text import TextDelta, TextToken
from pyaici.server.apis.answers import in_pieces
from pyaici.server.apis.openai.choices import Usage
from pyaici.server.apis.openai.completions import _Completion
from pyaici.server.apis.openai.logprobs import (
    chat_entries,
    chat_logprobs,
    completion_columns,
    completion_logprobs,
)
from pyaici.server.apis.openai.requests import CompletionRequest
from tests.pyaici.server.serving import Serving

SERVER = Path(__file__).parents[3] / "pyaici" / "server"
#: without scripts, which run in controllers
SOURCES = [path for path in SERVER.rglob("*.py") if path.parent.name != "scripts"]
#: methods that encode or render a prompt, or make a page of metrics or the description of all routes
SLOW = {"encode_chat", "openapi", "generate_latest"}
#: objects whose `encode` is that of the tokenizer
TOKENIZERS = {"model", "tokenizer"}
#: a text of the server's own
ALLOWED = {("thinking.py", "limit.forced")}
#: what coroutines write as JSON at once: errors, counts, short texts, and one step. A list of all tokens of a
#: prompt or an answer must go through `in_pieces`
SMALL_EVENTS = {
    ("choices.py", "error.body()"),
    ("choices.py", "{**head, 'choices': [], 'usage': usage.wire()}"),
    ("choices.py", "'[DONE]'"),
    ("completion.py", "{'prefix': task.prefix.decode(), 'max_trials': request.max_trials - trials}"),
    ("completions.py", "await in_pieces(chunk) if echoed else chunk"),
    ("errors.py", "error.body_at(scope['path'])"),
    ("routes.py", "'[DONE]'"),
    ("routes.py", "_header(service, jobs[0])"),
    ("routes.py", "await in_pieces(numbered)"),
    ("routes.py", "await report.end(results)"),
    ("routes.py", "data"),
    ("routes.py", "report.step(events)"),
    ("routes.py", "{'backend': suggestion.backend}"),
    ("routes.py", "{'ms': round(suggestion.milliseconds)}"),
    ("routes.py", "{'object': 'error', **error.body()}"),
    ("routes.py", "{'status': error.status, **error.body()['error']}"),
    ("routes.py", "{'text': chunk}"),
    ("routes.py", "{'text': first}"),
    ("routes.py", "{**done, 'ms_total': round(suggestion.milliseconds)}"),
}


def calls_in_the_loop(tree: ast.AST) -> Iterator[ast.Call]:
    """Yields the calls in coroutines, without those of functions that they define or pass on."""
    for function in ast.walk(tree):
        if isinstance(function, ast.AsyncFunctionDef):
            waiting: list[ast.AST] = list(function.body)
            while waiting:
                node = waiting.pop()
                if isinstance(node, ast.FunctionDef | ast.Lambda | ast.AsyncFunctionDef):
                    continue
                if isinstance(node, ast.Call):
                    yield node
                waiting += ast.iter_child_nodes(node)


def test_coroutines_call_nothing_that_is_slow() -> None:
    found = set()
    for path in SOURCES:
        for call in calls_in_the_loop(ast.parse(path.read_text())):
            if isinstance(call.func, ast.Name) and call.func.id == "TextTrail":
                found.add(f"{path.name}:{call.lineno}: the text of a whole prompt")
            if not isinstance(call.func, ast.Attribute):
                continue
            owner = ast.unparse(call.func.value).rpartition(".")[2]
            if call.func.attr in SLOW or (call.func.attr == "encode" and owner in TOKENIZERS):
                argument = ast.unparse(call.args[0]) if call.args else ""
                if (path.name, argument) not in ALLOWED:
                    found.add(f"{path.name}:{call.lineno}: {ast.unparse(call)}")
    assert not found, "call it in Reading.read, or in a thread"


def test_coroutines_write_only_short_events_at_once() -> None:
    found = {
        (path.name, ast.unparse(call.args[0]))
        for path in SOURCES
        for call in calls_in_the_loop(ast.parse(path.read_text()))
        if ast.unparse(call.func) in ("event", "to_json", "json.dumps")
    }
    assert found == SMALL_EVENTS


@given(st.text("ab", max_size=20), st.text("ab", max_size=20))
def test_shared_length_is_that_of_the_common_prefix(one: str, other: str) -> None:
    count = shared_length(one, other)
    assert one[:count] == other[:count]
    assert count == min(len(one), len(other)) or one[count] != other[count]


def test_the_shared_length_of_long_texts_takes_no_step_for_each_character() -> None:
    one = "a" * 300_000
    other = one[:-1] + "b"
    start = thread_time()
    for _ in range(20):
        assert shared_length(one, other) == len(one) - 1
    fast = thread_time() - start
    start = thread_time()
    for a, b in zip(one, other, strict=True):
        if a != b:
            break
    assert fast < 20 * (thread_time() - start) / 3


MODEL: Any = SimpleNamespace(token_text=str, vocabulary=SimpleNamespace(token_bytes=lambda token: b"x"))
TOKENS = [TextToken(token, token, -1.0, [(top, -1.0) for top in range(20)]) for token in range(1000)]


def counted(work: Coroutine[Any, Any, Any]) -> tuple[Any, int]:
    """Returns the result of `work`, and how many turns another task has had meanwhile."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def both() -> Any:
        counting = asyncio.create_task(count())
        try:
            return await work
        finally:
            counting.cancel()

    return asyncio.run(both()), turns


def test_other_tasks_have_turns_while_a_long_answer_is_written() -> None:
    columns = completion_columns(MODEL, TOKENS, 0)
    answer = {"choices": [{"chat": chat_entries(MODEL, TOKENS), **columns}, {}, []], "n": 1}
    text, turns = counted(in_pieces(answer))
    chat, completion = chat_logprobs(MODEL, TOKENS)["content"], completion_logprobs(MODEL, TOKENS, 0)
    assert json.loads(text) == {"choices": [{"chat": chat, **completion}, {}, []], "n": 1}
    assert turns > 50


def test_other_tasks_have_turns_while_an_echoed_prompt_is_written() -> None:
    """All of up to 131 072 log-probabilities were in the first chunk, which was written at once."""
    body = CompletionRequest(prompt="x", echo=True, logprobs=20, stream=True)
    completion: Any = _Completion.__new__(_Completion)
    completion._model, completion._body, completion._head = MODEL, body, {}
    completion._echoed, completion._usage = ["x" * 1000], Usage([[0] * 1000], 1)
    completion._prompt_logprobs = [completion_logprobs(MODEL, TOKENS, 0)]

    async def answers() -> AsyncIterator[tuple[int, TextDelta]]:
        yield 0, TextDelta("y", tokens=TOKENS[:1])

    async def chunks() -> list[bytes]:
        return [chunk.encode() async for chunk in completion._chunks()]

    completion._answers = answers
    (chunk,), turns = counted(chunks())
    (choice,) = json.loads(chunk.removeprefix(b"data: "))["choices"]
    assert choice["text"] == "x" * 1000 + "y" and len(choice["logprobs"]["tokens"]) == 1001
    assert turns > 8


@pytest.mark.parametrize("path", ["/metrics", "/openapi.json"])
def test_pages_for_anybody_are_made_once_for_many(server: Serving, path: str) -> None:
    """All requests of a moment get one page, which is newer than they are."""
    with server.client() as client, ThreadPoolExecutor(8) as threads:
        pages = list(threads.map(lambda _: client.get(path).text, range(40)))
    assert all(pages) and len(set(pages)) <= 8
