"""Creates an environment, or installs a lock, torch and this checkout into it, with uv or else with pip.

    python3.11 scripts/install.py --create .venv
    .venv/bin/python scripts/install.py LOCK [TORCH...]

scripts/setup.sh runs it. TORCH is the requirement of torch with options of pip. uv is several times faster
than pip, so it is fetched first, gets the settings of pip, and is removed at the end. Hashes are checked for
all packages of the lock. Of ziglang and xllamacpp, only what runs here is unpacked. Every few seconds a line
says how far it is. A run that fails or is interrupted keeps what it fetched, and the next one goes on
from there.
"""

from __future__ import annotations

import compileall
import contextlib
import csv
import ensurepip
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import sysconfig
import threading
import time
import zipfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SITE = Path(sysconfig.get_path("purelib"))
#: keeps fetched files until the installation is complete
FETCHED = Path(sys.prefix) / ".fetched"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")
#: seconds between two lines
INTERVAL = 5.0
#: packages that are unpacked here, and what of them is left out: what only other systems and languages need,
#: 165 of the 410 MB of ziglang. Information for debuggers is left out of all, 80 of the 106 MB of xllamacpp
LEFT_OUT = {
    "ziglang": re.compile(
        r"ziglang/lib/(libc/(darwin|freebsd|mingw|netbsd|openbsd)/|(libtsan|docs|build-web|lldb)/"
        r"|compiler/(aro|resinator|translate-c)/"
        r"|include/(arm_(sve|sme|mve)|altivec|vecintrin|hexagon|hvx|lasx|lsx|ppc_wrappers)"
        r"|libc/include/(?!wasm-|generic-(musl|glibc)/|any-linux-any/|(x86|x86_64|aarch64)-linux-))"
    ),
    "xllamacpp": re.compile(r"(?!)"),
}
#: what runs: importing it writes its bytecode. Packages of extras that are not installed are skipped
RUNS = (
    "aicirt.wasm",
    "pyaici.cli.__main__",
    "pyaici.server.serve",
    "pyaici.engines.llama",
    "pyaici.engines.hf",
)
#: what uv and pip print before they fetch a file
_ANNOUNCED = re.compile(r"Downloading (\S+)(?: \S+)? \(([\d.]+) ?(k|K|M|G)i?B\)")
_MB = {"k": 1e-3, "K": 1e-3, "M": 1.0, "G": 1e3}
#: the cause and the cure of an error, by the words of pip, uv and the system
_CURES = {
    r"No space left on device|os error 28|Disk quota exceeded|os error 122|File too large|os error 27": (
        "the disk is full: make room. run.sh takes less than 1 GB, torch and vLLM several times as much"
    ),
    r"Permission denied|Read-only file system|os error (13|30)": (
        "a folder cannot be written: use a checkout of your own, or set XDG_CACHE_HOME to another folder"
    ),
    r"(?i)resolve|resolution|connect|network is|unreachable|timed out|error sending request|proxy": (
        "the index of packages cannot be reached: check the network, and the index and proxy that "
        "`python -m pip config list` names"
    ),
    r"(?i)do not match the hashes|hash mismatch": "the index of packages serves other files",
    r"(?i)no matching distribution|not a supported wheel|no such option": (
        "the index lacks a package, or this pip is too old for it: remove the environment, "
        "and choose a newer Python with AICI_PYTHON"
    ),
}


class SetupError(Exception):
    """A step failed. The message says why, and what to do."""


class DiskError(SetupError):
    """The disk is full or cannot be written, so that no other program can do it either."""


@dataclass
class Uv:
    """uv, with what pip is configured to use."""

    path: str
    options: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    #: files of constraints
    constraints: list[str] = field(default_factory=list)


def create(environment: Path) -> None:
    """Creates an environment with the copy of pip that comes with Python. Raises SetupError."""
    say(f"creating {environment} with Python {sys.version.split()[0]}")
    folders = (
        Path(ensurepip.__file__).parent / "_bundled",
        Path(sysconfig.get_config_var("WHEEL_PKG_DIR") or "."),
    )
    wheels = [wheel for folder in folders for wheel in folder.glob("pip-*.whl")]
    # ensurepip takes seconds of processor time, for setuptools and bytecode that nothing needs
    options = ["--without-pip"] if wheels else []
    run([sys.executable, "-m", "venv", "--clear", *options, str(environment)], "running venv")
    if wheels:
        (site,) = environment.glob("lib/python3*/site-packages")
        with zipfile.ZipFile(wheels[0]) as archive:
            archive.extractall(site)


def install(lock: Path, torch: Sequence[str]) -> None:
    """Installs everything. Raises SetupError."""
    FETCHED.mkdir(exist_ok=True)
    locked = requirements(lock)
    parts = {name: locked.pop(name) for name in LEFT_OUT if name in locked}
    parts = {name: text for name, text in parts.items() if not is_installed(text)}
    uv = find_uv()
    if not (uv is None and (uv := fetch_uv(parts)) is not None) and parts:
        fetch(parts)
    for name in parts:
        unpack(name, *FETCHED.glob(f"{name}-*.whl"))
    tool = None if uv is None else with_settings_of_pip(uv)
    rest = FETCHED / "lock.txt"
    rest.write_text("".join(locked.values()))
    # With hashes, uv accepts only constraints that are exact versions.
    for_lock = tool if tool and not constrained(tool.constraints, locked) else None
    install_with(for_lock, ["--no-deps", "--require-hashes", "--requirement", str(rest)], "the packages")
    if tool:
        tool.options += [part for path in tool.constraints for part in ("--constraint", path)]
    if torch:
        # The lock has the other dependencies of torch. pip warns that triton is missing: useless without CUDA
        install_with(tool, torch, "torch", "--no-warn-conflicts")
    install_with(tool, ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)], "pyaici")
    write_bytecode()
    shutil.rmtree(FETCHED)


def requirements(lock: Path) -> dict[str, str]:
    """Returns the lines of a lock, with the hashes, by the name of the package."""
    blocks = re.finditer(r"^([\w.-]+)==.*?(?=^\S|\Z)", lock.read_text(), re.MULTILINE | re.DOTALL)
    return {block[1]: block[0] for block in blocks}


def is_installed(requirement: str) -> bool:
    """Tells whether the version that a lock names is installed. pip and this script write RECORD last."""
    name, _, version = requirement.partition(" ")[0].partition("==")
    return (SITE / f"{name}-{version}.dist-info" / "RECORD").exists()


def find_uv() -> str | None:
    """Returns the uv of the environment, of the user, or of an earlier run of this script."""
    places = (f"{sys.prefix}/bin", os.environ.get("PATH", ""), str(FETCHED))
    return shutil.which("uv", path=os.pathsep.join(places))


def fetch_uv(others: Mapping[str, str]) -> str | None:
    """Fetches uv and, in the same call of pip, others. Returns the path of uv, or None if that fails."""
    try:
        uv = requirements(ROOT / "scripts" / "locks" / "dev.txt")["uv"]
        fetch({"uv": uv, **others})
    except DiskError:
        raise
    except SetupError as error:
        say(f"{error}\nwithout uv, pip installs the packages")
        return None
    (wheel,) = FETCHED.glob("uv-*.whl")
    part = FETCHED / "uv.part"
    with zipfile.ZipFile(wheel) as archive:
        (member,) = (name for name in archive.namelist() if name.endswith(".data/scripts/uv"))
        part.write_bytes(archive.read(member))
    part.chmod(0o755)
    wheel.unlink()
    return str(part.rename(FETCHED / "uv"))


def fetch(locked: Mapping[str, str]) -> None:
    """Has pip fetch wheels into `FETCHED`, and check their hashes. It keeps those that are there already."""
    lock = FETCHED / "fetch.txt"
    lock.write_text("".join(locked.values()))
    # pip fetches into a temporary folder, whose size shows how far it is
    temporary = FETCHED / "tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    options = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-cache-dir"]
    command = [*PIP, "download", *options, "--dest", str(FETCHED), "--requirement", str(lock)]
    run(command, f"fetching {' and '.join(locked)}", {"TMPDIR": str(temporary)}, temporary)


def unpack(name: str, wheel: Path) -> None:
    """Installs a wheel without scripts as pip does, but for what `LEFT_OUT` and `without_debug` leave out."""
    part = SITE / f".{name}.part"
    shutil.rmtree(part, ignore_errors=True)
    done, shorter = 0, set[str]()
    with zipfile.ZipFile(wheel) as archive:
        members = [member for member in archive.infolist() if not LEFT_OUT[name].match(member.filename)]
        with progress(f"unpacking {name}", lambda: f"{done} of {len(members)} files"):
            for member in members:
                path = Path(archive.extract(member, part))
                if member.external_attr >> 16 & 0o100:
                    path.chmod(0o755)
                if path.suffix == ".so" and (size := without_debug(path)):
                    os.truncate(path, size)
                    shorter.add(member.filename)
                done += 1
    (info,) = part.glob("*.dist-info")
    (info / "INSTALLER").write_text("aici\n")
    with (info / "RECORD").open(newline="") as file:
        rows = [row for row in csv.reader(file) if not LEFT_OUT[name].match(row[0])]
    rows = [[row[0], "", ""] if row[0] in shorter else row for row in rows]
    with (info / "RECORD").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([*rows, (f"{info.name}/INSTALLER", "", "")])
    for old in (SITE / name, *SITE.glob(f"{name}-*.dist-info")):
        shutil.rmtree(old, ignore_errors=True)
    for new in (part / name, info):
        new.rename(SITE / new.name)
    part.rmdir()
    wheel.unlink()


def without_debug(path: Path) -> int:
    """Removes the table of sections of a 64-bit ELF file, which only debuggers and linkers read.

    Returns the size without the sections that are never loaded, if they are its end; 0 if there are none.
    """
    with path.open("r+b") as file:
        head = file.read(64)
        if head[:6] != b"\x7fELF\x02\x01":
            return 0
        (programs,) = struct.unpack_from("<Q", head, 32)
        count = struct.unpack_from("<H", head, 56)[0]
        file.seek(programs)
        table = [struct.unpack("<IIQQQQQQ", file.read(56)) for _ in range(count)]
        # offset and size in the file, of every segment
        end = max([programs + 56 * count, *(offset + size for _, _, offset, _, _, size, _, _ in table)])
        if end >= path.stat().st_size:
            return 0
        file.seek(40)
        file.write(bytes(8))  # e_shoff
        file.seek(60)
        file.write(bytes(4))  # e_shnum, e_shstrndx
    return end


def with_settings_of_pip(path: str) -> Uv | None:
    """Returns uv with what pip is configured to use, by files and variables; None if pip does not tell."""
    # This is no public interface of pip, so pip installs the packages if it changes.
    code = """
import json
from pip._internal.commands import create_command
options, _ = create_command("install").parse_args([])
files = options.format_control
options.no_binary, options.only_binary = list(files.no_binary), list(files.only_binary)
print(json.dumps(vars(options), default=str))
"""
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        pip = json.loads(done.stdout.splitlines()[-1])
        several = {
            "--extra-index-url": pip["extra_index_urls"],
            "--find-links": pip["find_links"],
            "--allow-insecure-host": pip["trusted_hosts"],
            "--no-binary": pip["no_binary"],
            "--only-binary": pip["only_binary"],
        }
        options = [part for name, values in several.items() for value in values for part in (name, value)]
        options += ["--no-index"] if pip["no_index"] else ["--index-url", pip["index_url"]]
        # for pip, all indexes are equal
        options += ["--index-strategy", "unsafe-best-match"]
        options += [] if pip["cache_dir"] else ["--no-cache"]
        variables = {
            "SSL_CERT_FILE": pip["cert"],
            "SSL_CLIENT_CERT": pip["client_cert"],
            "HTTP_PROXY": pip["proxy"],
            "HTTPS_PROXY": pip["proxy"],
            "UV_HTTP_TIMEOUT": f"{pip['timeout']:.0f}",
            "UV_HTTP_RETRIES": f"{pip['retries']}",
            # pip trusts the system's certificates; the second name is for older versions of uv
            "UV_SYSTEM_CERTS": "1",
            "UV_NATIVE_TLS": "1",
        }
        return Uv(
            path, options, {name: value for name, value in variables.items() if value}, pip["constraints"]
        )
    except (subprocess.CalledProcessError, LookupError, TypeError, ValueError) as error:
        say(f"pip does not tell its settings, so that it installs the packages itself: {error!r}")
        return None


def constrained(files: Sequence[str], locked: Mapping[str, str]) -> bool:
    """Tells whether files of constraints have an entry for a locked package, or are not plain files."""
    try:
        lines = [line.strip().lower() for path in files for line in Path(path).read_text().splitlines()]
    except OSError:
        return True
    names = {
        re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", line)[0]) for line in lines if line[:1] not in ("", "#")
    }
    return any(name in locked or name.startswith("-") for name in names)


def install_with(uv: Uv | None, arguments: Sequence[str], what: str, *options_of_pip: str) -> None:
    """Installs with uv, and with pip if uv is missing or fails."""
    if uv is not None:
        options = list(uv.options)
        if "--index-url" in arguments:
            index = options.index("--index-url")
            del options[index : index + 2]
        try:
            command = [uv.path, "pip", "install", "--python", sys.executable, *options, *arguments]
            return run(command, f"installing {what}", uv.variables)
        except DiskError:
            raise
        except SetupError as error:
            say(f"{error}\npip tries the same")
    run([*PIP, "install", "--no-compile", *options_of_pip, *arguments], f"installing {what}")


def write_bytecode() -> None:
    """Writes the bytecode of what runs. Python writes that of other modules when it first imports them.

    PYTHONDONTWRITEBYTECODE, which is set in many containers, would have every process compile all modules.
    """
    for package in ("aicirt", "pyaici"):
        compileall.compile_dir(ROOT / package, quiet=2)
    lines = [f"with contextlib.suppress(ImportError): import {module}" for module in RUNS]
    code = "\n".join(["import contextlib", *lines])
    run([sys.executable, "-c", code], "compiling bytecode", {"PYTHONDONTWRITEBYTECODE": ""})


def run(
    command: Sequence[str], what: str, variables: Mapping[str, str] | None = None, folder: Path | None = None
) -> None:
    """Runs a command. Every few seconds a line says how much of what the command announced is fetched.

    `folder` is where it puts what it fetches. Raises SetupError if the command fails.
    """
    sizes: dict[str, float] = {}
    fetched: set[str] = set()
    most = 0.0
    output: deque[str] = deque(maxlen=40)

    def state() -> str:
        nonlocal most
        total = sum(sizes.values())
        # pip moves what it has fetched
        most = max(most, sum(sizes[name] for name in fetched) if folder is None else megabytes(folder))
        if len(fetched) < len(sizes):
            return f"{min(most, total):.0f} of {total:.0f} MB fetched"
        return output[-1][:80] if output else ""

    process = subprocess.Popen(
        command,
        env=os.environ | dict(variables or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        process_group=0,
    )
    assert process.stdout is not None
    with process, progress(what, state):
        try:
            for line in map(str.strip, process.stdout):
                if found := _ANNOUNCED.search(line):
                    sizes[found[1]] = float(found[2]) * _MB[found[3]]
                elif line.startswith("Downloaded "):
                    fetched.add(line.split()[1])
                output.append(line)
            process.wait()
        except BaseException:
            # with its own children: venv runs pip. Once it has been waited for, its number may be another's
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            raise
    if process.returncode:
        raise failure(what, "\n".join(line for line in output if line))


def failure(what: str, output: str) -> SetupError:
    """Returns an error with the cause, the cure, and the last lines of the program that failed."""
    last = "".join(f"\n  {line}" for line in output.splitlines()[-3:])
    for number, (words, cure) in enumerate(_CURES.items()):
        if re.search(words, output):
            return (DiskError if number < 2 else SetupError)(f"{what} failed: {cure}{last}")
    return SetupError(f"{what} failed:{last}")


def megabytes(folder: Path) -> float:
    """Returns the size of the files in a folder that another program changes, MB."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.lstat().st_size
    return total / 1e6


@contextlib.contextmanager
def progress(what: str, state: Callable[[], str]) -> Iterator[None]:
    """Says `what`, and the state every few seconds, until the block ends."""
    ended = threading.Event()
    started = time.monotonic()

    def tell() -> None:
        while not ended.wait(INTERVAL):
            say(f"{what}, {time.monotonic() - started:.0f} s: {state()}".rstrip(": "))

    say(what)
    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def say(text: str) -> None:
    for line in text.splitlines():
        print(f"setup: {line}", file=sys.stderr, flush=True)


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    first, *rest = sys.argv[1:]
    try:
        if first == "--create":
            create(Path(rest[0]))
        else:
            install(Path(first), rest)
    except (SetupError, OSError, zipfile.BadZipFile) as error:
        say(str(error if isinstance(error, SetupError) else failure("installing", str(error))))
        say("after that, run the same command again: it goes on from here")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
