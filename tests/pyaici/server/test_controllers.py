"""Uploading, listing, tagging, describing and deleting controllers, and their ownership."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pyaici.bundled import bundled_controllers
from tests.pyaici.server.serving import Serving


@pytest.fixture(scope="module")
def wasm() -> bytes:
    """A controller that no other test uploads: a custom section makes it unique."""
    name = b"mine"
    section = bytes([0, 1 + len(name), len(name)]) + name
    return bundled_controllers()["yesno"].read_bytes() + section


def test_controller_from_upload_to_deletion(server: Serving, tokens: dict[str, str], wasm: bytes) -> None:
    with server.client(tokens["ada"]) as ada:
        uploaded = ada.post("/v1/controllers", content=wasm)
        assert uploaded.status_code == 201, uploaded.text
        described = uploaded.json()
        assert described["id"] == hashlib.sha256(wasm).hexdigest()
        assert described["owners"] == ["ada"] and described["size"] == len(wasm)
        assert described["created"] > 0 and "mid" in described["callbacks"]
        module = described["id"]
        assert ada.put("/v1/tags/ada.answer", json={"controller": module}).json()["tags"] == ["ada.answer"]
        assert ada.get("/v1/controllers/ada.answer").json()["id"] == module
        assert module in [found["id"] for found in ada.get("/v1/controllers").json()["data"]]
        body = {"controller": "ada.answer", "prompt": "Is the sky blue?", "stream": False}
        ran = ada.post("/v1/run", json=body)
        assert ran.json()["forks"][0]["text"] in ("Yes", "No", " Yes", " No"), ran.text
        refused = ada.delete(f"/v1/controllers/{module}")
        assert refused.status_code == 400 and "ada.answer" in refused.json()["error"]["message"]
        assert ada.delete("/v1/tags/ada.answer").status_code == 200
        assert ada.delete(f"/v1/controllers/{module}").json() == {"object": "deleted", "id": module}
        gone = ada.get(f"/v1/controllers/{module}")
        assert gone.status_code == 404 and gone.json()["error"]["code"] == "unknown_controller"
        assert ada.post("/v1/run", json=body).status_code == 404


def test_user_cannot_change_another_users_controllers_or_tags(
    server: Serving, tokens: dict[str, str], wasm: bytes
) -> None:
    with server.client(tokens["ada"]) as ada, server.client(tokens["bob"]) as bob:
        module = ada.post("/v1/controllers", content=wasm).json()["id"]
        ada.put("/v1/tags/shared", json={"controller": module}).raise_for_status()
        for answer in (
            bob.put("/v1/tags/shared", json={"controller": "guest"}),
            bob.delete("/v1/tags/shared"),
            bob.delete(f"/v1/controllers/{module}"),
        ):
            error = answer.json()["error"]
            assert answer.status_code == 403, answer.text
            assert (error["type"], error["code"]) == ("permission_error", "not_owner")
        # a second uploader of the same file also owns it, and can only remove their own upload
        assert bob.post("/v1/controllers", content=wasm).json()["owners"] == ["ada", "bob"]
        assert bob.delete(f"/v1/controllers/{module}").status_code == 200
        assert ada.get(f"/v1/controllers/{module}").json()["owners"] == ["ada"]
        with server.client(tokens["root"]) as root:
            assert root.delete(f"/v1/controllers/{module}").status_code == 200
        assert ada.get("/v1/controllers/shared").status_code == 404


def test_controller_is_removed_with_the_last_tag_of_another_user(
    server: Serving, tokens: dict[str, str], wasm: bytes
) -> None:
    with server.client(tokens["ada"]) as ada, server.client(tokens["bob"]) as bob:
        module = ada.post("/v1/controllers", content=wasm).json()["id"]
        bob.put("/v1/tags/kept", json={"controller": module}).raise_for_status()
        ada.delete(f"/v1/controllers/{module}").raise_for_status()
        assert bob.get("/v1/controllers/kept").json()["owners"] == [], "bob still uses it"
        body = {"controller": "kept", "prompt": "Is the sky blue?", "stream": False}
        assert bob.post("/v1/run", json=body).status_code == 200
        bob.delete("/v1/tags/kept").raise_for_status()
        assert bob.get(f"/v1/controllers/{module}").status_code == 404
        assert bob.post("/v1/run", json={**body, "controller": module}).status_code == 404


def test_deleted_bundled_controllers_are_uploaded_again(server: Serving, tokens: dict[str, str]) -> None:
    """An administrator may delete one; the server then uploads it again."""
    body: dict[str, Any] = {"controller": "uppercase", "prompt": "Hello", "max_tokens": 2}
    before = server.run(**body)
    module = hashlib.sha256(bundled_controllers()["uppercase"].read_bytes()).hexdigest()
    with server.client(tokens["root"]) as root:
        for use in ("run", "tag"):
            assert root.delete(f"/v1/controllers/{module}").status_code == 200
            if use == "run":
                assert server.run(**body)["forks"] == before["forks"]
            else:
                assert root.put("/v1/tags/loud", json={"controller": "uppercase"}).status_code == 200
        assert root.delete("/v1/tags/loud").status_code == 200


def test_list_shows_own_and_tagged_controllers(server: Serving, tokens: dict[str, str], wasm: bytes) -> None:
    def listed(name: str) -> list[str]:
        with server.client(tokens[name]) as client:
            return [found["id"] for found in client.get("/v1/controllers").json()["data"]]

    with server.client(tokens["ada"]) as ada:
        module = ada.post("/v1/controllers", content=wasm).json()["id"]
        assert module in listed("ada") and module in listed("root")
        assert module not in listed("bob")
        ada.put("/v1/tags/seen", json={"controller": module}).raise_for_status()
        assert module in listed("bob")
        names = {found["name"] for found in ada.get("/v1/controllers").json()["bundled"]}
        assert names == set(bundled_controllers())
        ada.delete("/v1/tags/seen").raise_for_status()
        ada.delete(f"/v1/controllers/{module}").raise_for_status()


def test_requests_do_not_share_variables(server: Serving, tokens: dict[str, str]) -> None:
    """Two users run at the same time; their variables have the same names."""

    def run(name: str, size: int) -> dict[str, Any]:
        body = {"controller": "guest", "controller_arg": f"keep {size}", "prompt": "x", "max_tokens": 20}
        with server.client(tokens[name]) as client:
            return dict(client.post("/v1/run", json={**body, "stream": False}).json()["variables"])

    with ThreadPoolExecutor(4) as threads:
        calls = [threads.submit(run, name, size) for size, name in enumerate(["ada", "bob"] * 4, 1)]
        found = [call.result() for call in calls]
    assert [len(variables["v"]) for variables in found] == list(range(1, 9))


@pytest.mark.parametrize(
    ("content", "status", "words"),
    [
        (b"", 400, "empty"),
        (b"\0asm", 400, "module"),
        (b"GIF89a" * 100, 400, "WebAssembly"),
        (b"\0" * (17 << 20), 413, "larger than"),
    ],
    ids=["nothing", "cut off", "no module", "too large"],
)
def test_invalid_uploads_are_refused(
    server: Serving, tokens: dict[str, str], content: bytes, status: int, words: str
) -> None:
    with server.client(tokens["ada"]) as ada:
        answer = ada.post("/v1/controllers", content=content)
        assert answer.status_code == status
        assert words in answer.json()["error"]["message"], answer.text


def test_tags_cannot_be_names_of_bundled_controllers(server: Serving, tokens: dict[str, str]) -> None:
    with server.client(tokens["root"]) as root:
        answer = root.put("/v1/tags/regex", json={"controller": "guest"})
        assert answer.status_code == 400 and "bundled" in answer.json()["error"]["message"]
        assert root.put("/v1/tags/Bad Name", json={"controller": "guest"}).status_code == 400
        assert root.put("/v1/tags/good", json={"controller": "nobody"}).status_code == 404


def test_list_is_split_into_pages(server: Serving, tokens: dict[str, str], wasm: bytes) -> None:
    with server.client(tokens["ada"]) as ada:
        source = "async def main():\n    pass  # {}"
        scripts = [{"language": "python", "name": "s.py", "source": source.format(n)} for n in range(3)]
        own = sorted(ada.post("/v1/scripts", json=script).json()["id"] for script in scripts)
        try:
            whole = ada.get("/v1/controllers").json()
            ids = [found["id"] for found in whole["data"]]
            assert ids == sorted(ids) and set(own) <= set(ids) and whole["has_more"] is False
            found, after = [], ""
            while True:
                page = ada.get("/v1/controllers", params={"limit": 2, "after": after}).json()
                found += [module["id"] for module in page["data"]]
                assert page["bundled"] == whole["bundled"]
                if not page["has_more"]:
                    break
                assert len(page["data"]) == 2
                after = found[-1]
            assert found == ids
            with server.client(tokens["root"]) as root:
                assert set(own) <= {module["id"] for module in root.get("/v1/controllers").json()["data"]}
            for limit in (0, 1001, "x"):
                assert ada.get("/v1/controllers", params={"limit": limit}).status_code == 400
        finally:
            for module in own:
                ada.delete(f"/v1/controllers/{module}").raise_for_status()
