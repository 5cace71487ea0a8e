"""Settings of the tools process."""

from __future__ import annotations

import pytest

from aicirt.contract.errors import AiciError
from pyaici.tools.settings import McpPlace, ToolSettings, check, server_environment


def test_places() -> None:
    assert McpPlace.parse("calc=python 'my calc.py' -x") == McpPlace("calc", ("python", "my calc.py", "-x"))
    url = "https://example.org/mcp?key=a=b"
    assert McpPlace.parse(f"remote={url}") == McpPlace("remote", url=url)
    with_header = McpPlace.parse(f"remote={url} authorization=env:TOKEN x-team=env:TEAM")
    assert with_header.headers == (("authorization", "TOKEN"), ("x-team", "TEAM"))
    assert with_header.header_values({"TOKEN": "Bearer a", "TEAM": "b", "HOME": "/"}) == {
        "authorization": "Bearer a",
        "x-team": "b",
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("calc", "write NAME=COMMAND"),
        ("=x", "write NAME=COMMAND"),
        ("a.b=x", "write NAME=COMMAND"),
        ("aici=x", "is not aici"),
        ("calc=", "no command after the ="),
        ("calc='x", "cannot be read: No closing quotation"),
        ("calc=https://example.org/mcp authorization=Bearer", "write HEADER=env:VARIABLE"),
        ("calc=https://example.org/mcp host=env:HOME", "the header host belongs to the protocol"),
        ("calc=https://example.org/mcp a=env:NOT_THERE", "has no variable NOT_THERE for the header a"),
        ("calc=https://example.org/mcp a=env:AICI_TOKEN", "has no variable AICI_TOKEN"),
    ],
)
def test_places_that_cannot_be_read(text: str, problem: str) -> None:
    with pytest.raises(AiciError, match=problem):
        check(ToolSettings((text,)))


def test_messages_have_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hidden\nx-other: 1")
    for text in ("authorization=hidden", "authorization=env:SECRET"):
        with pytest.raises(AiciError) as refused:
            check(ToolSettings((f"calc=https://example.org/mcp {text}",)))
        assert "hidden" not in str(refused.value)


def test_settings_that_contradict_each_other() -> None:
    with pytest.raises(AiciError, match="two MCP servers have this name"):
        check(ToolSettings(("a=x", "a=y")))
    with pytest.raises(AiciError, match="must be positive"):
        check(ToolSettings(("a=x",), seconds=0))
    with pytest.raises(AiciError, match=r"--http-allow ftp://example\.org: it does not begin with http://"):
        check(ToolSettings(http_allow=("ftp://example.org",)))


def test_settings_travel_as_json() -> None:
    settings = ToolSettings(("a=x",), ("https://example.org/",), 3, 4.5, "json", "debug")
    assert ToolSettings.from_wire(settings.to_wire()) == settings


def test_servers_get_no_settings_or_tokens_of_ours() -> None:
    ours = {"AICI_SERVE_USERS": "1", "AICI_TOKEN": "1", "HF_TOKEN": "1", "HUGGING_FACE_HUB_TOKEN": "1"}
    theirs = {"PATH": "/bin", "GITHUB_TOKEN": "1", "HF_HOME": "/models"}
    assert server_environment(ours | theirs) == theirs
