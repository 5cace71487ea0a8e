"""Completions, with the official client."""

from __future__ import annotations

import json
import re
from typing import Any

import openai
import pytest

from lab.system.waiting import PATIENCE
from pyaici.server.apis.openai.requests import ChatRequest, CompletionRequest
from tests.pyaici.one_client import YEAR, answers
from tests.pyaici.server.serving import Serving

MODEL = "default"


@pytest.fixture(scope="module")
def client(server: Serving, tokens: dict[str, str]) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=tokens["eve"], max_retries=0, timeout=PATIENCE)


@pytest.fixture(scope="module")
def exact_client(exact_server: Serving, tokens: dict[str, str]) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{exact_server.url}/v1", api_key=tokens["eve"], max_retries=0, timeout=PATIENCE
    )


def test_the_model_is_listed(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    assert model.id == "SmolLM2-135M-Instruct"
    assert client.models.retrieve(model.id).id == model.id
    with pytest.raises(openai.NotFoundError, match="this server has 'SmolLM2"):
        client.models.retrieve("gpt-4")


def test_requests_for_vllm_are_answered(client: openai.OpenAI) -> None:
    """tests/pyaici/engines/vllm/test_http.py sends the same ones."""
    whole, streamed, chat, script = answers(client, MODEL)
    assert re.fullmatch(YEAR, whole) and streamed == whole
    assert json.loads(chat) in ({"whale": "fish"}, {"whale": "mammal"})
    assert re.fullmatch(r" 2 \+ 3 = [0-9] and 6", script)
    plain = client.completions.create(
        model=MODEL,
        prompt="The capital of France is",
        temperature=0,
        max_tokens=40,
        extra_body={"controller": "regex", "controller_arg": YEAR},
    )
    assert plain.choices[0].text == whole


@pytest.mark.parametrize(
    ("xargs", "words"),
    [
        ({"aici_controler": "regex"}, "did you mean aici_controller"),
        ({"target_token": 67}, "this server has no such key"),
        ({"aici_controller": "regex", "aici_arg": "[a-"}, "this class is not closed"),
        ({"aici_arg": "[a-z]"}, "aici_arg needs aici_controller"),
        ({"aici_script": "{"}, "vllm_xargs.aici_script is not JSON"),
        ({"aici_script": '{"language": "perl", "source": ""}'}, "Input should be 'python' or 'javascript'"),
        ({"aici_controller": "regex", "aici_fork": 1}, "use POST /v1/run"),
        ({"aici_controller": "regex", "aici_owner": "ada"}, "the token of the request names the owner"),
        ({"aici_controller": "regex", "aici_script": '{"language": "python", "source": "x"}'}, "only one of"),
    ],
)
def test_keys_for_vllm_that_mean_something_else_here_are_refused(
    client: openai.OpenAI, xargs: dict[str, Any], words: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=words) as caught:
        client.completions.create(model=MODEL, prompt="x", max_tokens=4, extra_body={"vllm_xargs": xargs})
    assert (caught.value.param or "").startswith("vllm_xargs")


def test_hints_for_vllm_are_named_and_held_streams_refused(client: openai.OpenAI) -> None:
    xargs = {"aici_controller": "regex", "aici_arg": "a", "aici_hold": "true", "aici_keep": 3, "aici_fork": 0}
    request: Any = {"model": MODEL, "prompt": "x", "extra_body": {"vllm_xargs": xargs}}
    raw = client.completions.with_raw_response.create(**request)
    assert raw.headers["x-aici-ignored"] == "vllm_xargs.aici_keep"
    assert raw.parse().choices[0].text == "a"
    with pytest.raises(openai.BadRequestError, match="this server holds no stream back"):
        client.completions.create(**request, stream=True)


def test_completion_with_logprobs_and_echo(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model=MODEL, prompt="The capital of France is", max_tokens=4, temperature=0, logprobs=2, echo=True
    )
    (choice,) = answer.choices
    assert choice.text.startswith("The capital of France is Paris") and choice.finish_reason == "length"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 4)
    found = choice.logprobs
    assert found is not None and found.tokens is not None and found.top_logprobs is not None
    assert found.tokens[:6] == ["The", " capital", " of", " France", " is", " Paris"]
    assert found.text_offset == [0, 3, 11, 14, 21, 24, 30, 31, 32]
    values, tops = found.token_logprobs or [], found.top_logprobs
    assert (values[0], tops[0]) == (None, None) and all(value < 0 for value in values[1:])
    assert [len(top) for top in tops[1:]] == [2] * 8
    for value, top in zip(values[5:], tops[5:], strict=True):
        assert value == max(top.values())  # greedy


def test_log_likelihood_requests_of_lm_eval_harness(exact_client: openai.OpenAI) -> None:
    """The model `local-completions` sends token ids, and ignores the generated token."""
    options = {"model": MODEL, "temperature": 0, "logprobs": 1, "seed": 1234, "echo": True}
    context, endings = [504, 3575, 282, 4649, 314], ([7042], [2240, 30], [260, 1965, 282, 4649])
    texts = [context + ending for ending in endings]
    found = []
    for max_tokens in (1, 0):
        answer = exact_client.completions.create(**options, prompt=texts, max_tokens=max_tokens)
        sums = []
        for text, choice in zip(texts, sorted(answer.choices, key=lambda one: one.index), strict=True):
            assert choice.logprobs is not None and choice.finish_reason == "length"
            values, tops = choice.logprobs.token_logprobs or [], choice.logprobs.top_logprobs or []
            assert len(values) == len(tops) == len(text) + max_tokens
            sums.append(sum(values[len(context) : len(text)]))
            greedy = [value == max(top.values()) for value, top in zip(values[1:], tops[1:], strict=True)]
            assert not max_tokens or greedy[-1]
        assert answer.usage is not None and answer.usage.completion_tokens == 3 * max_tokens
        found.append(sums)
    assert found[0] == pytest.approx(found[1], abs=1e-4)
    # the first token of the second ending, as the model generates after the context
    (choice,) = exact_client.completions.create(
        model=MODEL, prompt=context, max_tokens=1, logprobs=20, temperature=0
    ).choices
    assert choice.logprobs is not None and choice.logprobs.top_logprobs is not None
    generated = choice.logprobs.top_logprobs[0]
    text = exact_client.completions.create(**options, prompt=texts[0], max_tokens=0).choices[0]
    assert text.logprobs is not None and text.logprobs.tokens is not None
    assert generated.get(text.logprobs.tokens[-1], found[0][0]) == pytest.approx(found[0][0], abs=1e-3)


def test_fields_of_one_route_are_refused_on_the_other() -> None:
    chats, completions = ChatRequest.model_fields.keys(), CompletionRequest.model_fields.keys()
    assert chats - completions <= CompletionRequest.refused.keys()
    assert completions - chats <= ChatRequest.refused.keys()


def test_embeddings_are_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="is a model that generates text") as refused:
        client.embeddings.create(model=MODEL, input="Hello")
    assert refused.value.code == "no_embeddings"


def test_usage_has_the_cached_tokens_of_the_prompt(client: openai.OpenAI) -> None:
    options = {"model": MODEL, "prompt": "Nobody else asks for seven purple bicycles.", "max_tokens": 2}
    found = []
    for count in (1, 2, 1):
        usage = client.completions.create(**options, n=count).usage
        assert usage is not None and usage.prompt_tokens_details is not None
        found.append(usage.prompt_tokens_details.cached_tokens or 0)
    assert found[0] < 5 and found[2] == usage.prompt_tokens - 1 and found[0] <= found[1] <= found[2]


def test_streamed_echo_has_the_log_probabilities_of_the_prompt(exact_client: openai.OpenAI) -> None:
    options = {"model": MODEL, "prompt": "1, 2, 3,", "temperature": 0, "max_tokens": 4, "logprobs": 1}
    whole = exact_client.completions.create(**options, echo=True, n=2).choices
    values: dict[int, list[float | None]] = {0: [], 1: []}
    for chunk in exact_client.completions.create(**options, echo=True, n=2, stream=True):
        for choice in chunk.choices:
            if choice.logprobs is not None:
                values[choice.index] += choice.logprobs.token_logprobs or []
    assert whole[0].logprobs is not None and whole[0].logprobs.token_logprobs is not None
    for found in values.values():
        assert found[0] is None
        assert found[1:] == pytest.approx(whole[0].logprobs.token_logprobs[1:], abs=1e-4)
    nothing = {**options, "prompt": "", "max_tokens": 0}
    (none,) = exact_client.completions.create(**nothing, echo=True).choices
    assert none.text == "" and none.logprobs is not None and none.logprobs.tokens == []
    empty = exact_client.completions.create(model=MODEL, prompt="Hi", max_tokens=0, stream=True)
    assert [choice.finish_reason for chunk in empty for choice in chunk.choices] == ["length"]


def test_stream_equals_the_whole_answer(exact_client: openai.OpenAI) -> None:
    options = {"prompt": "1, 2, 3,", "max_tokens": 30, "temperature": 0, "model": MODEL}
    free = exact_client.completions.create(**options).choices[0].text
    early, late = free[20:23], free[40:43]
    options["stop"] = [late, early]
    whole = exact_client.completions.create(**options)
    chunks = list(
        exact_client.completions.create(**options, stream=True, stream_options={"include_usage": True})
    )
    assert (
        "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)
        == whole.choices[0].text
        == free[: min(free.index(early), free.index(late))]
    )
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None and whole.usage is not None
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens


def test_several_prompts_with_several_answers(exact_client: openai.OpenAI) -> None:
    prompts = ["The sun is", "Water is"]
    options = {
        "prompt": prompts,
        "n": 2,
        "max_tokens": 6,
        "temperature": 1.0,
        "seed": 5,
        "echo": True,
        "model": MODEL,
    }
    first = exact_client.completions.create(**options)
    assert [choice.index for choice in first.choices] == [0, 1, 2, 3]
    assert [choice.text.startswith(prompts[choice.index // 2]) for choice in first.choices] == [True] * 4
    assert len({choice.text for choice in first.choices}) == 4
    again = exact_client.completions.create(**options)
    assert [choice.text for choice in again.choices] == [choice.text for choice in first.choices]
    texts = dict.fromkeys(range(4), "")
    for chunk in exact_client.completions.create(**options, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert list(texts.values()) == [choice.text for choice in first.choices]


def test_prompt_of_token_ids(client: openai.OpenAI) -> None:
    one = client.completions.create(model=MODEL, prompt=[504, 3575, 282], max_tokens=2, temperature=0)
    two = client.completions.create(model=MODEL, prompt=[[504, 3575, 282]], max_tokens=2, temperature=0)
    assert one.choices[0].text == two.choices[0].text


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("regex", "[0-9]{4}", r"\d{4}"),
        ("choice", ["red", "green"], "red|green"),
        ("grammar", "root ::= [xyz] \"-\" [xyz]", "[xyz]-[xyz]"),
        ("grammar", "start ::= 'a' | 'b' 'c';", "a|bc"),
        ("grammar", 'start: "k" NUMBER\nNUMBER: /[0-9]{2}/', r"k\d\d"),
        ("grammar", '%%\ns : "p" "q" ;', "pq"),
        ("guided_regex", "[0-9]{4}", r"\d{4}"),
        ("response_format", {"type": "json_schema", "json_schema": {"schema": {"enum": ["a"]}}}, '"a"'),
        ("guided_choice", ["red", "green"], "red|green"),
        ("guided_grammar", "root ::= [xyz] \"-\" [xyz]", "[xyz]-[xyz]"),
        ("guided_json", '{"enum": ["a", "b"]}', '"(a|b)"'),
        ("structured_outputs", {"json": {"enum": ["a", "b"]}, "disable_any_whitespace": False}, '"(a|b)"'),
        ("structured_outputs", {"choice": ["red", "green"]}, "red|green"),
        ("structured_outputs", {"regex": "[0-9]{4}"}, r"\d{4}"),
        ("json_schema", {"type": "object", "properties": {"a": {"const": "b"}}, "required": ["a"],
                         "additionalProperties": False}, r'\{\s*"a":\s?"b"\s*\}'),
    ],
)  # fmt: skip
def test_constraints_are_enforced(client: openai.OpenAI, field: str, value: object, expected: str) -> None:
    import re

    answer = client.completions.create(
        model=MODEL, prompt="The answer is", max_tokens=60, temperature=0, extra_body={field: value}
    )
    assert re.fullmatch(expected, answer.choices[0].text), answer.choices[0].text
    assert answer.choices[0].finish_reason == "stop"


def test_stream_retracts_text_of_a_backtracking_controller(exact_client: openai.OpenAI) -> None:
    options = {"model": MODEL, "prompt": "Hello", "max_tokens": 60, "temperature": 0, "seed": 1}
    extra = {"controller": "showcase"}
    whole = exact_client.completions.create(**options, extra_body=extra)
    text = ""
    for chunk in exact_client.completions.create(**options, extra_body=extra, stream=True):
        for choice in chunk.choices:
            text = text[: len(text) - getattr(choice, "backtrack", 0)] + choice.text
    assert text == whole.choices[0].text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"extra_body": {"regex": "(a", "prompt": "x"}}, "column"),
        ({"extra_body": {"regex": "a", "choice": ["b"]}}, "only one of regex and choice"),
        ({"extra_body": {"gramar": "x"}}, "did you mean grammar?"),
        ({"extra_body": {"temprature": 1}}, "did you mean temperature?"),
        ({"extra_body": {"ebnf": "x"}}, "has no such field; use grammar"),
        ({"extra_body": {"reasoning_effort": "low"}}, "not supported: it is for /v1/chat/completions"),
        (
            {"extra_body": {"tools": [{"type": "function"}]}},
            "tools: this field is not supported: it is for /v1/chat",
        ),
        ({"extra_body": {"regex": "a", "guided_choice": ["b"]}}, "only one of regex and guided_choice"),
        ({"extra_body": {"guided_json": "{"}}, "guided_json is not JSON"),
        ({"extra_body": {"structured_outputs": {"whitespace_pattern": " "}}}, "whitespace_pattern"),
        ({"extra_body": {"structured_outputs": {"rules": "x"}}}, "structured_outputs.rules"),
        ({"extra_body": {"include_stop_str_in_output": True}}, "include_stop_str_in_output"),
        ({"extra_body": {"controller_arg": "x"}}, "needs a controller"),
        ({"extra_body": {"grammar": "start ::= 'a"}}, "line 1"),
        (
            {"extra_body": {"grammar": "start ::= 'a"}},
            "it was read as KBNF: for another kind",
        ),
        ({"suffix": "x"}, "suffix: this field is not supported"),
        ({"extra_body": {"script": "async def main(): ..."}}, "script: it must be a JSON object"),
        ({"extra_body": {"script": {"language": "python", "code": "x"}}}, "script.source: field required"),
        ({"extra_body": {"stream_options": "x"}}, "stream_options: it must be a JSON object"),
        (
            {"extra_body": {"json_schema": "{}"}},
            "json_schema: it must be a schema (an object, true or false)",
        ),
        ({"extra_body": {"guided_json": 5}}, "guided_json: it must be a schema as json_schema takes it"),
        ({"presence_penalty": 2.5}, "presence_penalty"),
        ({"logit_bias": {"a": 1}}, "logit_bias has 'a': its names must be token ids"),
        ({"logit_bias": {"99999999": 1}}, "logit_bias has token 99999999; the model's are below"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"extra_body": {"stop_token_ids": [99999999]}}, "stop_token_ids has token 99999999"),
        ({"extra_body": {"repetition_penalty": 0}}, "repetition_penalty"),
        ({"extra_body": {"bad_words": [""]}}, "bad_words"),
        ({"best_of": 3}, "best_of"),
        ({"temperature": 5}, "temperature"),
        ({"n": 100}, "n:"),
        ({"n": 32, "prompt": ["a", "b", "c"]}, "96 sequences"),
        ({"stop": [""]}, "stop: it must be a text of 1 to 1024 characters, or a list of up to 16"),
        ({"prompt": []}, "prompt: it must be a text, or token ids, or a list of up to 64 of either"),
        ({"prompt": [[]]}, "prompt: it must be a text, or token ids"),
        ({"logprobs": 50}, "logprobs"),
        ({"prompt": ["a " * 3000] * 60, "logprobs": 1, "echo": True}, "at most 131072 are allowed"),
    ],
)
def test_invalid_requests_are_refused(client: openai.OpenAI, options: dict[str, object], words: str) -> None:
    body = {"model": MODEL, "prompt": "x", "max_tokens": 5, **options}
    with pytest.raises(openai.BadRequestError, match="400") as refused:
        client.completions.create(**body)  # type: ignore[call-overload]
    assert words in str(refused.value)


def test_fields_that_choose_among_the_tokens(client: openai.OpenAI) -> None:
    def text(**fields: object) -> str:
        answer = client.completions.create(
            model=MODEL, prompt="The capital of France is", temperature=0, max_tokens=6, extra_body=fields
        )
        return answer.choices[0].text

    assert text().startswith(" Paris") and text(bad_words=["Madrid"]).startswith(" Paris")
    assert " Paris" not in text(bad_words=["Paris"])
    assert text(choice=[" Paris", " Rome"], bad_words=["Paris"]) == " Rome"
    repeated = text(prompt="a a a a a a a a a a", presence_penalty=-2, frequency_penalty=-2)
    assert repeated[-4:] == 4 * repeated[-1]
    assert " a a" not in text(prompt="a a a a a a a a a a", repetition_penalty=100)


def test_refused_fields_are_named(client: openai.OpenAI) -> None:
    for name, value in (("best_of", 2), ("gramar", "x")):
        with pytest.raises(openai.BadRequestError) as refused:
            client.completions.create(model=MODEL, prompt="x", extra_body={name: value})
        assert refused.value.param == name


def test_unknown_model_gets_404(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="gpt-4"):
        client.completions.create(model="gpt-4", prompt="x")


@pytest.mark.parametrize("stream", [False, True])
def test_failing_controller_is_an_error(client: openai.OpenAI, stream: bool) -> None:
    extra = {"controller": "guest", "controller_arg": "mid_trap"}
    with pytest.raises(openai.APIError, match="trap"):
        answer = client.completions.create(model=MODEL, prompt="x", extra_body=extra, stream=stream)
        if stream:
            list(answer)


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
def test_error_in_a_stream_comes_before_its_end(client: openai.OpenAI, path: str) -> None:
    """An error after the first event is no status: the client raises, and a raw reader sees both events."""
    prompt: dict[str, Any] = {"prompt": "x"}
    if path != "completions":
        prompt = {"messages": [{"role": "user", "content": "x"}]}
    body = {"model": MODEL, **prompt, "stream": True, "controller": "guest", "controller_arg": "mid_trap"}
    body["stream_options"] = {"include_usage": True}
    with pytest.raises(openai.APIError, match="trap") as raised:
        list(
            client.post(f"/{path}", body=body, cast_to=object, stream=True, stream_cls=openai.Stream[object])
        )
    assert not isinstance(raised.value, openai.APIStatusError)
    raw = client.post(f"/{path}", body=body, cast_to=str)
    *chunks, failed, end = [line for line in raw.splitlines() if line.startswith("data: ")]
    assert end == "data: [DONE]" and "trap" in json.loads(failed[6:])["error"]["message"]
    for chunk in chunks:
        assert [choice["finish_reason"] for choice in json.loads(chunk[6:])["choices"]] == [None]


def test_neutral_values_of_unsupported_fields_are_accepted(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model=MODEL,
        prompt="x",
        max_tokens=1,
        presence_penalty=0,
        frequency_penalty=0.0,
        logit_bias={},
        user="me",
    )
    assert answer.choices[0].text
