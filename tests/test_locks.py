"""The locks in scripts/locks, from which scripts/setup.sh installs."""

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
LAB = tomllib.loads((ROOT / "lab" / "pyproject.toml").read_text())["project"]["dependencies"]
#: lock -> its extras
EXTRAS = {
    "llama": ("llama", "sdk"),
    "hf": ("hf", "llama", "sdk"),
    "dev": ("hf", "sdk", "dev"),
    "vllm-cpu": ("hf", "sdk", "server", "test"),
    "vllm-gpu": ("hf", "sdk", "server", "test", "vllm"),
}
#: version of Python and machine -> values for markers of requirements
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
    """Returns the versions of a lock for a platform."""
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


def requirements_of(extra: str) -> list[Requirement]:
    """Returns the requirements of an extra and of the extras that it includes; those of lab with `dev`."""
    found = []
    for text in PROJECT["project"]["optional-dependencies"][extra] + (LAB if extra == "dev" else []):
        requirement = Requirement(text)
        if requirement.name == "pyaici":
            found += [each for more in sorted(requirement.extras) for each in requirements_of(more)]
        else:
            found.append(requirement)
    return found


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("lock", EXTRAS)
def test_lock_has_every_dependency_within_its_range(lock: str, platform: str) -> None:
    have = locked(lock, platform)
    required = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
    required += [Requirement(text) for text in PROJECT["build-system"]["requires"]]
    required += [each for extra in EXTRAS[lock] for each in requirements_of(extra)]
    for requirement in required:
        if requirement.marker is not None and not requirement.marker.evaluate(PLATFORMS[platform]):
            continue
        if requirement.name == "torch" and lock != "vllm-gpu":
            continue
        version = have[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement}: {version}"


def test_lock_leaves_out_torch() -> None:
    """The user chooses the build of torch: see AICI_TORCH in scripts/setup.sh."""
    for lock in ("hf", "dev", "vllm-cpu"):
        have = locked(lock, "3.11 x86_64")
        assert not {"torch", "triton", "torchvision", "torchaudio"} & set(have)
        assert not [name for name in have if name.startswith(("nvidia-", "cuda-"))]
        assert {"sympy", "networkx", "filelock", "fsspec", "jinja2", "typing-extensions"} <= set(have)
        assert "Without torch" in (LOCKS / f"{lock}.txt").read_text().splitlines()[0]
    assert "vllm-cpu" in locked("vllm-cpu", "3.11 x86_64")


@pytest.mark.parametrize("platform", PLATFORMS)
def test_hf_and_dev_locks_have_the_same_versions(platform: str) -> None:
    assert locked("hf", platform).items() <= locked("dev", platform).items()


def test_locks_name_no_host() -> None:
    npm = ROOT / "pyaici" / "cli" / "templates" / "assemblyscript" / "package-lock.json"
    for path in (*LOCKS.iterdir(), npm):
        assert "://" not in path.read_text(), path


def test_npm_lock_has_hashes_and_the_required_versions() -> None:
    folder = ROOT / "pyaici" / "cli" / "templates" / "assemblyscript"
    required = json.loads((folder / "package.json").read_text())["devDependencies"]
    packages = json.loads((folder / "package-lock.json").read_text())["packages"]
    assert packages.pop("")["devDependencies"] == required
    assert all(package["integrity"].startswith("sha512-") for package in packages.values())
    for name, version in required.items():
        assert packages[f"node_modules/{name}"]["version"] == version


def test_all_locks_have_the_same_compiler() -> None:
    """Environments share build outputs, which depend on the compiler."""
    versions = {locked(lock, platform)["ziglang"] for lock in EXTRAS for platform in PLATFORMS}
    assert len(versions) == 1
