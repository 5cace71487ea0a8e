"""Compilers, a browser and a clang are fetched once, and found where they are installed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.scripts.support import (
    ROOT,
    program,
    run,
)


@pytest.fixture
def languages(checkout: Path, tools: Path) -> Path:
    """`scripts/languages.sh`, where nothing can be fetched."""
    template = Path("pyaici") / "cli" / "templates" / "assemblyscript"
    shutil.copytree(ROOT / template, checkout / template)
    return checkout / "scripts" / "languages.sh"


def test_installed_compilers_are_not_fetched(languages: Path, tools: Path, tmp_path: Path) -> None:
    libraries = tmp_path / "lib"
    libraries.mkdir()
    program(tools / "cargo", "exit 9")
    program(
        tools / "rustc",
        f'[ "$*" = "--print target-libdir --target wasm32-unknown-unknown" ] && echo {libraries}',
    )
    program(tools / "asc", "exit 9")
    missing = run(languages, path=tools, HOME=str(tmp_path))
    assert (missing.returncode, missing.stdout) == (1, ""), "the target needs its library"
    assert "rustup target add wasm32-unknown-unknown" in missing.stderr
    (libraries / "libstd-0123.rlib").touch()
    found = run(languages, path=tools, HOME=str(tmp_path))
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_compilers_that_cannot_be_fetched_are_named(languages: Path, tools: Path, tmp_path: Path) -> None:
    done = run(languages, path=tools, HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot fetch Rust for Wasm" in done.stderr
    assert "cannot fetch AssemblyScript" in done.stderr
    assert [path.name for path in (tmp_path / ".cache" / "aici" / "languages").iterdir()] == [".lock"]


def test_fetched_compilers_are_kept(languages: Path, tools: Path, tmp_path: Path) -> None:
    fetch = f'echo "$@" >>"{tmp_path}/npm"; cat "${{@: -1}}/package-lock.json" >>"{tmp_path}/locks"'
    program(tools / "npm", fetch)
    for name in ("mv", "tail"):
        (tools / name).symlink_to(shutil.which(name) or name)
    for _ in range(2):
        done = run(languages, path=tools, HOME=str(tmp_path))
        assert done.stdout == f"{tmp_path}/.cache/aici/languages/assemblyscript/node_modules/.bin:"
        assert done.returncode == 1, "there is still no Rust"
    (command,) = (tmp_path / "npm").read_text().splitlines()
    assert re.search(r"^ci .*--prefix \S+/assemblyscript$", command)
    assert "sha512-" in (tmp_path / "locks").read_text()


@pytest.fixture
def browser(checkout: Path, tools: Path) -> Path:
    """`scripts/browser.sh`, where nothing can be fetched."""
    return checkout / "scripts" / "browser.sh"


@pytest.mark.parametrize(
    ("script", "name"),
    [
        *(("browser", name) for name in ("chromium", "chromium-browser", "google-chrome")),
        ("servers", "docker-registry"),
    ],
)
def test_installed_tool_is_not_fetched(
    checkout: Path, tools: Path, tmp_path: Path, script: str, name: str
) -> None:
    program(tools / name, "exit 9")
    found = run(checkout / "scripts" / f"{script}.sh", path=tools, HOME=str(tmp_path))
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("script", "what"),
    [("browser", "Chromium"), ("servers", "docker-registry"), ("clang", "clang for 32 bits")],
)
def test_tool_that_cannot_be_fetched_is_named(
    checkout: Path, tools: Path, tmp_path: Path, script: str, what: str
) -> None:
    done = run(checkout / "scripts" / f"{script}.sh", path=tools, HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"cannot fetch {what}" in done.stderr
    assert [path.name for path in (tmp_path / ".cache" / "aici").iterdir()] == [f"{script}.lock"]


def test_browser_that_does_not_work_is_not_kept(browser: Path, tools: Path, tmp_path: Path) -> None:
    """In some distributions the package contains no browser."""
    for name in ("id", "readlink", "timeout", "grep", "chmod", "mv"):
        (tools / name).symlink_to(shutil.which(name) or name)
    program(
        tools / "apt-get",
        'case "$*" in *--simulate*) echo "Inst chromium (1)" ;; *download*) >chromium.deb ;; esac',
    )
    program(tools / "dpkg-deb", "mkdir -p $3/usr/lib/chromium; echo 'exit 1' >$3/usr/lib/chromium/chromium")
    done = run(browser, path=tools, HOME=str(tmp_path))
    assert done.returncode == 1 and "cannot fetch Chromium" in done.stderr
    works = "echo '#!/bin/sh' >{0}; echo \"echo '<html></html>'\" >>{0}; chmod +x {0}"
    made = "$3/usr/lib/chromium/chromium"
    program(tools / "dpkg-deb", f"mkdir -p ${{3}}/usr/lib/chromium; {works.format(made)}")
    done = run(browser, path=tools, HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/.cache/aici/browser/bin:"), done.stderr
    (tools / "apt-get").unlink()
    assert run(browser, path=tools, HOME=str(tmp_path)).stdout == done.stdout, "the browser is kept"


def test_fetched_clang_is_kept(checkout: Path, tools: Path, tmp_path: Path) -> None:
    kept = tmp_path / ".cache" / "aici" / "clang"
    (kept / "bin").mkdir(parents=True)
    program(kept / "bin" / "clang++", "exit 9")
    done = run(checkout / "scripts" / "clang.sh", path=tools, HOME=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{kept}\n", "")
