"""Tags, claims and charges: which owner has named or uploaded each module, or pays for it, in SQLite."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import (
    ModuleError,
    NotOwnerError,
    OwnerLimitError,
    RuntimeFailure,
    UnknownControllerError,
)
from aicirt.contract.modules import check_tag_name
from aicirt.settings import MIN_UPLOAD
from aicirt.system.files import private_directory

if TYPE_CHECKING:
    from aicirt.modules.files import ModuleFiles

#: seconds that a change waits for another process that changes the same store
LOCK_SECONDS = 60.0

# the journal is a file of its own, not SQLite's WAL: a home may be on a network file system
_SCHEMA = """
CREATE TABLE IF NOT EXISTS modules (
    id TEXT PRIMARY KEY, nbytes INTEGER NOT NULL, interpreter TEXT NOT NULL, payer TEXT NOT NULL,
    created REAL NOT NULL  -- Unix seconds of the first upload; 0 = it has only been tagged
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS charges ON modules (payer, nbytes);
CREATE INDEX IF NOT EXISTS interpreted ON modules (interpreter);
CREATE TABLE IF NOT EXISTS claims (
    module TEXT, owner TEXT, since REAL NOT NULL, PRIMARY KEY (module, owner)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tags (
    name TEXT PRIMARY KEY, module TEXT NOT NULL, owner TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tagged ON tags (module);
CREATE INDEX IF NOT EXISTS named ON tags (owner);
"""

_DAMAGED = "it is damaged: restore or remove it. Without it, tags and uploaders are forgotten"
_CURES = {
    sqlite3.SQLITE_BUSY: f"another process has been changing it for {LOCK_SECONDS:.0f} s: end that process",
    sqlite3.SQLITE_CANTOPEN: "make its folder as it was and writable, or choose another one (--store)",
    sqlite3.SQLITE_FULL: "make room there, or choose another folder (--store)",
    sqlite3.SQLITE_READONLY: "make it writable, or choose another folder (--store)",
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
}


@dataclass(slots=True)
class Claim:
    """The claims to one module."""

    #: Unix seconds of the first upload; 0 = unknown
    created: float = 0.0
    #: Unix seconds of each owner's first upload
    owners: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tag:
    name: str
    module: str
    #: the owner who may move it; empty = any owner
    owner: str = ""


class Ownership:
    """The ownership of the modules in one store, in one file that several processes and threads may change.

    A change locks the file, so that a module is not added and removed at the same time. All methods may raise
    RuntimeFailure if the file cannot be read or written.
    """

    def __init__(self, directory: Path, files: ModuleFiles) -> None:
        """Keeps the file in a private folder in `directory`. Raises RuntimeFailure, OSError."""
        self._path = private_directory(directory / "owners") / "owners.sqlite"
        self._files = files
        self._idle: list[sqlite3.Connection] = []

    # -- changes -----------------------------------------------------------------------------

    @contextmanager
    def claiming(self, module_id: str, claimant: str) -> Iterator[None]:
        """Locks the file while a module is stored, so that it is not removed before its claim is written.

        Without a claimant, neither locks nor adds a claim.
        """
        if not claimant:
            yield
            return
        with self._changing() as db:
            yield
            self._claim(db, module_id, claimant)

    def claim(self, module_id: str, claimant: str) -> bool:
        """Adds a claim to a module; returns False if it is not stored. An existing claim keeps its time."""
        if self._ask("SELECT 1 FROM claims WHERE module = ? AND owner = ?", module_id, claimant):
            return self._files.has(module_id)  # the file may be read-only
        with self._changing() as db:
            if stored := self._files.has(module_id):
                self._claim(db, module_id, claimant)
            return stored

    def remove(self, module_id: str, owner: str = "", *, force: bool = False) -> list[str]:
        """Drops an owner's claim to a module; the owner's tags on it must be removed before.

        If no claim and no tag is left, and no stored script needs the module, removes it. With `force`,
        removes it and its tags even if others have claims to it. Returns the ids of all modules whose files
        have been removed: for a script also its interpreter, if it was the last to need it. Raises
        `UnknownControllerError`, `NotOwnerError` if the owner has no claim to the module, `ModuleError` if
        the owner has tags on it.
        """
        with self._changing() as db:
            stored = self._files.has(module_id)
            if stored and not force and not self._disown(db, module_id, owner):
                return []
            # also of a module that another machine has removed from a shared folder
            gone = self._drop(db, module_id)
        if not stored:
            raise UnknownControllerError(f"no module {module_id}")
        return gone

    def tag(self, name: str, module_id: str, owner: str = "", limit: int | None = None) -> list[str]:
        """Tags a module, or moves the existing tag there. `limit`: the number of tags that an owner may have.

        Returns the ids of modules that are removed as a result: see `untag`. Raises `UnknownControllerError`,
        `ModuleError` for an invalid name, `NotOwnerError` if the tag belongs to another owner, and
        `OwnerLimitError`.
        """
        check_tag_name(name)
        with self._changing() as db:
            if not self._files.has(module_id):
                raise UnknownControllerError(f"no module {module_id}")
            before = self._tag_for(db, name, owner)
            question = "SELECT count(*) FROM tags WHERE owner = ? AND name != ?"
            (others,) = db.execute(question, (owner, name)).fetchone()
            if limit is not None and others >= limit:
                raise OwnerLimitError(
                    f"owner {owner!r} has {others} tags; the limit is {limit} (owner_tags): remove some",
                    limit=limit,
                )
            db.execute("REPLACE INTO tags VALUES (?, ?, ?)", (name, module_id, owner))
            self._record(db, module_id, 0.0)
            return [] if before is None else self._drop_unwanted(db, before)

    def untag(self, name: str, owner: str = "", *, force: bool = False) -> list[str]:
        """Removes a tag; with `force`, of any owner.

        A module that all its owners have removed is kept by its tags. Removing the last of them removes the
        module too, since no owner could remove it later. Returns the ids of such modules. Raises
        `UnknownControllerError` for an unknown tag, `NotOwnerError` if the tag belongs to another owner.
        """
        with self._changing() as db:
            module_id = self._tag_for(db, name, owner, force=force)
            if module_id is None:
                raise UnknownControllerError(f"no tag {name!r}")
            db.execute("DELETE FROM tags WHERE name = ?", (name,))
            return self._drop_unwanted(db, module_id)

    # -- questions ---------------------------------------------------------------------------

    def bytes_of(self, owner: str) -> int:
        """Returns the bytes of all files charged to an owner; small files are charged `MIN_UPLOAD`.

        A module that several owners have uploaded is charged to the first of them. A module without claims is
        charged to the owner of a tag on it, or of a script that needs it.
        """
        question = "SELECT total(max(nbytes, ?)) FROM modules WHERE payer = ?"
        ((nbytes,),) = self._ask(question, MIN_UPLOAD, owner)
        return int(nbytes)

    def tagged(self, name: str) -> str | None:
        """Returns the module with a tag; None if there is no such tag."""
        found = self._ask("SELECT module FROM tags WHERE name = ?", name)
        return found[0][0] if found else None

    def tags(self) -> list[Tag]:
        """Returns all tags, sorted by name."""
        return [Tag(*row) for row in self._ask("SELECT name, module, owner FROM tags ORDER BY name")]

    def tags_of(self, module_id: str) -> list[str]:
        """Returns the names of a module's tags, sorted."""
        return [
            name for (name,) in self._ask("SELECT name FROM tags WHERE module = ? ORDER BY name", module_id)
        ]

    def finds(self, owner: str, module_id: str) -> bool:
        """Returns whether an owner has uploaded a module, or it has a tag."""
        question = (
            "SELECT 1 WHERE EXISTS (SELECT 1 FROM claims WHERE module = ?1 AND owner = ?2) "
            "OR EXISTS (SELECT 1 FROM tags WHERE module = ?1)"
        )
        return bool(self._ask(question, module_id, owner))

    def claims(self, module_id: str) -> Claim:
        """Returns the claims to a module."""
        owners = dict(self._ask("SELECT owner, since FROM claims WHERE module = ?", module_id))
        created = self._ask("SELECT created FROM modules WHERE id = ?", module_id)
        return Claim(created[0][0] if created else 0.0, owners)

    # -- rows --------------------------------------------------------------------------------

    def _claim(self, db: sqlite3.Connection, module_id: str, owner: str) -> None:
        now = time.time()
        row = (module_id, owner, now)
        if db.execute("INSERT OR IGNORE INTO claims VALUES (?, ?, ?)", row).rowcount:
            self._record(db, module_id, now)

    def _record(self, db: sqlite3.Connection, module_id: str, created: float) -> None:
        """Adds a module's row, or the time to the row of one that had no claim until now."""
        interpreter = self._interpreter(module_id) or ""
        rows = [(interpreter, self._files.size(interpreter), "", 0.0)] if interpreter else []
        db.executemany(
            "INSERT INTO modules (id, nbytes, interpreter, created, payer) VALUES (?, ?, ?, ?, '') "
            "ON CONFLICT DO UPDATE SET created = excluded.created WHERE created = 0",
            [*rows, (module_id, self._files.size(module_id), interpreter, created)],
        )
        self._charge(db, module_id)

    @staticmethod
    def _charge(db: sqlite3.Connection, module_id: str) -> None:
        """Finds out who pays for a module, and for the interpreter of a script, after a change."""
        interpreters = db.execute("SELECT interpreter FROM modules WHERE id = ?", (module_id,)).fetchall()
        db.executemany(
            "UPDATE modules SET payer = coalesce("
            "(SELECT owner FROM claims WHERE module = modules.id ORDER BY since, owner LIMIT 1), "
            "(SELECT owner FROM tags WHERE module = modules.id ORDER BY name LIMIT 1), "
            "(SELECT payer FROM modules AS script WHERE script.interpreter = modules.id LIMIT 1), '') "
            "WHERE id = ?",
            [(module_id,), *interpreters],
        )

    def _disown(self, db: sqlite3.Connection, module_id: str, owner: str) -> bool:
        """Drops an owner's claim to a module; returns whether nothing keeps the module any longer."""
        owners = [name for (name,) in db.execute("SELECT owner FROM claims WHERE module = ?", (module_id,))]
        if owner not in owners:
            who = f"{len(owners)} other owners have" if owners else "no owner is recorded"
            raise NotOwnerError(
                f"owner {owner!r} has not uploaded module {module_id}; {who}. Only an owner who uploaded it "
                "can remove it, or an administrator with force"
            )
        tags = db.execute(
            "SELECT name FROM tags WHERE module = ? AND owner = ? ORDER BY name", (module_id, owner)
        )
        if own := [name for (name,) in tags]:
            raise ModuleError(
                f"module {module_id} still has the tags {', '.join(own)}: remove them first (aici untag)"
            )
        db.execute("DELETE FROM claims WHERE module = ? AND owner = ?", (module_id, owner))
        self._charge(db, module_id)
        return self._is_unwanted(db, module_id)

    def _is_unwanted(self, db: sqlite3.Connection, module_id: str) -> bool:
        """Returns whether all owners have dropped their claims, and no tag and no script needs the module.

        A module without a claim from the beginning is never unwanted. Raises RuntimeFailure if a script
        cannot be read.
        """
        (kept,) = db.execute(
            "SELECT NOT EXISTS (SELECT 1 FROM modules WHERE id = ?1 AND created > 0) "
            "OR EXISTS (SELECT 1 FROM claims WHERE module = ?1) "
            "OR EXISTS (SELECT 1 FROM tags WHERE module = ?1)",
            (module_id,),
        ).fetchone()
        if kept or self._files.is_script(module_id):
            return not kept
        # other machines may have stored scripts in the same folder, so the files decide
        known = dict(db.execute("SELECT id, interpreter FROM modules WHERE interpreter != ''"))
        return not self._files.interprets(module_id, known)

    def _drop_unwanted(self, db: sqlite3.Connection, module_id: str) -> list[str]:
        """Removes a module that a tag or script has needed until now, unless something else does."""
        self._charge(db, module_id)
        return self._drop(db, module_id) if self._is_unwanted(db, module_id) else []

    def _drop(self, db: sqlite3.Connection, module_id: str) -> list[str]:
        """Removes a module with its claims and tags, and its interpreter if only this script needed it."""
        interpreter = self._interpreter(module_id)
        for statement in (
            "DELETE FROM claims WHERE module = ?",
            "DELETE FROM tags WHERE module = ?",
            "DELETE FROM modules WHERE id = ?",
        ):
            db.execute(statement, (module_id,))
        self._files.discard(module_id)
        return [module_id, *([] if interpreter is None else self._drop_unwanted(db, interpreter))]

    def _interpreter(self, module_id: str) -> str | None:
        """Returns the interpreter of a script; None for a module, and for a damaged script."""
        try:
            note = self._files.note(module_id)
        except (ModuleError, RuntimeFailure):
            return None
        return None if note is None else note.interpreter

    @staticmethod
    def _tag_for(db: sqlite3.Connection, name: str, owner: str, *, force: bool = False) -> str | None:
        """Returns the module with a tag, None if there is no such tag; raises NotOwnerError."""
        row = db.execute("SELECT module, owner FROM tags WHERE name = ?", (name,)).fetchone()
        if row is None:
            return None
        module_id, holder = row
        if not force and holder not in ("", owner):
            raise NotOwnerError(f"tag {name!r} belongs to {holder!r}")
        return str(module_id)

    # -- the file ----------------------------------------------------------------------------

    def _ask(self, question: str, *values: object) -> list[tuple[Any, ...]]:
        with self._connected() as db:
            return db.execute(question, values).fetchall()

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """Locks the file for a change, which is made whole at the end, or not at all after an error."""
        with self._connected() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """Yields a connection for one thread: others do not see its unfinished change."""
        try:
            try:
                db = self._idle.pop()
            except IndexError:
                db = self._connect()
            try:
                yield db
            except sqlite3.Error:
                db.close()  # the file may have been replaced meanwhile
                raise
            except BaseException:
                self._keep(db)
                raise
            self._keep(db)
        except sqlite3.Error as error:
            cure = _CURES.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
            raise RuntimeFailure(f"{self._path}: {error}" + (f": {cure}" if cure else "")) from error

    def _keep(self, db: sqlite3.Connection) -> None:
        """Keeps a connection for later, unless the file may not be written: it would never write again."""
        if os.access(self._path, os.W_OK):
            self._idle.append(db)
        else:
            db.close()

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, LOCK_SECONDS, isolation_level=None, check_same_thread=False)
        if not db.execute("SELECT 1 FROM sqlite_master").fetchone():
            db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
        return db
