"""Builds controllers as native 32-bit programs with libFuzzer, ASan and UBSan."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aicirt.vocab.image import build_image
from lab import ROOT

_HERE = Path(__file__).parent / "native"
_CONTROLLERS = ROOT / "controllers"
_SDK = _CONTROLLERS / "sdk"
_SANITIZERS = "address,undefined"
_FLAGS = (
    *("-O1", "-gline-tables-only", "-std=c++20", f"-fsanitize=fuzzer-no-link,{_SANITIZERS}", "-w"),
    "-fno-sanitize-recover=all",
    # inlining takes long to compile, and so does UBSan in the C++ library's headers: ASan checks accesses to
    # memory there, and the library's assertions check indices
    *("-mllvm", "-inline-threshold=10", f"-fsanitize-ignorelist={_HERE / 'ignored.txt'}"),
    "-D_GLIBCXX_ASSERTIONS",
    *("-I", str(_SDK / "include"), "-I", str(_SDK / "src"), "-I", str(_HERE)),
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
    clang = _compiler()
    program = _program(controller, clang)
    program.parent.mkdir(parents=True, exist_ok=True)
    with (program.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return program if program.exists() else _build(controller, program, clang)


def is_built(controller: str) -> bool:
    """Tells whether the cache has the fuzz target of a controller as its sources are. Raises NoCompiler."""
    return _program(controller, _compiler()).exists()


def _program(controller: str, clang: Path) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aici" / "fuzz"
    return cache / f"{controller}-{_digest(clang, _CONTROLLERS / controller)}"


def _compiler() -> Path:
    done = subprocess.run([ROOT / "scripts" / "clang.sh"], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise NoCompiler("scripts/clang.sh found no clang")
    return Path(done.stdout.strip()) / "bin" / "clang++"


def _build(controller: str, program: Path, clang: Path) -> Path:
    folder, cache = _CONTROLLERS / controller, program.parent
    for old in cache.glob(f"{controller}-*"):
        old.unlink()
    own = [path for path in sorted(folder.glob("*.cpp")) if path.name != f"{controller}.cpp"]
    define = f'-DAICI_FUZZ_CONTROLLER="{folder / controller}.cpp"'
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        library = _library(cache, clang, Path(scratch) / "library")
        objects = _compile(clang, [_HERE / "fuzzed.cpp", *own], Path(scratch) / "own", define)
        linked = Path(scratch) / "program"
        _run(
            [clang, f"-fsanitize=fuzzer,{_SANITIZERS}", *objects, *sorted(library.glob("*.o")), "-o", linked]
        )
        linked.rename(program)
    return program


def _library(cache: Path, clang: Path, scratch: Path) -> Path:
    """Returns the folder with the objects that all programs have. Makes them unless the cache has them."""
    objects = cache / f"library-{_digest(clang)}"
    if objects.exists():
        return objects
    for old in cache.glob("library-*"):
        shutil.rmtree(old)
    scratch.mkdir()
    vocabulary = scratch / "vocabulary"
    vocabulary.write_bytes(small_vocabulary())
    # runtime.cpp ends a guest when its C++ library cannot continue; host.cpp does that for libFuzzer
    sources = [path for path in sorted((_SDK / "src").rglob("*.cpp")) if path.name != "runtime.cpp"]
    sources.append(_HERE / "host.cpp")
    define = f'-DAICI_FUZZ_VOCABULARY="{vocabulary}"'
    with ThreadPoolExecutor(2) as pool:
        halves = (sources[::2], sources[1::2])
        made = [pool.submit(_compile, clang, half, scratch / str(n), define) for n, half in enumerate(halves)]
        for each in made:
            each.result()
    scratch.rename(objects)
    return objects


def _compile(clang: Path, sources: list[Path], to: Path, *options: str) -> list[Path]:
    """Compiles sources as one, which takes far less time, or in halves if their names clash.

    Returns the objects, whose names begin with `to`.
    """
    joined, made = to.with_suffix(".cpp"), to.with_suffix(".o")
    joined.write_text("".join(f'#include "{path}"\n' for path in sources))
    command: list[str | Path] = [clang, *_FLAGS, *options, "-c", joined, "-o", made]
    if len(sources) == 1:
        _run(command)
        return [made]
    if subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0:
        return [made]
    halves = enumerate((sources[::2], sources[1::2]))
    return [made for n, half in halves for made in _compile(clang, half, Path(f"{to}-{n}"), *options)]


def _run(command: list[str | Path]) -> None:
    subprocess.run(command, check=True)


def _digest(clang: Path, *folders: Path) -> str:
    digest = hashlib.sha256(repr((_FLAGS, _WORDS, str(clang))).encode())
    for folder in (_HERE, _SDK / "include", _SDK / "src", *folders):
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:20]


def small_vocabulary() -> bytes:
    """Builds the image of a vocabulary of some 280 tokens."""
    tokens = [bytes([byte]) for byte in range(256)] + [word.encode() for word in _WORDS]
    size = len(tokens)
    return build_image([*tokens, b"<eos>", b"<bos>"], special=[size + 1], eos=[size], bos=size + 1)
