"""Tags, claims and ownership: which owner has named or uploaded each module, in tables on disk."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from aicirt.contract.errors import ModuleError, NotOwnerError, RuntimeFailure, UnknownModuleError
from aicirt.contract.modules import SHORTEST_ID, looks_like_id
from aicirt.settings import LEAST_UPLOAD
from aicirt.system.files import is_private_file, read_regular, write_whole

if TYPE_CHECKING:
    from aicirt.modules.files import ModuleFiles


View = TypeVar("View")
#: maximum bytes of a table: millions of rows
_MOST = 1 << 30


class Table:
    """Rows of plain data by name in one JSON file, which is written atomically and thus read without a lock.

    The rows stay in memory until the file is another one. Raises RuntimeFailure for a file that another user
    has put there.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._path = directory / f"{name}.json"
        self._lock = directory / f".{name}.lock"
        self._rows: dict[str, Any] = {}
        #: the file that the rows are from; None = none
        self._stamp: tuple[int, ...] | None = None
        #: what was made of the rows, by the function that makes it
        self._views: dict[Callable[[dict[str, Any]], Any], Any] = {}

    def read(self) -> dict[str, Any]:
        """Returns the rows of the table, which must not be changed."""
        stamp = self._look()  # before the file is read: if it is replaced meanwhile, it is read again later
        if stamp is None or stamp != self._stamp:
            self._keep(self._read(), stamp)
        return self._rows

    def view(self, make: Callable[[dict[str, Any]], View]) -> View:
        """Returns `make(rows)`, which is made once for the same rows, and must not be changed."""
        rows = self.read()
        if make not in self._views:
            self._views[make] = make(rows)
        view: View = self._views[make]
        return view

    def _look(self) -> tuple[int, ...] | None:
        try:
            found = self._path.lstat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode, found.st_uid

    def _keep(self, rows: dict[str, Any], stamp: tuple[int, ...] | None) -> None:
        self._rows, self._stamp = rows, stamp
        self._views.clear()

    def _read(self) -> dict[str, Any]:
        data = read_regular(self._path, _MOST, ours=True)
        if data is None:
            if os.path.lexists(self._path):
                raise self._foreign(self._path)
            return {}
        try:
            rows: dict[str, Any] = json.loads(data)
        except ValueError:
            raise RuntimeFailure(f"{self._path} is damaged: repair or remove it") from None
        return rows

    @contextmanager
    def changing(self) -> Iterator[dict[str, Any]]:
        """Locks the table and yields a copy of the rows; writes it at the end if it has changed.

        A row must be replaced as a whole.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            fd = os.open(self._lock, flags, 0o600)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.EACCES):
                raise
            raise self._foreign(self._lock) from None
        try:
            if not is_private_file(self._lock):  # another user could hold the lock for ever
                raise self._foreign(self._lock)
            fcntl.flock(fd, fcntl.LOCK_EX)
            before = self.read()
            yield (rows := dict(before))
            if rows != before:
                write_whole(self._path, json.dumps(rows, sort_keys=True).encode())
                self._keep(rows, self._look())
        finally:
            os.close(fd)

    @staticmethod
    def _foreign(path: Path) -> RuntimeFailure:
        return RuntimeFailure(
            f"{path} is not a private file of this user: remove it, or choose another folder (--store)"
        )


@dataclass(slots=True)
class Claim:
    """The claims to one module. Modules uploaded before claims existed have none."""

    #: Unix seconds of the first upload; 0 = unknown
    created: float = 0.0
    #: Unix seconds of each owner's first upload
    owners: dict[str, float] = field(default_factory=dict)


def _claims(rows: dict[str, Any]) -> dict[str, Claim]:
    return {module: Claim(**row) for module, row in rows.items()}


class Claims:
    """The claims to the modules of one store, by module id, in one file that several processes may change."""

    def __init__(self, directory: Path) -> None:
        self._table = Table(directory, "claims")

    def read(self) -> dict[str, Claim]:
        """Returns the claims by module id."""
        return self._table.view(_claims)

    def of(self, module: str) -> Claim:
        """Returns the claims to one module."""
        row = self._table.read().get(module)
        return Claim() if row is None else Claim(**row)

    @contextmanager
    def changing(self) -> Iterator[ClaimsChange]:
        """Locks the claims for a change, and for other work that must not run during another change."""
        with self._table.changing() as rows:
            yield ClaimsChange(rows)


class ClaimsChange:
    """The claims while they are locked."""

    def __init__(self, rows: dict[str, Any]) -> None:
        self._rows = rows

    def owners(self, module: str) -> set[str]:
        """Returns the owners who have a claim to a module."""
        return set(self._rows.get(module, {}).get("owners", ()))

    def add(self, module: str, owner: str) -> None:
        """Adds a claim for an owner who has uploaded the module. An existing claim keeps its time."""
        now = time.time()
        row = self._rows.get(module, {"created": now, "owners": {}})
        self._rows[module] = {**row, "owners": {owner: now} | row["owners"]}

    def require(self, module: str, owner: str) -> None:
        """Raises NotOwnerError if `owner` has no claim to the module."""
        owners = self.owners(module)
        if owner not in owners:
            who = f"{len(owners)} other owners have" if owners else "no owner is recorded"
            raise NotOwnerError(
                f"owner {owner!r} has not uploaded module {module}; {who}. Only an owner who uploaded it can "
                "remove it, or an administrator with force"
            )

    def drop(self, module: str, owner: str) -> None:
        """Removes an owner's claim to a module, if there is one."""
        if (row := self._rows.get(module)) is not None:
            left = {name: since for name, since in row["owners"].items() if name != owner}
            self._rows[module] = {**row, "owners": left}

    def abandoned(self, module: str) -> bool:
        """Returns whether all owners have dropped their claims; False if there has never been a claim."""
        row = self._rows.get(module)
        return row is not None and not row["owners"]

    def forget(self, module: str) -> None:
        """Removes the claims to a module that is no longer stored."""
        self._rows.pop(module, None)


#: pattern of a tag, which excludes paths; `looks_like_id` excludes ids
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Tag:
    name: str
    module: str
    #: the owner who may move it; empty = any owner
    owner: str = ""


class Tags:
    """The tags of one store, in one file that several processes may change."""

    def __init__(self, directory: Path) -> None:
        self._table = Table(directory, "tags")

    def set(self, name: str, module: str, owner: str = "") -> Tag:
        """Tags `module` with `name`, or moves the existing tag there.

        Raises `ModuleError` for an invalid name, `NotOwnerError` if the tag belongs to another owner.
        """
        if not _NAME.fullmatch(name):
            raise ModuleError(
                f"invalid tag {name[:100]!r}: a tag has 1 to 64 characters from a-z, 0-9, '.', '_' and '-', "
                "and starts with a letter or digit"
            )
        if looks_like_id(name):
            raise ModuleError(
                f"tag {name!r} could be taken for the id of a module, since it has {SHORTEST_ID} or more "
                "characters, all from 0-9 and a-f: add a letter from g to z, a '.', '_' or '-'"
            )
        tag = Tag(name, module, owner)
        with self._table.changing() as tags:
            _require_owner(tags.get(name), owner)
            tags[name] = asdict(tag)
        return tag

    def remove(self, name: str, owner: str = "", *, force: bool = False) -> None:
        """Removes a tag; with `force`, of any owner.

        Raises `UnknownModuleError` for an unknown tag, `NotOwnerError` if the tag belongs to another owner.
        """
        with self._table.changing() as tags:
            if name not in tags:
                raise UnknownModuleError(f"no tag {name!r}")
            if not force:
                _require_owner(tags[name], owner)
            del tags[name]

    def modules(self) -> dict[str, str]:
        """Returns the module id of each tag."""
        return self._table.view(_modules)

    def list(self) -> Sequence[Tag]:
        """Returns all tags, sorted by name."""
        return self._table.view(_sorted)

    def of(self, module: str) -> Sequence[str]:
        """Returns the names of a module's tags, sorted."""
        return self._table.view(_by_module).get(module, ())


def _modules(rows: dict[str, Any]) -> dict[str, str]:
    return {name: row["module"] for name, row in rows.items()}


def _sorted(rows: dict[str, Any]) -> Sequence[Tag]:
    return [Tag(**row) for _, row in sorted(rows.items())]


def _by_module(rows: dict[str, Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, row in sorted(rows.items()):
        found.setdefault(row["module"], []).append(name)
    return found


def _require_owner(tag: dict[str, Any] | None, owner: str) -> None:
    if tag and tag["owner"] not in ("", owner):
        raise NotOwnerError(f"tag {tag['name']!r} belongs to {tag['owner']!r}")


class Ownership:
    """The ownership of the modules in one store.

    Changes hold the lock of the claims, so that a module is not added and removed at the same time.
    """

    def __init__(self, files: ModuleFiles, tags: Tags, claims: Claims, gone: Callable[[str], None]) -> None:
        """Calls `gone` with the id of each module that is no longer stored."""
        self._files = files
        self._tags = tags
        self._claims = claims
        self._gone = gone

    @contextmanager
    def claiming(self, module_id: str, claimant: str) -> Iterator[None]:
        """Locks the claims while a module is stored, so that it is not removed before its claim is written.

        Without a claimant, neither locks nor adds a claim.
        """
        if not claimant:
            yield
            return
        with self._claims.changing() as claims:
            yield
            claims.add(module_id, claimant)

    def remove(self, module_id: str, owner: str = "", *, force: bool = False) -> bool:
        """Drops an owner's claim to a module; the owner's tags on it must be removed before.

        If no claim and no tag is left, and no stored script needs the module, removes the module with its
        compiled code and returns True. With `force`, removes it and its tags even if others have claims to
        it. Raises `UnknownModuleError`, `NotOwnerError` if the owner has no claim to the module,
        `ModuleError` if the owner has tags on it.
        """
        with self._claims.changing() as claims:
            if not self._files.has(module_id):
                raise UnknownModuleError(f"no module {module_id}")
            tags = [tag for tag in self._tags.list() if tag.module == module_id]
            if force:
                for tag in tags:
                    self._tags.remove(tag.name, force=True)
            else:
                claims.require(module_id, owner)
                if own := [tag.name for tag in tags if tag.owner == owner]:
                    raise ModuleError(
                        f"module {module_id} still has the tags {', '.join(own)}: remove them first"
                    )
                claims.drop(module_id, owner)
                if tags or claims.owners(module_id) or self._interprets(module_id):
                    return False
            self._drop(module_id, claims)
        return True

    def tag(self, name: str, module_id: str, owner: str = "") -> str | None:
        """Tags a module, or moves the existing tag there.

        Returns the id of a module that is removed as a result, if any: see `untag`. Raises
        `UnknownModuleError`, and the errors of `Tags.set`.
        """
        with self._claims.changing() as claims:
            if not self._files.has(module_id):
                raise UnknownModuleError(f"no module {module_id}")
            before = [tag.module for tag in self._tags.list() if tag.name == name]
            self._tags.set(name, module_id, owner)
            return self._drop_unwanted(before, claims)

    def untag(self, name: str, owner: str = "", *, force: bool = False) -> str | None:
        """Removes a tag. Raises the errors of `Tags.remove`.

        A module that all its owners have removed is kept by its tags. Removing the last of them removes the
        module too, since no owner could remove it later. Returns the id of such a module.
        """
        with self._claims.changing() as claims:
            before = [tag.module for tag in self._tags.list() if tag.name == name]
            self._tags.remove(name, owner, force=force)
            return self._drop_unwanted(before, claims)

    def bytes_of(self, owner: str) -> int:
        """Returns the bytes of all files charged to an owner; small files are charged `LEAST_UPLOAD`.

        A module that several owners have uploaded is charged to the first of them. A module without claims is
        charged to the owner of a tag on it, or of a script that needs it. Raises RuntimeFailure if a script
        cannot be read now.
        """
        keepers: dict[str, str] = {}
        for module_id, claim in self._claims.read().items():
            if claim.owners:
                keepers[module_id] = min(claim.owners, key=lambda name: claim.owners[name])
        for tag in self._tags.list():
            keepers.setdefault(tag.module, tag.owner)
        for script, note in self._files.notes().items():
            if script in keepers:
                keepers.setdefault(note.interpreter, keepers[script])
        mine = [module_id for module_id, keeper in keepers.items() if keeper == owner]
        sizes = [self._files.size(module_id) for module_id in mine]
        return sum(max(LEAST_UPLOAD, size) for size in sizes if size)

    def _drop_unwanted(self, modules: Sequence[str], claims: ClaimsChange) -> str | None:
        """Removes a module that nothing needs any longer; returns its id.

        `modules` has at most one module, which a tag or a script has needed until now.
        """
        tagged = {tag.module for tag in self._tags.list()}
        for module_id in modules:
            if claims.abandoned(module_id) and module_id not in tagged and not self._interprets(module_id):
                self._drop(module_id, claims)
                return module_id
        return None

    def _drop(self, module_id: str, claims: ClaimsChange) -> None:
        interpreter = self._interpreter(module_id)
        claims.forget(module_id)
        self._files.discard(module_id)
        self._gone(module_id)
        if interpreter is not None:
            self._drop_unwanted([interpreter], claims)

    def _interpreter(self, module_id: str) -> str | None:
        """Returns the interpreter of a script; None for a module, and for a damaged script."""
        try:
            note = self._files.note(module_id)
        except (ModuleError, RuntimeFailure):
            return None
        return None if note is None else note.interpreter

    def _interprets(self, module_id: str) -> bool:
        """Returns whether a stored script needs a module. Raises RuntimeFailure if one cannot be read."""
        return any(note.interpreter == module_id for note in self._files.notes().values())
