"""A copy of the checkout, a wheel built from it, and fresh environments with that wheel, as users install it.

``python -m tests.distribution DIST`` checks a folder with a wheel and an sdist, for scripts/release.sh.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from functools import cache
from pathlib import Path

from packaging.metadata import Metadata

ROOT = Path(__file__).resolve().parents[1]
UV = Path(sys.executable).with_name("uv")
BUILD = (sys.executable, "-m", "build", "--no-isolation")
#: uv's names for the oldest and the newest versions that the metadata allows for the direct dependencies
RESOLUTIONS = ("lowest-direct", "highest")


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Returns the standard output of a command. Fails the test with all output if the command fails."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (
        f"{command} ended with status {done.returncode}\n{done.stdout}\n{done.stderr}"
    )
    return done.stdout


def copy_checkout(folder: Path) -> Path:
    """Copies the files that git tracks or would add, without build outputs. Returns the copy's folder."""
    copy = folder / "aici"
    listing = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in filter(None, listing.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    return copy


def build_wheel(checkout: Path, folder: Path) -> Path:
    """Builds the wheel of a checkout into a folder."""
    run(*BUILD, "--wheel", "--outdir", folder, checkout, cwd=checkout)
    (wheel,) = folder.glob("*.whl")
    return wheel


@cache
def pythons() -> dict[str, Path]:
    """Returns every CPython on this machine that the package supports, by its version, oldest first."""
    folders = [Path(folder) for folder in os.environ["PATH"].split(os.pathsep)]
    folders += Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/*/bin")
    program = "import sys; print(sys.implementation.name, *sys.version_info[:3], sys.base_prefix)"
    found = {}
    for path in (path for folder in folders for path in folder.glob("python3.1[1-9]")):
        done = subprocess.run([path, "-c", program], capture_output=True, text=True, check=False)
        if done.returncode != 0:  # pyenv's shim for a version that is not selected
            continue
        name, major, minor, patch, prefix = done.stdout.strip().split(" ", 4)
        if name == "cpython" and (int(major), int(minor)) >= (3, 11):
            found[int(minor), int(patch)] = Path(prefix) / "bin" / f"python3.{minor}"
    return {f"3.{minor}.{patch}": found[minor, patch] for minor, patch in sorted(found)}


def run_installed(wheel: Path, python: Path, resolution: str, folder: Path) -> str:
    """Runs tests/installed.py with a wheel in a new environment of a Python; returns what it prints.

    `resolution` is one of `RESOLUTIONS`. Only wheels are installed, so the oldest version of a dependency is
    the oldest one with a wheel for this Python.
    """
    place = folder / f"{python.name}-{resolution}"
    run(UV, "venv", "--quiet", "--python", python, place, cwd=folder)
    install = (
        UV,
        "pip",
        "install",
        "--quiet",
        "--python",
        place / "bin" / "python",
        "--only-binary",
        ":all:",
    )
    extras = ("--extra", "llama", "--extra", "server")
    run(*install, "--resolution", resolution, "--requirements", ROOT / "pyproject.toml", *extras, cwd=folder)
    run(*install, "--no-deps", wheel, cwd=folder)
    run(UV, "pip", "check", "--python", place / "bin" / "python", cwd=folder)
    env = {"PATH": f"{place / 'bin'}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    return run(place / "bin" / "python", "-I", ROOT / "tests" / "installed.py", cwd=folder, env=env)


def metadata(distribution: Path) -> Metadata:
    """Reads the metadata of a wheel or an sdist. Raises an ExceptionGroup where it breaks PyPI's rules."""
    if distribution.suffix == ".whl":
        with zipfile.ZipFile(distribution) as wheel:
            (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            return Metadata.from_email(wheel.read(name), validate=True)
    with tarfile.open(distribution) as sdist:
        file = sdist.extractfile(f"{distribution.name.removesuffix('.tar.gz')}/PKG-INFO")
        assert file is not None
        return Metadata.from_email(file.read(), validate=True)


def main(folder: Path) -> None:
    """Prints what a folder of distributions contains, and runs the wheel with each Python."""
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    for path in (wheel, sdist):
        found, size = metadata(path), path.stat().st_size / 1e6
        print(f"{path.name}: {size:.1f} MB, valid metadata of {found.name} {found.version}")
    for python in pythons().values():
        for resolution in RESOLUTIONS:
            with tempfile.TemporaryDirectory() as place:
                print(run_installed(wheel.absolute(), python, resolution, Path(place)), end="", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
