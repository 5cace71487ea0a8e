"""Scripts in requests: their texts, refused scripts, and their errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.pyaici.server.serving import Serving

LANGUAGES = ("python", "javascript")
#: the same script in both languages: a text, and one of the words of the argument
WELL = {
    "python": """\
from aici import *

async def main():
    await force(" It is ")
    said = await gen(choice=arg["words"])
    set_var("said", said)
    await force("!")
""",
    "javascript": """\
import { force, gen, setVar, arg } from "aici";

export async function main() {
  force(" It is ");
  const said = await gen({ choice: arg.words });
  setVar("said", said);
  force("!");
}
""",
}
#: fails in the third line, called from the sixth
FAILS = {
    "python": "from aici import *\ndef inner():\n    return {}['missing']\n"
    "async def main():\n    await force('Well')\n    inner()\n",
    "javascript": 'import { force } from "aici";\nfunction inner() {\n  return missing;\n}\n'
    'export async function main() {\n  await force("Well"); inner();\n}\n',
}


def script(language: str, sources: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"language": language, "source": sources[language], **more}


@pytest.mark.parametrize("language", LANGUAGES)
def test_script_writes_and_sets_variables(server: Serving, language: str) -> None:
    words = ["blue", "gre\u0301en"]
    body = {"script": script(language, WELL, arg={"words": words}), "prompt": "The sky?"}
    answer = server.run(**body)
    (fork,) = answer["forks"]
    word = answer["variables"]["said"]
    assert word in words and fork["text"] == f" It is {word}!"
    assert (fork["finish_reason"], fork["error"]) == ("stop", None)
    assert answer["controller"] == {"python": "pyctrl", "javascript": "jsctrl"}[language]
    assert server.events(**body)[-1]["forks"] == answer["forks"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_script_works_in_the_apis_of_openai(server: Serving, language: str) -> None:
    carried = script(language, WELL, arg={"words": ["blue"]})
    with server.client() as client:
        body = {"model": "default", "script": carried}
        answer = client.post("/v1/completions", json={**body, "prompt": "The sky?", "max_tokens": 20})
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["text"] == " It is blue!"
        chat = client.post(
            "/v1/chat/completions", json={**body, "messages": [{"role": "user", "content": "The sky?"}]}
        )
        assert chat.status_code == 200, chat.text
        assert chat.json()["choices"][0]["message"]["content"].strip() == "It is blue!"


@pytest.mark.parametrize("language", LANGUAGES)
def test_failing_script_reports_its_traceback(server: Serving, language: str) -> None:
    name = {"python": "colours.py", "javascript": "colours.js"}[language]
    events = server.events(script=script(language, FAILS, name=name), prompt="Hello")
    (fork,) = events[-1]["forks"]
    assert fork["finish_reason"] == "error" and fork["error"]["code"] == "failed"
    lines = fork["error"]["message"].splitlines()
    places = {
        "python": [f'File "{name}", line 6, in main', f'File "{name}", line 3, in inner'],
        "javascript": [f"at inner ({name}:3:", f"at main ({name}:6:"],
    }[language]
    found = [next(at for at, line in enumerate(lines) if place in line) for place in places]
    assert found == sorted(set(found)), lines
    cause = {"python": "KeyError: missing", "javascript": "ReferenceError: missing is not defined"}[language]
    assert any(cause in line for line in lines), lines
    in_a_step = [one for event in events[1:-1] for one in event["forks"] if "error" in one]
    assert [one["error"] for one in in_a_step] == [fork["error"]]
    with server.client() as client:
        answer = client.post("/v1/completions", json={"prompt": "Hello", "script": script(language, FAILS)})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "script", answer.text


@pytest.mark.parametrize("path", ["/v1/run", "/v1/completions"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_script_that_fails_at_the_start_is_refused_with_its_line(
    server: Serving, language: str, path: str
) -> None:
    sources = {"python": "x = 1\nnothing()\n", "javascript": "let x = 1;\nnothing();\n"}
    with server.client() as client:
        answer = client.post(path, json={"prompt": "a", "script": script(language, sources)})
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        assert (error["param"], error["code"]) == ("script.source", "argument")
        place = {"python": 'File "script.py", line 2', "javascript": "script.js:2:"}[language]
        assert any(place in line for line in error["message"].splitlines()[1:]), error["message"]


@pytest.mark.parametrize("path", ["/v1/run", "/v1/completions"])
@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({"script": {"source": "x"}}, "script.language", "required"),
        ({"script": {"language": "ruby", "source": "x"}}, "script.language", "'python' or 'javascript'"),
        ({"script": {"language": "python"}}, "script.source", "required"),
        ({"script": {"language": "python", "source": ""}}, "script.source", "at least 1"),
        ({"script": {"language": "python", "source": "x" * ((1 << 20) + 1)}}, "script.source", "1048576"),
        ({"script": {"language": "python", "source": "\ud800"}}, "script.source", "unicode"),
        ({"script": {"language": "python", "source": "x", "name": "a\nb"}}, "script.name", "pattern"),
        ({"script": {"language": "python", "source": "x", "name": "a" * 257}}, "script.name", "256"),
        ({"script": {"language": "python", "source": "x", "code": 1}}, "script.code", "no such field"),
        (
            {"script": {"language": "python", "source": "x", "arg": "a" * (1 << 20)}},
            "script.arg",
            "1048576 are allowed",
        ),
        ({"script": {"language": "python", "source": "x", "arg": ["\ud800"]}}, "script.arg", "surrogate"),
        ({"script": {"language": "python", "source": "x", "arg": float("nan")}}, "script.arg", "NaN"),
        ({"script": "x"}, "script", "JSON object"),
        ({"script": {"language": "python", "source": "x"}, "controller": "regex"}, "script", "controller"),
        (
            {"script": {"language": "python", "source": "x"}, "controller_arg": "a"},
            "controller_arg",
            "script.arg",
        ),
    ],
)
def test_invalid_scripts_are_refused(
    server: Serving, path: str, body: dict[str, Any], param: str, words: str
) -> None:
    with server.client() as client:
        content = json.dumps({"prompt": "a", **body})
        answer = client.post(path, content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == param and words in error["message"], error


def test_script_cannot_be_combined_with_a_constraint(server: Serving) -> None:
    body = {"prompt": "a", "script": {"language": "python", "source": "x"}, "regex": "a"}
    with server.client() as client:
        error = client.post("/v1/completions", json=body).json()["error"]
    assert error["message"] == "only one of script and regex can constrain an answer"
