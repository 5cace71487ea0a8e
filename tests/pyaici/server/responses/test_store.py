"""Stored responses: bounds in number, bytes and time, for each owner."""

from __future__ import annotations

from typing import Any

import pytest

from pyaici.server.apis.responses import routes
from pyaici.server.apis.responses.requests import ResponsesRequest
from pyaici.server.apis.responses.store import ResponseStore, StoredResponse
from pyaici.server.http.errors import ApiError
from pyaici.server.settings import ServerSettings


def _stored(size: int) -> StoredResponse:
    return StoredResponse(b"x" * size, b"")


def _has(store: ResponseStore, owner: str, name: str) -> bool:
    try:
        store.get(owner, name)
    except ApiError as error:
        assert error.status == 404
        return False
    return True


def test_items_of_many_large_responses_are_refused_before_they_are_parsed() -> None:
    """An id takes some bytes of a request, and the response with its item megabytes of log-probabilities."""
    output = b'[{"logprobs":[' + b"[]," * 30_000 + b"[]]}]"
    named = [StoredResponse(b"", b"", output, frozenset({f"m{number}"})) for number in range(3)]
    references = [{"type": "item_reference", "id": f"m{number}"} for number in range(3)]
    body = ResponsesRequest.model_validate({"input": references})
    nothing: Any = None
    with pytest.raises(ApiError, match="send some of the items themselves"):
        routes._plan(nothing, body, None, named, nothing)


def test_owner_with_the_most_bytes_makes_room() -> None:
    store = ResponseStore(ServerSettings(max_stored_bytes=40_000))
    assert store.put("bob", "b", _stored(4000))
    for number in range(20):
        assert store.put("ada", f"a{number}", _stored(5000))
    kept = [number for number in range(20) if _has(store, "ada", f"a{number}")]
    assert kept == [14, 15, 16, 17, 18, 19]
    assert _has(store, "bob", "b")
    assert not store.put("bob", "large", _stored(10_000)), "a quarter of all bytes is the most"
    assert not _has(store, "bob", "large")


def test_number_is_bounded_and_use_counts() -> None:
    store = ResponseStore(ServerSettings(max_stored=3))
    for name in "abc":
        store.put("ada", name, _stored(1))
    assert _has(store, "ada", "a")
    store.put("ada", "d", _stored(1))
    assert [name for name in "abcd" if _has(store, "ada", name)] == ["a", "c", "d"]
    assert not ResponseStore(ServerSettings(max_stored=0)).put("ada", "a", _stored(1))


def test_responses_expire_without_use() -> None:
    now = [0.0]
    store = ResponseStore(ServerSettings(stored_s=10), lambda: now[0])
    store.put("ada", "a", _stored(1))
    store.put("ada", "b", _stored(1))
    now[0] = 6
    assert _has(store, "ada", "a")
    now[0] = 11
    assert _has(store, "ada", "a") and not _has(store, "ada", "b")


def test_other_owners_find_nothing() -> None:
    store = ResponseStore(ServerSettings())
    store.put("ada", "a", _stored(1))
    for call in (store.get, store.delete):
        with pytest.raises(ApiError, match="there is no response 'a'"):
            call("bob", "a")
    store.delete("ada", "a")
    assert not _has(store, "ada", "a")
