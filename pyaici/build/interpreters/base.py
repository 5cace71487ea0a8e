"""An interpreter as the base on which a controller is built."""

from __future__ import annotations

import tempfile
from pathlib import Path

from .. import flags
from ..cache import digest
from ..objects import Setting, compile_all, write_archive
from ..sdk import Sdk
from ..toolchain import Toolchain
from .embedded import library_files, write_library
from .languages import LANGUAGES
from .manifest import MANIFEST, Manifest

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
