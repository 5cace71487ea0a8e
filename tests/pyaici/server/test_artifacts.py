"""Controllers that requests name by references to a registry."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.servers.registry import running_registry
from lab.servers.tiny_model import make_tiny_model
from pyaici import artifacts
from pyaici.artifacts import Reference
from pyaici.bundled import find_controller
from tests.pyaici.server.serving import Serving

pytestmark = pytest.mark.skipif(
    shutil.which("docker-registry") is None, reason="no docker-registry: scripts/servers.sh fetches it"
)
SCRIPT = 'from aici import *\nasync def main():\n    await force("one of " + arg)\n'


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_registry(tmp_path_factory.mktemp("registry")) as address:
        yield address


@pytest.fixture(scope="module")
def server(
    registry: str, tokens: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("server")
    model = make_tiny_model(folder / "tiny")
    options = ("--users", tokens["file"], "--anonymous", "run", "--requests-per-minute", "0")
    allowed = ("--oci-allow", f"{registry}/team", "--max-upload-bytes", "1000000")
    with Serving(folder / "log", *options, *allowed, "--model", str(model)) as serving:
        yield serving


def push(registry: str, name: str, path: Path, text: str = "") -> str:
    """Pushes a file, with this text if there is one; returns the reference with its tag."""
    if text:
        path.write_text(text)
    artifacts.push(Reference.parse(f"{registry}/{name}"), path)
    return f"oci://{registry}/{name}"


def test_a_request_names_a_reference(registry: str, server: Serving, tmp_path: Path) -> None:
    reference = push(registry, "team/count:1", tmp_path / "count.py", SCRIPT)
    first = server.run(controller=reference, controller_arg='"many"', prompt="Which?")
    assert first["forks"][0]["text"] == "one of many" and first["forks"][0]["error"] is None
    push(registry, "team/count:1", tmp_path / "count.py", SCRIPT.replace("one", "two"))
    again = server.run(controller=reference, controller_arg='"many"', prompt="Which?")
    assert again["forks"][0]["text"] == "one of many", "a tag stays with its digest"
    module = push(registry, "team/deeper/yesno:2", find_controller("yesno"))
    assert server.run(controller=module, prompt="Is it?")["forks"][0]["text"].strip() in ("Yes", "No")


def test_what_was_pulled_belongs_to_its_user(
    registry: str, server: Serving, tokens: dict[str, str], tmp_path: Path
) -> None:
    """Each user has tags and uploads of his own; what he deletes is pulled again."""
    reference = push(registry, "team/own:1", tmp_path / "own.py", SCRIPT)
    body = {"controller": reference, "controller_arg": '"1"', "prompt": "Which?"}
    with server.client(tokens["ada"]) as ada, server.client(tokens["bob"]) as bob:
        assert ada.post("/v1/run", json=body).status_code == 200
        push(registry, "team/own:1", tmp_path / "own.py", SCRIPT.replace("one", "two"))
        assert "two of 1" in bob.post("/v1/run", json=body).text
        assert "one of 1" in ada.post("/v1/run", json=body).text
        (mine,) = [found for found in ada.get("/v1/controllers").json()["data"] if "ada" in found["owners"]]
        assert ada.delete(f"/v1/controllers/{mine['id']}").status_code == 200
        assert "two of 1" in ada.post("/v1/run", json=body).text


def test_other_registries_and_bad_artifacts_are_refused(
    registry: str, server: Serving, tmp_path: Path
) -> None:
    outside = push(registry, "others/count:1", tmp_path / "count.py", SCRIPT)
    huge = push(registry, "team/huge:1", tmp_path / "huge.wasm", "\0asm" + "x" * 1_000_000)
    broken = push(registry, "team/broken:1", tmp_path / "broken.wasm", "\0asm and no more")
    wrong = push(registry, "team/wrong:1", tmp_path / "wrong.py", "async def main(:\n")
    cases = {
        outside: "no registry that the server's operator allows",
        outside.replace("others", "teams"): "no registry that the server's operator allows",
        "oci://nothing": "no reference to an artifact",
        outside.replace("others", "team").replace(":1", ":none"): "has no",
        huge: "at most 1000000 are taken",
        broken: "",
        wrong: "SyntaxError",
    }
    with server.client() as client:
        for reference, problem in cases.items():
            answer = client.post("/v1/run", json={"controller": reference, "prompt": "Which?"})
            assert answer.status_code == 400, answer.text
            error = answer.json()["error"]
            assert problem in error["message"] and error["param"] == "controller", error
