"""Fetches an interpreter's sources from a Python source distribution that contains them."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .sdk import MissingSources, pip_command
from .zig import Cache

#: names a folder with downloaded source distributions, for machines without network
FOLDER_VARIABLE = "AICI_SDISTS"
#: the first version of setuptools that needs no package wheel
_WITHOUT_WHEEL = (70, 1)


@dataclass(frozen=True)
class Sdist:
    """A source distribution, pinned by version and content."""

    #: name of the sources, for messages
    title: str
    package: str
    version: str
    #: SHA-256 of the file, hex
    sha256: str

    @property
    def file_name(self) -> str:
        """The file's name in the package index."""
        return f"{self.package}-{self.version}.tar.gz"

    def unpack(self, cache: Cache, prefix: str, folder: Path) -> Path:
        """Writes the files of the distribution below `prefix` into the new folder `folder`.

        Raises:
            MissingSources: the distribution cannot be fetched.
        """
        with tarfile.open(self.fetch(cache)) as archive:
            top = f"{self.package}-{self.version}/{prefix}/"
            wanted = [member for member in archive.getmembers() if member.name.startswith(top)]
            for member in wanted:
                member.name = member.name.removeprefix(top)
            # Python 3.11.2, that of Debian 12, has no filters
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(folder, wanted)
        return folder

    def fetch(self, cache: Cache) -> Path:
        """Returns the file from the cache, the folder that `FOLDER_VARIABLE` names, or the package index.

        Raises:
            MissingSources: the file is in none of them, or has another SHA-256.
        """
        kept = cache.artifact(self.sha256, ".tar.gz")
        if not kept.exists():
            with cache.lock(self.sha256), tempfile.TemporaryDirectory(dir=cache.cache) as scratch:
                if not kept.exists():
                    os.replace(self._get(cache, Path(scratch)), kept)
        return cache.used(kept)

    def _get(self, cache: Cache, scratch: Path) -> Path:
        named = os.environ.get(FOLDER_VARIABLE)
        if named:
            given = Path(named) / self.file_name
            if not given.is_file():
                raise self._missing(f"{FOLDER_VARIABLE} names the folder {named}, which lacks them")
            found = Path(shutil.copy(given, scratch))
        else:
            cache.progress(f"fetching the sources of {self.title}, once")
            found = self._download(scratch)
        with found.open("rb") as stream:
            actual = hashlib.file_digest(stream, "sha256").hexdigest()
        if actual != self.sha256:
            raise self._missing(f"the file has SHA-256 {actual}, not {self.sha256}")
        return found

    def _download(self, scratch: Path) -> Path:
        if (pip := pip_command()) is None:
            raise self._missing(f"{sys.executable} has no pip: run {sys.executable} -m ensurepip")
        # pip runs the distribution's setup.py to find its name, so it must check the content first
        asked = scratch / "requirements.txt"
        asked.write_text(f"{self.package}=={self.version} --hash=sha256:{self.sha256}\n")
        options = ["--no-deps", "--no-binary", self.package, "--require-hashes", "--quiet"]
        options += ["--retries", "1", "--timeout", "10"]  # without network, a build waits for pip to give up
        if _has_setuptools():
            options.append("--no-build-isolation")  # saves pip from creating an environment with it
        command = [*pip, "download", *options, "--disable-pip-version-check"]
        command += ["--dest", str(scratch), "--requirement", str(asked)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        found = scratch / self.file_name
        if done.returncode or not found.is_file():
            raise self._missing(f"pip cannot fetch them: {_reason(done.stderr or done.stdout)}")
        return found

    def _missing(self, why: str) -> MissingSources:
        return MissingSources(
            f"the sources of {self.title} are missing: {why}. They are in the file {self.file_name} of the "
            "package index that pip uses. Build with network, or put that file into a folder and set "
            f"{FOLDER_VARIABLE}=DIR"
        )


def _has_setuptools() -> bool:
    """Returns whether pip can read a distribution with the setuptools of this environment.

    Old ones, such as the one of a new environment of Python 3.11, need the package wheel for that.
    """
    try:
        version = importlib.metadata.version("setuptools")
    except importlib.metadata.PackageNotFoundError:
        return False
    major, minor = (*map(int, re.findall(r"\d+", version)), 0, 0)[:2]
    return (major, minor) >= _WITHOUT_WHEEL or importlib.util.find_spec("wheel") is not None


def _reason(output: str) -> str:
    """Returns the first error in the output of pip as one line, or else the last line that is no hint."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    with contextlib.suppress(StopIteration):
        return next(line for line in lines if line.startswith("ERROR: ")).removeprefix("ERROR: ")
    shown = [line for line in lines if not line.startswith(("hint:", "note:", "[end of output]", "╰─>"))]
    return shown[-1] if shown else "it printed no reason"
