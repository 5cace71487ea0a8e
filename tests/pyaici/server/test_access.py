"""Users, roles, tokens, and request rates."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aicirt.contract.errors import AiciError
from pyaici.server.http.access import Gate
from pyaici.server.http.errors import ApiError
from pyaici.server.http.users import RELOAD_SECONDS, Role, User, UserFile, hash_token
from pyaici.server.settings import ServerSettings
from tests.pyaici.server.serving import Serving


def _request(token: str | None = None, address: str = "10.0.0.1", header: str = "authorization") -> Any:
    value = f"Bearer {token}" if header == "authorization" else token
    headers = {} if token is None else {header: value}
    return SimpleNamespace(headers=headers, client=SimpleNamespace(host=address))


@pytest.fixture
def users(tmp_path: Path) -> UserFile:
    return UserFile(tmp_path / "users.json")


def test_user_file_is_private_and_has_only_hashes(users: UserFile) -> None:
    token = users.add("ada", Role.UPLOAD)
    text = users.path.read_text()
    assert token not in text and hash_token(token) in text
    assert users.path.stat().st_mode & 0o077 == 0
    found = users.find(token)
    assert found is not None and (found.name, found.role) == ("ada", Role.UPLOAD)
    assert users.find(token + "x") is None and users.find("") is None


def test_removed_user_becomes_unknown(users: UserFile, monkeypatch: pytest.MonkeyPatch) -> None:
    token = users.add("ada", Role.RUN)
    serving = UserFile(users.path)
    assert serving.find(token) is not None
    users.remove("ada")
    now = 1e9
    monkeypatch.setattr("pyaici.server.http.users.time.monotonic", lambda: now + 2 * RELOAD_SECONDS)
    assert serving.find(token) is None


def test_new_user_is_known_immediately(users: UserFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyaici.server.http.users.time.monotonic", lambda: 1e9)
    serving = UserFile(users.path)
    assert serving.find("wrong") is None
    token = users.add("ada", Role.RUN)
    assert serving.find(token) is not None


@pytest.mark.parametrize("name", ["", "Ada", "a b", "-a", "a" * 33, "a\n"])
def test_invalid_user_names_are_refused(users: UserFile, name: str) -> None:
    with pytest.raises(AiciError, match="name"):
        users.add(name, Role.RUN)


def test_reserved_user_names_are_refused_with_the_reason(users: UserFile) -> None:
    with pytest.raises(AiciError, match="'local' is that of the server itself"):
        users.add("local", Role.RUN)
    for name in ("anonymous", "anonymous-2"):
        with pytest.raises(AiciError, match="begin with 'anonymous' are those of requests without a token"):
            users.add(name, Role.RUN)
    assert users.add("localhost", Role.RUN)


def test_user_names_are_unique(users: UserFile) -> None:
    users.add("ada", Role.RUN)
    with pytest.raises(AiciError, match="already"):
        users.add("ada", Role.ADMIN)
    with pytest.raises(AiciError, match="no user 'bob'"):
        users.remove("bob")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"users": [{"name": "a"}]}', '{"users": [1]}'])
def test_damaged_user_file_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "users.json"
    path.write_text(text)
    with pytest.raises(AiciError, match="aici users"):
        UserFile(path)


def test_unknown_role_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    entry = {"name": "ada", "role": "king", "token_sha256": "0", "created": 0}
    path.write_text(json.dumps({"users": [entry]}))
    with pytest.raises(AiciError):
        UserFile(path)


def test_without_users_anyone_may_run_and_tokens_are_ignored() -> None:
    gate = Gate(ServerSettings())
    assert gate.admit(_request(), Role.RUN).name == "anonymous"
    assert gate.admit(_request("sk-whatever"), Role.RUN).name == "anonymous"
    for token in (None, "sk-whatever"):
        with pytest.raises(ApiError, match=r"start it with --anonymous upload, or with --users") as error:
            gate.admit(_request(token), Role.UPLOAD)
        assert error.value.status == 403 and "Bearer" not in error.value.message
    assert Gate(ServerSettings(anonymous="upload")).admit(_request(), Role.UPLOAD).name == "anonymous"


def test_with_users_requests_need_a_token(users: UserFile) -> None:
    token = users.add("ada", Role.RUN)
    gate = Gate(ServerSettings(users=users.path))
    assert gate.admit(_request(token), Role.RUN).name == "ada"
    assert gate.admit(_request(token, header="x-api-key"), Role.RUN).name == "ada"
    for request, needed, status in (
        (_request(), Role.RUN, 401),
        (_request("wrong"), Role.RUN, 401),
        (_request(token), Role.UPLOAD, 403),
    ):
        with pytest.raises(ApiError) as error:
            gate.admit(request, needed)
        assert error.value.status == status
        assert ("--token or $AICI_TOKEN" in error.value.message) == (status == 401)


def test_request_rate_is_counted_for_each_caller(users: UserFile, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("pyaici.server.http.access.time.monotonic", lambda: now[0])
    token = users.add("ada", Role.RUN)
    gate = Gate(ServerSettings(users=users.path, anonymous="run", requests_per_minute=60))
    for _ in range(10):
        gate.admit(_request(), Role.RUN)
    with pytest.raises(ApiError) as error:
        gate.admit(_request(), Role.RUN)
    assert error.value.status == 429 and error.value.headers["Retry-After"] == "1"
    gate.admit(_request(address="10.0.0.2"), Role.RUN)
    gate.admit(_request(token), Role.RUN)
    now[0] += 2
    gate.admit(_request(), Role.RUN)
    gate.admit(_request(), Role.RUN)
    with pytest.raises(ApiError):
        gate.admit(_request(), Role.RUN)


def test_refused_requests_count_towards_the_rate(users: UserFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyaici.server.http.access.time.monotonic", lambda: 1000.0)
    token = users.add("ada", Role.RUN)
    gate = Gate(ServerSettings(users=users.path, requests_per_minute=60))
    for request, first in (
        (_request("wrong"), 401),
        (_request(address="10.0.0.2"), 401),
        (_request(token), 403),
    ):
        seen = []
        for _ in range(11):
            with pytest.raises(ApiError) as error:
                gate.admit(request, Role.UPLOAD)
            seen.append(error.value.status)
        assert seen == [first] * 10 + [429] and error.value.headers["Retry-After"] == "1"
    other = users.add("bob", Role.RUN)
    assert gate.admit(_request(other), Role.RUN).name == "bob", "a valid token from the same address works"


def test_number_of_remembered_callers_is_bounded(users: UserFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyaici.server.http.access._REMEMBERED", 50)
    gate = Gate(ServerSettings(users=users.path, requests_per_minute=60))
    for number in range(200):
        with pytest.raises(ApiError):
            gate.admit(_request(f"wrong{number}", address=f"10.0.{number}.1"), Role.RUN)
    assert len(gate._left) == 50


def test_callers_without_a_token_are_told_apart_by_address() -> None:
    gate = Gate(ServerSettings(anonymous="run"))
    one, other = gate.admit(_request(), Role.RUN), gate.admit(_request(address="10.0.0.2"), Role.RUN)
    assert one.name == other.name == "anonymous" and one.caller != other.caller and one.owner != other.owner
    assert User("10.0.0.1", Role.RUN).caller != one.caller


def test_roles_over_http(server: Serving, tokens: dict[str, str]) -> None:
    for token, status in ((None, 401), ("wrong", 401), (tokens["eve"], 403)):
        with server.client(token) as client:
            answer = client.post("/v1/controllers", content=b"x")
            assert answer.status_code == status, answer.text
            assert ("WWW-Authenticate" in answer.headers) == (status == 401)
    with server.client(tokens["eve"]) as eve:
        assert eve.get("/v1/controllers").status_code == 200
