"""Uploaded scripts: roles, refused scripts, tags and runs."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx2
import pytest

from tests.pyaici.server.serving import Serving
from tests.pyaici.server.test_scripts import FAILS, LANGUAGES, WELL


@pytest.fixture
def ada(server: Serving, tokens: dict[str, str]) -> Iterator[httpx2.Client]:
    with server.client(tokens["ada"]) as client:
        yield client


@pytest.mark.parametrize("language", LANGUAGES)
def test_uploaded_script_is_a_controller_like_others(
    server: Serving, tokens: dict[str, str], ada: httpx2.Client, language: str
) -> None:
    body = {"language": language, "source": WELL[language], "name": "well"}
    uploaded = ada.post("/v1/scripts", json=body)
    assert uploaded.status_code == 201, uploaded.text
    stored = uploaded.json()
    assert stored["object"] == "controller" and stored["owners"] == ["ada"] and stored["tags"] == []
    assert (stored["language"], stored["script"], stored["size"]) == (language, "well", len(WELL[language]))
    assert stored["interpreter"] != stored["id"]
    assert ada.post("/v1/scripts", json=body).json() == stored, "uploading it again changes nothing"

    tag = f"well-{language}"
    assert ada.put(f"/v1/tags/{tag}", json={"controller": stored["id"]}).json()["tags"] == [tag]
    for name in (tag, stored["id"], stored["id"][:12]):
        for arg in ({"words": ["blue"]}, '{"words": ["blue"]}'):
            run = server.run(controller=name, controller_arg=arg, prompt="The sky?")
            assert run["forks"][0]["text"] == " It is blue!" and run["variables"] == {"said": "blue"}
    with server.client(tokens["eve"]) as eve:
        answer = eve.post(
            "/v1/completions",
            json={
                "model": "default", "prompt": "The sky?", "max_tokens": 20,
                "controller": tag, "controller_arg": {"words": ["blue"]},
            },
        )  # fmt: skip
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["text"] == " It is blue!"
        assert [found["id"] for found in eve.get("/v1/controllers").json()["data"] if found["tags"] == [tag]]
        assert eve.get(f"/v1/controllers/{tag}").json() == {**stored, "tags": [tag]}
        assert eve.delete(f"/v1/controllers/{tag}").status_code == 403

    assert ada.delete(f"/v1/tags/{tag}").status_code == 200
    assert ada.delete(f"/v1/controllers/{stored['id']}").status_code == 200
    assert ada.get(f"/v1/controllers/{stored['id']}").status_code == 404
    with server.client() as client:
        gone = client.post("/v1/run", json={"controller": stored["id"], "prompt": "The sky?"})
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "unknown_controller")


@pytest.mark.parametrize(
    ("change", "param", "message"),
    [
        ({"language": "ruby"}, "language", "'python' or 'javascript'"),
        ({"source": ""}, "source", "at least 1 character"),
        ({"source": "\ud800"}, "source", "unicode"),
        ({"name": "a\nb"}, "name", "pattern"),
        ({"arg": 7}, "arg", ""),
        ({"source": "async def main(:\n"}, "source", 'File "script.py", line 1\nSyntaxError'),
        ({"source": "x = 1\n  y = 2\n"}, "source", "line 2\nIndentationError"),
    ],
)
def test_invalid_scripts_are_refused_and_not_stored(
    ada: httpx2.Client, change: dict[str, object], param: str, message: str
) -> None:
    before = ada.get("/v1/controllers").json()
    # as ASCII: the client of this test could not encode the surrogate
    body = json.dumps({"language": "python", "source": WELL["python"], **change})
    answer = ada.post("/v1/scripts", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == param and message in error["message"]
    assert ada.get("/v1/controllers").json() == before


def test_scripts_that_fail_without_an_argument_are_stored(ada: httpx2.Client, server: Serving) -> None:
    """The server stores a script whose top level needs an argument, and one whose `main` fails."""
    needs = "from aici import *\nWORD = arg['word']\nasync def main():\n    await force(WORD)\n"
    stored = ada.post("/v1/scripts", json={"language": "python", "source": needs}).json()["id"]
    run = server.run(controller=stored, controller_arg={"word": "Yes"}, prompt="?")
    assert run["forks"][0]["text"] == "Yes"
    refused = ada.post("/v1/run", json={"controller": stored, "prompt": "?"})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "controller_arg"
    assert 'File "script.py", line 2' in refused.json()["error"]["message"]
    stored = ada.post("/v1/scripts", json={"language": "python", "source": FAILS["python"]}).json()["id"]
    (fork,) = server.run(controller=stored, prompt="?")["forks"]
    assert fork["error"]["code"] == "failed" and 'File "script.py", line 3' in fork["error"]["message"]


def test_script_without_its_interpreter_is_an_error(
    ada: httpx2.Client, server: Serving, tokens: dict[str, str]
) -> None:
    stored = ada.post("/v1/scripts", json={"language": "javascript", "source": WELL["javascript"]}).json()
    with server.client(tokens["root"]) as root:
        assert root.delete(f"/v1/controllers/{stored['interpreter']}").status_code == 200
    body = {"controller": stored["id"], "controller_arg": "1e999", "prompt": "?"}
    error = ada.post("/v1/run", json=body).json()["error"]
    assert (error["code"], error["param"]) == ("module", "controller")
    assert "needs its interpreter" in error["message"]
    again = ada.post("/v1/scripts", json={"language": "javascript", "source": WELL["javascript"]})
    assert again.json() == stored, "the upload also uploads the interpreter"
    (fork,) = ada.post("/v1/run", json={**body, "stream": False}).json()["forks"]
    assert fork["error"]["code"] == "failed", "a text has no words"


def test_uploading_a_script_needs_the_role_upload(server: Serving, tokens: dict[str, str]) -> None:
    for token, status in ((tokens["eve"], 403), (None, 401)):
        with server.client(token) as client:
            answer = client.post("/v1/scripts", json={"language": "python", "source": WELL["python"]})
        assert answer.status_code == status, answer.text
