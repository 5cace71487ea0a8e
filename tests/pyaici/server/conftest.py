"""A real server with the default model, and users of every role."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.servers.tiny_model import make_tiny_model
from pyaici.models.default import NAME
from pyaici.server.http.users import Role, UserFile
from pyaici.toolchain import build_controller
from tests.pyaici.server.serving import Serving

GUESTS = Path(__file__).resolve().parents[2] / "guests"


@pytest.fixture(scope="session")
def guest(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Builds tests/guests/guest.c, whose argument selects what it does."""
    path = tmp_path_factory.mktemp("guest") / "guest.wasm"
    return build_controller(GUESTS / "guest.c", path).path.read_bytes()


@pytest.fixture(scope="session")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Tokens of users: ada and bob may upload, root is an administrator, eve may run."""
    users = UserFile(tmp_path_factory.mktemp("users") / "users.json")
    roles = {"ada": Role.UPLOAD, "bob": Role.UPLOAD, "root": Role.ADMIN, "eve": Role.RUN}
    found = {name: users.add(name, role) for name, role in roles.items()}
    found["file"] = str(users.path)
    return found


@pytest.fixture(scope="session")
def server(
    tmp_path_factory: pytest.TempPathFactory, tokens: dict[str, str], guest: bytes
) -> Iterator[Serving]:
    """A server on which requests without a token may run, with the controller `guest` uploaded."""
    yield from _serve(tmp_path_factory, tokens, guest)


@pytest.fixture(scope="session")
def exact_server(
    tmp_path_factory: pytest.TempPathFactory, tokens: dict[str, str], guest: bytes
) -> Iterator[Serving]:
    """The same with random weights and the default model's tokenizer: it answers at once, and repeatably.

    The logits of llama.cpp differ in the last digits, by where the cache keeps the tokens.
    """
    model = make_tiny_model(tmp_path_factory.mktemp("tiny"))
    yield from _serve(tmp_path_factory, tokens, guest, "--model", str(model), "--model-name", NAME)


def _serve(
    tmp_path_factory: pytest.TempPathFactory, tokens: dict[str, str], guest: bytes, *engine: str
) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("server")
    options = ("--users", tokens["file"], "--anonymous", "run", "--requests-per-minute", "0", *engine)
    with Serving(folder / "log", *options) as serving:
        with serving.client(tokens["root"]) as root:
            uploaded = root.post("/v1/controllers", content=guest)
            assert uploaded.status_code == 201, uploaded.text
            tagged = root.put("/v1/tags/guest", json={"controller": uploaded.json()["id"]})
            assert tagged.status_code == 200, tagged.text
        yield serving
