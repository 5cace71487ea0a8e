"""The locks in scripts/locks, which scripts/setup.sh installs from."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ROOT / "scripts" / "locks"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
#: lock -> the extras that it holds
EXTRAS = {
    "hf": ("hf", "sdk"),
    "dev": ("hf", "sdk", "dev"),
    "vllm-cpu": ("hf", "sdk", "server", "test"),
    "vllm-gpu": ("hf", "sdk", "server", "test", "vllm"),
}
#: tag of the interpreter and of the machine -> what markers see there
PLATFORMS = {
    f"3.{minor} {machine}": {
        "python_version": f"3.{minor}",
        "python_full_version": f"3.{minor}.7",
        "platform_machine": machine,
        "sys_platform": "linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": "",
    }
    for minor in (11, 12, 13)
    for machine in ("x86_64", "aarch64")
}


def locked(lock: str, platform: str) -> dict[str, Version]:
    """The versions of a lock that are installed on a platform."""
    lines = (LOCKS / f"{lock}.txt").read_text().replace("\\\n", " ").splitlines()
    found: dict[str, Version] = {}
    for line in lines:
        if line.startswith("#"):
            continue
        requirement, *hashes = line.split(" --hash=")
        assert hashes and all(re.fullmatch(r"sha256:[0-9a-f]{64}\s*", each) for each in hashes), line
        parsed = Requirement(requirement)
        if parsed.marker is not None and not parsed.marker.evaluate(PLATFORMS[platform]):
            continue
        (pin,) = parsed.specifier
        name = canonicalize_name(parsed.name)
        assert pin.operator == "==" and name not in found, line
        found[name] = Version(pin.version)
    return found


def wanted(extra: str) -> list[Requirement]:
    """What an extra asks for, those that it includes as well."""
    found = []
    for text in PROJECT["project"]["optional-dependencies"][extra]:
        requirement = Requirement(text)
        if requirement.name == "aici":
            found += [each for more in sorted(requirement.extras) for each in wanted(more)]
        else:
            found.append(requirement)
    return found


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("lock", EXTRAS)
def test_lock_has_every_dependency_within_its_range(lock: str, platform: str) -> None:
    have = locked(lock, platform)
    asked = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
    asked += [Requirement(text) for text in PROJECT["build-system"]["requires"]]
    asked += [each for extra in EXTRAS[lock] for each in wanted(extra)]
    for requirement in asked:
        if requirement.marker is not None and not requirement.marker.evaluate(PLATFORMS[platform]):
            continue
        if requirement.name == "torch" and lock != "vllm-gpu":
            continue
        version = have[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement}: {version}"


def test_lock_leaves_out_torch() -> None:
    """Which build of torch is installed is the user's choice: see AICI_TORCH in scripts/setup.sh."""
    for lock in ("hf", "dev", "vllm-cpu"):
        have = locked(lock, "3.11 x86_64")
        assert not {"torch", "triton", "torchvision", "torchaudio"} & set(have)
        assert not [name for name in have if name.startswith(("nvidia-", "cuda-"))]
        assert {"sympy", "networkx", "filelock", "fsspec", "jinja2", "typing-extensions"} <= set(have)
        assert "Without torch" in (LOCKS / f"{lock}.txt").read_text().splitlines()[0]
    assert "vllm-cpu" in locked("vllm-cpu", "3.11 x86_64")


@pytest.mark.parametrize("platform", PLATFORMS)
def test_both_environments_of_the_main_engine_have_the_same_versions(platform: str) -> None:
    assert locked("hf", platform).items() <= locked("dev", platform).items()


def test_locks_name_no_host() -> None:
    npm = ROOT / "pyaici" / "cli" / "templates" / "assemblyscript" / "package-lock.json"
    for path in (*LOCKS.iterdir(), npm):
        assert "://" not in path.read_text(), path


def test_npm_lock_has_hashes_and_the_version_that_is_asked_for() -> None:
    folder = ROOT / "pyaici" / "cli" / "templates" / "assemblyscript"
    asked = json.loads((folder / "package.json").read_text())["devDependencies"]
    packages = json.loads((folder / "package-lock.json").read_text())["packages"]
    assert packages.pop("")["devDependencies"] == asked
    assert all(package["integrity"].startswith("sha512-") for package in packages.values())
    for name, version in asked.items():
        assert packages[f"node_modules/{name}"]["version"] == version


def test_compiler_is_the_same_everywhere() -> None:
    """Environments share what is built, which depends on the compiler."""
    versions = {locked(lock, platform)["ziglang"] for lock in EXTRAS for platform in PLATFORMS}
    assert len(versions) == 1
