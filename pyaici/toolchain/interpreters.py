"""Builds controllers that are script interpreters, from third-party C sources and our own glue.

The C sources are fetched and never kept in the repository. A folder of ``controllers`` with an
``interpreter.toml`` is an interpreter. It holds the glue, the files that the interpreter needs for a port,
and a library in the language of the scripts, which becomes C that the glue includes.
"""

from __future__ import annotations

import os
import re
import tempfile
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from . import flags
from .languages import LANGUAGES, Language
from .objects import Setting, compile_all, write_archive
from .sdk import BuildError, Sdk
from .zig import Cache, Toolchain, digest

MANIFEST = "interpreter.toml"


def is_interpreter(folder: Path) -> bool:
    """Returns whether a folder contains the glue of an interpreter."""
    return (folder / MANIFEST).is_file()


@dataclass(frozen=True)
class Manifest:
    """The contents of an ``interpreter.toml``."""

    #: a key of `LANGUAGES`
    interpreter: str
    #: size of the module's stack, in KiB
    stack_kib: int

    @classmethod
    def read(cls, folder: Path, known: list[str]) -> Manifest:
        """Reads the manifest in `folder`.

        Raises BuildError if it does not name one of the `known` interpreters and a stack of 16 to 4096 KiB,
        or has other entries.
        """
        path = folder / MANIFEST
        try:
            content = tomllib.loads(path.read_text())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BuildError(f"{path}: {error}") from error
        interpreter, stack = content.pop("interpreter", None), content.pop("stack_kib", None)
        if interpreter not in known:
            raise BuildError(f"{path}: interpreter must be one of {', '.join(known)}, not {interpreter!r}")
        if not isinstance(stack, int) or not 16 <= stack <= 4096:
            raise BuildError(f"{path}: stack_kib must be a number of KiB, 16 to 4096, not {stack!r}")
        if content:
            raise BuildError(
                f"{path}: unknown entries: {', '.join(content)} (the entries are interpreter and stack_kib)"
            )
        return cls(interpreter, stack)


#: the folder of ``controllers`` with the sources that all interpreters share
SHARED = "script"
#: the end of the names of C sources there that call setjmp, or out of which longjmp jumps
_SHARED_SETJMP = "_eh.c"
#: the runtime of compiled setjmp calls: a file of Zig's libc, which a libc without exceptions leaves out,
#: and the tag of the jump
_SETJMP_SOURCE = Path("lib/libc/wasi/libc-top-half/musl/src/setjmp/wasm32/rt.c")
_SETJMP_TAG = '__asm__(".globl __c_longjmp\\n.tagtype __c_longjmp i32\\n__c_longjmp:\\n");\n'


class InterpreterBase:
    """The base of the interpreter whose glue is in `folder`; see `Base`.

    The interpreter itself is an archive in the cache. A change of the glue recompiles the interpreter only if
    it changes the generated headers.
    """

    def __init__(self, folder: Path, sdk: Sdk, tools: Toolchain) -> None:
        manifest = Manifest.read(folder, list(LANGUAGES))
        self.folder, self.sdk, self.tools = folder, sdk, tools
        self.language = LANGUAGES[manifest.interpreter]
        self.stack_bytes = manifest.stack_kib * 1024
        self.shared = folder.parent / SHARED
        self.port = folder / "port"

    def glue(self, suffixes: tuple[str, ...]) -> list[Path]:
        """Returns the sources in the folder and in its subfolders, except those in the port."""
        found = sorted(self.folder.rglob("*"))
        return [path for path in found if path.suffix in suffixes and self.port not in path.parents]

    def sources(self, suffixes: tuple[str, ...]) -> list[Path]:
        """Returns the sources of the glue, then those shared with other interpreters."""
        shared = sorted(self.shared.iterdir()) if self.shared.is_dir() else []
        return [*self.glue(suffixes), *(path for path in shared if path.suffix in suffixes)]

    @property
    def rule(self) -> object:
        """The compiler and flags of the interpreter, and its version."""
        language = self.language
        compiled = (self.tools.version, flags.C, flags.FOREIGN, flags.SETJMP, _SETJMP_TAG, language.flags)
        return (*compiled, language.sdist.sha256)

    @property
    def inputs(self) -> list[Path]:
        """The manifest, the port and the library, not all of which the glue includes."""
        return [self.folder / MANIFEST, *self._port_files(), *library_files(self.folder)]

    def make(self, scratch: Path) -> tuple[Setting, list[Path]]:
        """Returns the setting with the interpreter's headers, and its archive.

        Raises:
            MissingSources: the sources of the interpreter cannot be fetched.
            BuildError: the interpreter does not compile.
        """
        tree = self.language.sdist.unpack(self.tools, self.language.prefix, scratch / "tree")
        generated, embedded = scratch / "generated", scratch / "embedded"
        generated.mkdir()
        embedded.mkdir()
        glue = self.glue((".c",))
        write_library(self.folder, embedded)
        foreign = (*([self.port] if self.port.is_dir() else []), tree, generated)
        own = (self.sdk.include, self.shared, embedded)
        self.language.generate(tree, glue, own + foreign, generated, self.tools)
        archive = self._archive(tree, generated, foreign)
        jumping = set(glue) if self.language.setjmp else set()
        jumping |= {path for path in self.sources((".c",)) if path.name.endswith(_SHARED_SETJMP)}
        known = {self.sdk.root: "aici", scratch: self.language.sdist.title}
        setting = Setting(own, known, foreign=foreign, setjmp=frozenset(jumping))
        return setting, [archive]

    def _archive(self, tree: Path, generated: Path, foreign: tuple[Path, ...]) -> Path:
        headers = sorted((generated / "genhdr").glob("*.h"))
        rule = [self.rule, digest("generated", generated, headers)]
        name = digest(rule, self.folder, self._port_files())
        archive = self.tools.artifact(name, ".a")
        with self.tools.lock(name):
            if not archive.exists():
                self.tools.progress(f"compiling {self.language.sdist.title}, 10 to 30 s, once")
                self._compile(tree, archive, foreign)
        return self.tools.used(archive)

    def _compile(self, tree: Path, archive: Path, foreign: tuple[Path, ...]) -> None:
        with tempfile.TemporaryDirectory(dir=self.tools.cache) as scratch:
            jumps = Path(scratch) / "setjmp.c"
            jumps.write_text(f'#include "{self.tools.zig.parent / _SETJMP_SOURCE}"\n{_SETJMP_TAG}')
            sources = [*self.language.sources(tree), jumps]
            setting = Setting(
                (),
                {tree: self.language.sdist.title},
                foreign,
                (*flags.FOREIGN, *self.language.flags),
                frozenset(sources if self.language.setjmp else [jumps]),
            )
            objects, _ = compile_all(self.tools, sources, Path(scratch), setting)
            write_archive(self.tools, objects, archive, Path(scratch))

    def _port_files(self) -> list[Path]:
        return sorted(path for path in self.port.rglob("*") if path.is_file())


HEADER = "aici_library.h"
#: bytes per line
_WIDTH = 24


def library_files(folder: Path) -> list[Path]:
    """Returns the files of ``library`` in a controller's folder, sorted."""
    return sorted(path for path in (folder / "library").glob("*") if path.is_file())


def write_library(folder: Path, out: Path) -> None:
    """Writes the header into `out`.

    For each ``library/NAME.EXT`` the header has an array ``NAME_library``, which ends with a zero that
    ``NAME_library_length`` does not count. ``library_files`` lists the name, text and length of each file.

    Raises:
        BuildError: a file's name is not a C identifier, or its content is not UTF-8.
    """
    text = "/* written by the build: the files of library/ */\n"
    for path in library_files(folder):
        name, content = path.stem, path.read_bytes()
        if not (name.isascii() and name.isidentifier()):
            raise BuildError(f"{path}: its name must be a C identifier: only letters, digits and _")
        try:
            content.decode()
        except UnicodeDecodeError as error:
            raise BuildError(f"{path} is not UTF-8: {error}") from error
        text += f"static const char {name}_library[] = {{\n"
        ended = [*content, 0]
        # a char may be signed
        signed = [str(byte - 256 if byte > 127 else byte) for byte in ended]
        for start in range(0, len(signed), _WIDTH):
            text += f"    {', '.join(signed[start : start + _WIDTH])},\n"
        text += f"}};\nenum {{ {name}_library_length = {len(content)} }};\n"
    text += "typedef struct library_file {\n    const char *name, *text;\n"
    text += "    unsigned long length;\n} library_file;\n"
    text += "static const library_file library_files[] __attribute__((unused)) = {\n"
    for path in library_files(folder):
        text += f'    {{"{path.name}", {path.stem}_library, {path.stem}_library_length}},\n'
    text += "    {0, 0, 0},\n};\n"
    (out / HEADER).write_text(text)


_COPYRIGHT = re.compile(r"^[\s*/]*(Copyright \([cC]\) .*?)[\s*/]*$", re.MULTILINE)
_PERMISSION = re.compile(r"Permission is hereby granted, free of charge.*?\n[\s*]*(?=\*/)", re.DOTALL)


def notices(folders: Iterable[Path], cache: Cache) -> dict[str, Path]:
    """Returns the notices of the interpreters whose glue is in these folders.

    Maps the name that each notice should get to its file in the cache.

    Raises:
        MissingSources: the sources of an interpreter cannot be fetched.
    """
    made = {}
    for folder in filter(is_interpreter, folders):
        language = LANGUAGES[Manifest.read(folder, list(LANGUAGES)).interpreter]
        path = cache.artifact(digest(["notice", language.sdist.sha256], Path(), []), ".txt")
        if not path.exists():
            unfinished = path.with_suffix(f".{os.getpid()}")
            unfinished.write_text(_notice(language, cache))
            unfinished.replace(path)
        made[f"{language.sdist.title}.txt"] = cache.used(path)
    return made


def _notice(language: Language, cache: Cache) -> str:
    """Returns all copyright lines of the sources and headers, and the first permission among them."""
    with tempfile.TemporaryDirectory(dir=cache.cache) as scratch:
        tree = language.sdist.unpack(cache, language.prefix, Path(scratch) / "tree")
        sources = language.sources(tree)
        beside = {path for source in sources for path in source.parent.glob("*.h")}
        texts = [path.read_text(errors="replace") for path in (*sources, *sorted(beside))]
    owners = sorted({owner for text in texts for owner in _COPYRIGHT.findall(text)})
    permission = next((found[0] for text in texts if (found := _PERMISSION.search(text))), None)
    if permission is None or not owners:
        raise BuildError(
            f"the sources of {language.sdist.title} have no licence text that the build can find"
        )
    lines = [re.sub(r"^[ *]+", "", line).rstrip() for line in permission.rstrip().splitlines()]
    return "\n".join(
        [f"{language.sdist.title}, from its sources", "", *owners, "", *lines, ""],
    )
