"""Files of uploaded modules and scripts, named by the SHA-256 of their content."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from aicirt.contract.errors import ModuleError, RuntimeFailure, UnknownControllerError
from aicirt.contract.modules import MAX_SOURCE, StoredScript, is_module_id
from aicirt.system.files import is_regular, read_regular, write_whole
from aicirt.system.shortage import describe, is_shortage

_MODULE, _SCRIPT = ".wasm", ".script"
#: maximum bytes of a script's file: JSON may need six bytes for a one-byte character, and the name is short
_MAX_SCRIPT = 8 * MAX_SOURCE


@dataclass(frozen=True, slots=True)
class ScriptNote:
    """The facts about a script, without its text."""

    interpreter: str
    language: str
    name: str
    #: bytes of the text
    size: int


class ModuleFiles:
    """The files ``<id>.wasm`` and ``<id>.script`` in one folder, which may be shared and is untrusted."""

    def __init__(self, folder: Path, most: int) -> None:
        """Uses `folder`. `most` is the size of the largest module: larger files are not read to the end."""
        self._folder = folder
        self._most = most
        #: notes on scripts that have been read: the content behind an id never changes
        self._notes: dict[str, ScriptNote] = {}

    def has(self, module_id: str) -> bool:
        """Returns whether a module or script with this id is stored."""
        return any(is_regular(self._path(module_id, kind)) for kind in (_MODULE, _SCRIPT))

    def is_script(self, module_id: str) -> bool:
        """Returns whether the id is a stored script, without reading it."""
        return is_regular(self._path(module_id, _SCRIPT))

    def size(self, module_id: str) -> int:
        """Returns the size of the file in bytes; 0 if there is none."""
        for kind in (_MODULE, _SCRIPT):
            if is_regular(path := self._path(module_id, kind)):
                return path.stat().st_size
        return 0

    def ids(self) -> list[str]:
        """Returns the ids of all modules and scripts, sorted."""
        return self._ids(_MODULE, _SCRIPT)

    def wasm(self, module_id: str) -> bytes:
        """Returns the module itself, checked against its id.

        Raises UnknownControllerError if it is missing or damaged, RuntimeFailure if it cannot be read now.
        """
        data = self._read(module_id, _MODULE, self._most + 1)
        if data is None:
            raise UnknownControllerError(f"no module {module_id}")
        if hashlib.sha256(data).hexdigest() != module_id:
            raise UnknownControllerError(f"the stored module {module_id} is damaged: upload it again")
        return data

    def script(self, module_id: str) -> StoredScript | None:
        """Returns the script, or None if no script has this id.

        Raises ModuleError if it is damaged, RuntimeFailure if it cannot be read now.
        """
        if not self.is_script(module_id):  # without opening a file, which needs a free descriptor
            return None
        data = self._read(module_id, _SCRIPT, _MAX_SCRIPT + 1)
        if data is None:
            if not self.is_script(module_id):  # it has just been removed
                return None
            raise RuntimeFailure(f"the script {module_id} cannot be read: check who owns its file")
        try:
            if hashlib.sha256(data).hexdigest() != module_id:
                raise ModuleError("the file was changed")
            script = StoredScript.unpack(data)
        except ModuleError as error:
            raise ModuleError(
                f"the stored script {module_id} is damaged ({error}): upload it again"
            ) from None
        self._note(module_id, script)
        return script

    def note(self, module_id: str) -> ScriptNote | None:
        """Returns the facts about a script, or None; raises the errors of `script`."""
        if not self.is_script(module_id):
            self._notes.pop(module_id, None)
            return None
        # another thread may change the notes
        if (note := self._notes.get(module_id)) is None and (script := self.script(module_id)) is not None:
            note = self._note(module_id, script)
        return note

    def interprets(self, module_id: str, known: Mapping[str, str]) -> bool:
        """Returns whether a stored script needs a module. Raises RuntimeFailure if one cannot be read now.

        `known`: interpreters of scripts by id. Other scripts are read, once.
        """
        for script in self._ids(_SCRIPT):
            with suppress(ModuleError):  # damaged
                if (interpreter := known.get(script)) is None:
                    note = self._notes.get(script) or self.note(script)
                    interpreter = None if note is None else note.interpreter
                if interpreter == module_id:
                    return True
        return False

    def keep_wasm(self, module_id: str, data: bytes) -> None:
        """Stores a module. Raises OSError."""
        write_whole(self._path(module_id, _MODULE), data, 0o644)

    def keep_script(self, script: StoredScript) -> None:
        """Stores a script. Raises OSError."""
        module_id = script.id
        write_whole(self._path(module_id, _SCRIPT), script.pack(), 0o644)
        self._note(module_id, script)

    def discard(self, module_id: str) -> None:
        """Removes a module or script. Raises OSError."""
        for kind in (_MODULE, _SCRIPT):
            if is_regular(path := self._path(module_id, kind)):
                path.unlink(missing_ok=True)
        self._notes.pop(module_id, None)

    def _note(self, module_id: str, script: StoredScript) -> ScriptNote:
        size = len(script.source.encode())
        note = ScriptNote(script.interpreter, script.language, script.name, size)
        self._notes[module_id] = note
        return note

    def _ids(self, *kinds: str) -> list[str]:
        try:
            with os.scandir(self._folder) as entries:  # without paths: an owner may have 16 384 scripts
                found = {entry.name.rpartition(".")[0] for entry in entries if entry.name.endswith(kinds)}
        except FileNotFoundError as error:
            raise RuntimeFailure(f"the folder of modules {self._folder} is missing: restore it") from error
        return sorted(filter(is_module_id, found))

    def _path(self, module_id: str, kind: str) -> Path:
        return self._folder / f"{module_id}{kind}"

    def _read(self, module_id: str, kind: str, most: int) -> bytes | None:
        """Reads at most `most` bytes; returns None if the file is missing, not regular, or not readable.

        Raises RuntimeFailure if a resource for reading is exhausted.
        """
        try:
            return read_regular(self._path(module_id, kind), most)
        except OSError as error:
            if is_shortage(error):
                raise RuntimeFailure(f"module {module_id} cannot be read: {describe(error)}") from error
            return None
