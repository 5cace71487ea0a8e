"""Two replicas of a server with a shared store: what is uploaded, tagged or removed at one, the other has."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.servers.tiny_model import make_tiny_model
from lab.system.waiting import wait_until
from pyaici.bundled import find_controller
from tests.pyaici.server.serving import Serving

SCRIPT = 'from aici import *\nasync def main():\n    await force("one of " + arg)\n'


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def replicas(
    shared: Path, tokens: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Serving, Serving]]:
    folder = tmp_path_factory.mktemp("replicas")
    model = make_tiny_model(folder / "tiny")
    options = ("--users", tokens["file"], "--anonymous", "run", "--requests-per-minute", "0")
    where = ("--shared-store", str(shared), "--model", str(model))
    with (
        Serving(folder / "first", *options, *where) as first,
        Serving(folder / "second", *options, *where) as second,
    ):
        yield first, second


@pytest.fixture
def call(replicas: tuple[Serving, Serving], tokens: dict[str, str]) -> Callable[..., Any]:
    """Sends a request to a replica as a user, and checks its status."""

    def send(replica: int, user: str, method: str, path: str, status: int = 200, **body: Any) -> Any:
        with replicas[replica].client(tokens[user]) as client:
            answer = client.request(method, path, **body)
        assert answer.status_code == status, answer.text
        return answer.json()

    return send


def text_of(answer: Any) -> str:
    return str(answer["forks"][0]["text"])


def test_uploads_are_used_everywhere(
    replicas: tuple[Serving, Serving], call: Callable[..., Any], shared: Path
) -> None:
    body = {"language": "python", "source": SCRIPT}
    script = call(0, "ada", "POST", "/v1/scripts", 201, json=body)["id"]
    assert text_of(replicas[1].run(controller=script, controller_arg='"1"', prompt="?")) == "one of 1"
    wasm = find_controller("yesno").read_bytes() + b"\x00\x01\x00"  # an empty section: another id
    module = call(1, "bob", "POST", "/v1/controllers", 201, content=wasm)["id"]
    assert module == hashlib.sha256(wasm).hexdigest()
    for replica in replicas:
        assert text_of(replica.run(controller=module, prompt="Is it?")).strip() in ("Yes", "No")
    call(0, "ada", "PUT", "/v1/tags/mine", json={"controller": script})
    assert text_of(replicas[1].run(controller="mine", controller_arg='"2"', prompt="?")) == "one of 2"
    for replica in (0, 1):
        found = {one["id"]: one for one in call(replica, "ada", "GET", "/v1/controllers")["data"]}
        assert found[script]["owners"] == ["ada"] and found[script]["tags"] == ["mine"]
        assert module not in found, "it is bob's, and has no tag"
        about = call(replica, "bob", "GET", f"/v1/controllers/{module[:12]}")
        assert about["owners"] == ["bob"] and about["callbacks"] == ["init", "mid"]
    call(1, "bob", "PUT", "/v1/tags/mine", 403, json={"controller": module})
    call(1, "bob", "PUT", "/v1/tags/regex", 400, json={"controller": module})
    # a tag that moves, and bundled controllers, which every replica has
    call(1, "ada", "PUT", "/v1/tags/mine", json={"controller": "yesno"})
    yesno = {"controller": "mine", "prompt": "Is it?"}
    wait_until(lambda: text_of(replicas[0].run(**yesno)).strip() in ("Yes", "No"))
    assert sorted(path.name for path in (shared / "users" / "ada" / "tags").iterdir()) == ["mine"]


def test_what_is_removed_is_gone_everywhere(
    replicas: tuple[Serving, Serving], call: Callable[..., Any]
) -> None:
    body = {"language": "python", "source": SCRIPT.replace("one", "two")}
    script = call(0, "ada", "POST", "/v1/scripts", 201, json=body)["id"]
    call(1, "ada", "PUT", "/v1/tags/short", json={"controller": script})
    run = {"controller": "short", "controller_arg": '"2"', "prompt": "?"}
    assert text_of(replicas[1].run(**run)) == "two of 2"
    call(1, "bob", "DELETE", f"/v1/controllers/{script}", 403)
    call(1, "ada", "DELETE", f"/v1/controllers/{script}", 400)
    call(1, "ada", "DELETE", "/v1/tags/short")
    call(1, "ada", "DELETE", f"/v1/controllers/{script}")
    for number in (0, 1):
        with replicas[number].client() as client:
            for name in ("short", script):
                known = {**run, "controller": name}
                wait_until(lambda known=known: client.post("/v1/run", json=known).status_code == 404)
        call(number, "ada", "GET", f"/v1/controllers/{script}", 404)


def test_a_damaged_store_is_a_typed_error(
    replicas: tuple[Serving, Serving], call: Callable[..., Any], shared: Path
) -> None:
    body = {"language": "python", "source": SCRIPT.replace("one", "three")}
    script = call(0, "ada", "POST", "/v1/scripts", 201, json=body)["id"]
    stored = shared / "controllers" / script / "script.json"
    stored.write_text(stored.read_text().replace("three", "four"))
    with replicas[1].client() as client:
        answer = client.post("/v1/run", json={"controller": script, "prompt": "?"})
    assert answer.status_code == 503 and answer.json()["error"]["code"] == "shared_store"
    assert str(shared) not in answer.text
    assert "is damaged" in replicas[1].text()
    # the replica that it was uploaded to has its own copy
    run = {"controller": script, "controller_arg": '"3"', "prompt": "?"}
    assert text_of(replicas[0].run(**run)) == "three of 3"
    assert json.loads(stored.read_text()), "nothing was overwritten"
