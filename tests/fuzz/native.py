"""Builds controllers as native 32-bit programs with libFuzzer, ASan and UBSan."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path

from aicirt.vocab.image import build_image
from tests.fuzz.seeds import ROOT

_HERE = Path(__file__).parent / "native"
_SDK = ROOT / "controllers" / "sdk"
_SANITIZERS = "address,undefined"
_FLAGS = (
    *("-O1", "-gline-tables-only", "-std=c++20", f"-fsanitize=fuzzer-no-link,{_SANITIZERS}", "-w"),
    "-fno-sanitize-recover=all",
    *("-I", str(_SDK / "include"), "-I", str(_SDK / "src")),
)
#: tokens besides all single bytes, so that most texts have several tokenizations
_WORDS = (
    *(
        "foo",
        "if",
        " x",
        "ab",
        "abc",
        "\n\n",
        '": "',
        "</",
        "é",
        "true",
        '"',
        '{"',
        "},",
        "12",
        "...",
        "日本",
    ),
    *("  ", "    ", "return", "http", "aaaaaaaa"),
)


class NoCompiler(Exception):
    """There is no clang. scripts/clang.sh has printed the reason."""


def build(controller: str) -> Path:
    """Returns the fuzz target of a controller. Builds it unless the cache has it. Raises NoCompiler."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aici" / "fuzz"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _build(controller, cache, _compiler())


def _compiler() -> Path:
    done = subprocess.run([ROOT / "scripts" / "clang.sh"], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise NoCompiler("scripts/clang.sh found no clang")
    return Path(done.stdout.strip()) / "bin" / "clang++"


def _build(controller: str, cache: Path, clang: Path) -> Path:
    # runtime.cpp ends a guest when its C++ library cannot continue; host.cpp does that for libFuzzer
    library = [path for path in (_SDK / "src").rglob("*.cpp") if path.name != "runtime.cpp"]
    library.sort(key=lambda path: (path.parent, path.name))
    folder = ROOT / "controllers" / controller
    own = [path for path in sorted(folder.glob("*.cpp")) if path.name != f"{controller}.cpp"]
    program = cache / f"{controller}-{_digest(clang, _HERE, folder)}"
    if program.exists():
        return program
    for old in cache.glob(f"{controller}-*"):
        old.unlink()
    with tempfile.TemporaryDirectory(dir=cache) as scratch, ThreadPoolExecutor(os.cpu_count()) as pool:
        vocabulary = Path(scratch) / "vocabulary"
        vocabulary.write_bytes(small_vocabulary())
        host = (
            f'-DAICI_FUZZ_CONTROLLER="{folder / controller}.cpp"',
            f'-DAICI_FUZZ_VOCABULARY="{vocabulary}"',
        )
        objects = cache / f"library-{_digest(clang)}"
        if not objects.exists():
            for old in cache.glob("library-*"):
                _remove(old)
            made = Path(scratch) / "library"
            made.mkdir()
            groups = [list(group) for _, group in groupby(library, lambda path: path.parent)]
            list(pool.map(lambda n: _compile_together(clang, groups[n], made / str(n)), range(len(groups))))
            made.rename(objects)
        parts = [*own, _HERE / "host.cpp"]
        compiled = [Path(scratch) / f"{path.stem}.o" for path in parts]
        list(pool.map(lambda both: _compile(clang, *both, *host), zip(parts, compiled, strict=True)))
        linked = Path(scratch) / "program"
        _run([clang, f"-fsanitize=fuzzer,{_SANITIZERS}", *compiled, *sorted(objects.iterdir()), "-o", linked])
        linked.rename(program)
    return program


def _compile_together(clang: Path, sources: list[Path], to: Path) -> None:
    """Compiles sources of a folder as one, which halves the time, or each alone if names clash."""
    joined = to.with_suffix(".cpp")
    joined.write_text("".join(f'#include "{path}"\n' for path in sources))
    command = [clang, *_FLAGS, "-c", joined, "-o", to.with_suffix(".o")]
    failed = subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode != 0
    joined.unlink()
    for number, path in enumerate(sources if failed else ()):
        _compile(clang, path, to.with_suffix(f".{number}.o"))


def _compile(clang: Path, source: Path, to: Path, *more: str) -> None:
    _run([clang, *_FLAGS, *more, "-c", source, "-o", to])


def _run(command: list[str | Path]) -> None:
    subprocess.run(command, check=True)


def _remove(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def _digest(clang: Path, *folders: Path) -> str:
    digest = hashlib.sha256(repr((_FLAGS, _WORDS, str(clang))).encode())
    for folder in (_SDK / "include", _SDK / "src", *folders):
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:20]


def small_vocabulary() -> bytes:
    """Builds the image of a vocabulary of some 280 tokens."""
    tokens = [bytes([byte]) for byte in range(256)] + [word.encode() for word in _WORDS]
    size = len(tokens)
    return build_image([*tokens, b"<eos>", b"<bos>"], special=[size + 1], eos=[size], bos=size + 1)
