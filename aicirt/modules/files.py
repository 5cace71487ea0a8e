"""What has been uploaded, by the SHA-256 of its content: modules and scripts."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from aicirt.errors import RuntimeFailure, UnknownModuleError
from aicirt.modules.private import write_whole
from aicirt.modules.tags import is_module_id
from aicirt.shortage import describe, is_shortage
from aicirt.stored_script import StoredScript

#: so much of an id finds a module: nobody comes upon those of others by trying
_BEGINNING = re.compile("[0-9a-f]{12,63}")
_MODULE, _SCRIPT = ".wasm", ".script"


class ModuleFiles:
    """``<id>.wasm`` and ``<id>.script`` in one folder, which may be shared: nothing in it is trusted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def has(self, module_id: str) -> bool:
        """Whether there is such a module or script."""
        return any(self._path(module_id, kind).exists() for kind in (_MODULE, _SCRIPT))

    def is_script(self, module_id: str) -> bool:
        """Whether it is a script, of which nothing is read."""
        return self._path(module_id, _SCRIPT).exists()

    def ids(self) -> list[str]:
        """All of them, in order."""
        found = [path.stem for kind in (_MODULE, _SCRIPT) for path in self._folder.glob(f"*{kind}")]
        return sorted(filter(is_module_id, found))

    def find(self, beginning: str) -> str | None:
        """The one whose id begins so, if that is long enough. Raises UnknownModuleError if there are more."""
        if not _BEGINNING.fullmatch(beginning):
            return None
        found = [module_id for module_id in self.ids() if module_id.startswith(beginning)]
        if len(found) > 1:
            raise UnknownModuleError(f"{len(found)} modules begin with {beginning!r}: say more of the id")
        return found[0] if found else None

    def wasm(self, module_id: str) -> bytes:
        """The module itself, checked against its id. Raises UnknownModuleError, or RuntimeFailure if it
        cannot be read now."""
        data = self._read(module_id, _MODULE)
        if data is None:
            raise UnknownModuleError(f"no module {module_id}")
        return data

    def script(self, module_id: str) -> StoredScript | None:
        """The script, or None: it is a module, if it is there at all. Raises as `wasm`."""
        data = self._read(module_id, _SCRIPT)
        return None if data is None else StoredScript.unpack(data)

    def scripts(self) -> dict[str, StoredScript]:
        """All that can be read, by id."""
        found = {}
        for module_id in self.ids():
            try:
                script = self.script(module_id)
            except (RuntimeFailure, UnknownModuleError):
                continue
            if script is not None:
                found[module_id] = script
        return found

    def keep_wasm(self, module_id: str, data: bytes) -> None:
        """Raises OSError."""
        write_whole(self._path(module_id, _MODULE), data, 0o644)

    def keep_script(self, script: StoredScript) -> None:
        """Raises OSError."""
        write_whole(self._path(script.id, _SCRIPT), script.pack(), 0o644)

    def discard(self, module_id: str) -> None:
        """It is there no more. Raises OSError."""
        for kind in (_MODULE, _SCRIPT):
            self._path(module_id, kind).unlink(missing_ok=True)

    def _path(self, module_id: str, kind: str) -> Path:
        return self._folder / f"{module_id}{kind}"

    def _read(self, module_id: str, kind: str) -> bytes | None:
        try:
            data = self._path(module_id, kind).read_bytes()
        except OSError as error:
            if is_shortage(error):
                raise RuntimeFailure(f"module {module_id} cannot be read: {describe(error)}") from error
            return None
        if hashlib.sha256(data).hexdigest() != module_id:
            raise UnknownModuleError(f"the stored module {module_id} is damaged: upload it again")
        return data
