"""Published wheels of engines, of which tests need the Python alone: no compiled code, no requirements.

``python -m tests.wheels vllm==0.33.0`` prints the folder with the sources, from the cache or from the package
index. The hashes of the versions that the tests use are in scripts/locks/wheels.txt.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "scripts" / "locks" / "wheels.txt"
#: what is unpacked: sources, metadata with entry points, and what the sources read when they are imported
_WANTED = re.compile(r"\.(py|json|jinja|txt|toml|yaml)$|\.dist-info/[^/]+$")


def locked(package: str) -> list[str]:
    """Returns the versions of a package whose hashes are known, the oldest first."""
    return re.findall(rf"^{re.escape(package)}==(\S+)", LOCK.read_text("utf-8"), re.MULTILINE)


def cache_folder() -> Path:
    """Returns the folder for unpacked wheels."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "aici" / "wheels"


def fetch(package: str, version: str, folder: Path) -> Path:
    """Downloads a wheel into a folder and returns its path. Checks its hash if the lock has one.

    Raises RuntimeError if it cannot be had.
    """
    pinned = re.search(
        rf"^{re.escape(package)}=={re.escape(version)}\s[^#]*?(?=^\S|\Z)", LOCK.read_text(), re.MULTILINE
    )
    wish = folder / "wish.txt"
    wish.write_text(pinned[0] if pinned else f"{package}=={version}\n")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--quiet", "--dest", str(folder), "--requirement", str(wish)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        raise RuntimeError(f"pip cannot fetch {package} {version}: {done.stderr.strip()[-500:]}")
    return wheels[0]


def sources(package: str, version: str) -> Path:
    """Returns a folder with the Python of a published wheel, to be put on the path of modules.

    Raises RuntimeError if it is neither cached nor can be fetched.
    """
    cached = cache_folder() / f"{package}-{version}"
    if cached.is_dir():
        return cached
    cached.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cached.parent) as temporary:
        print(f"fetching the Python of {package} {version}", file=sys.stderr, flush=True)
        unpacked = Path(temporary) / "unpacked"
        with zipfile.ZipFile(fetch(package, version, Path(temporary))) as wheel:
            wheel.extractall(unpacked, [name for name in wheel.namelist() if _WANTED.search(name)])
        try:
            unpacked.rename(cached)
        except OSError:  # another process was faster
            if not cached.is_dir():
                raise
    return cached


def main(wishes: list[str]) -> int:
    """Prints the folders of the sources of PACKAGE==VERSION."""
    for wish in wishes:
        package, _, version = wish.partition("==")
        print(sources(package, version))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
