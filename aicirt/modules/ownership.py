"""Tags, claims and holdings: who has named and uploaded what, kept in tables beside the modules."""

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
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import ModuleError, NotOwnerError, RuntimeFailure, UnknownModuleError
from aicirt.contract.modules import SHORTEST_ID, looks_like_id
from aicirt.settings import LEAST_UPLOAD
from aicirt.system.files import is_private_file, read_regular, write_whole

if TYPE_CHECKING:
    from aicirt.modules.files import ModuleFiles


#: bytes of a table: millions of rows
_MOST = 1 << 30


class Table:
    """Plain data by name, in one JSON file: read without a lock, since it is always written as a whole.

    Raises RuntimeFailure for a file that another user has put there.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._path = directory / f"{name}.json"
        self._lock = directory / f".{name}.lock"

    def read(self) -> dict[str, Any]:
        """Returns the rows of the table."""
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
        """Locks the table and yields its rows, which are written at the end if they have been changed."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            fd = os.open(self._lock, flags, 0o600)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.EACCES):
                raise
            raise self._foreign(self._lock) from None
        try:
            if not is_private_file(self._lock):  # its owner could hold it for ever
                raise self._foreign(self._lock)
            fcntl.flock(fd, fcntl.LOCK_EX)
            before, rows = self.read(), self.read()
            yield rows
            if rows != before:
                write_whole(self._path, json.dumps(dict(sorted(rows.items())), indent=1).encode())
        finally:
            os.close(fd)

    @staticmethod
    def _foreign(path: Path) -> RuntimeFailure:
        return RuntimeFailure(
            f"{path} is no file of this user's alone: remove it, or choose another folder (--store)"
        )


@dataclass(slots=True)
class Claim:
    """The claims to one module. A module from before claims existed has none."""

    #: Unix seconds of the first upload; 0 = unknown
    created: float = 0.0
    #: Unix seconds of each owner's first upload
    owners: dict[str, float] = field(default_factory=dict)


class Claims:
    """Claims to the modules of one store, by module id, in one file, which several processes may change."""

    def __init__(self, directory: Path) -> None:
        self._table = Table(directory, "claims")

    def read(self) -> dict[str, Claim]:
        """All of them."""
        return {module: Claim(**row) for module, row in self._table.read().items()}

    @contextmanager
    def changing(self) -> Iterator[ClaimsChange]:
        """Around a change, and whatever must not happen at the same time as another one."""
        with self._table.changing() as rows:
            yield ClaimsChange(rows)


class ClaimsChange:
    """The claims, while nobody else can change them."""

    def __init__(self, rows: dict[str, Any]) -> None:
        self._rows = rows

    def owners(self, module: str) -> set[str]:
        """Returns the owners who have a claim to a module."""
        return set(self._rows.get(module, {}).get("owners", ()))

    def add(self, module: str, owner: str) -> None:
        """`owner` has uploaded it; who has before keeps the time of that."""
        now = time.time()
        row = self._rows.setdefault(module, {"created": now, "owners": {}})
        row["owners"].setdefault(owner, now)

    def require(self, module: str, owner: str) -> None:
        """Raises NotOwnerError if `owner` has no claim to it."""
        owners = self.owners(module)
        if owner not in owners:
            who = f"{len(owners)} others have" if owners else "nobody is known to have"
            raise NotOwnerError(
                f"owner {owner!r} has not uploaded module {module}, {who}: only who has uploaded a module "
                "may remove it, or an administrator, by force"
            )

    def drop(self, module: str, owner: str) -> None:
        """`owner` wants it no more."""
        self._rows.get(module, {}).get("owners", {}).pop(owner, None)

    def abandoned(self, module: str) -> bool:
        """Returns whether all owners with a claim have dropped it; false if there never was one."""
        row = self._rows.get(module)
        return row is not None and not row["owners"]

    def forget(self, module: str) -> None:
        """Removes the claims to a module that is no longer stored."""
        self._rows.pop(module, None)


#: what a tag looks like; no path, nothing that could be an id
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Tag:
    name: str
    module: str
    #: who may move it; empty = anybody
    owner: str = ""


class Tags:
    """Tags of one store, in one file, which several processes may change."""

    def __init__(self, directory: Path) -> None:
        self._table = Table(directory, "tags")

    def set(self, name: str, module: str, owner: str = "") -> Tag:
        """Name `module` `name`, or move the tag there.

        Raises `ModuleError` for a bad name, `NotOwnerError` if the tag belongs to another owner.
        """
        if not _NAME.fullmatch(name):
            raise ModuleError(
                f"tag {name[:100]!r}: a tag has 1 to 64 of a-z, 0-9, '.', '_' and '-', and starts with a "
                "letter or digit"
            )
        if looks_like_id(name):
            raise ModuleError(
                f"tag {name!r} could be taken for the id of a module, since it has {SHORTEST_ID} or more "
                "digits from 0-9 and a-f and nothing else: add another letter, a '.', '_' or '-'"
            )
        tag = Tag(name, module, owner)
        with self._table.changing() as tags:
            _require_owner(tags.get(name), owner)
            tags[name] = asdict(tag)
        return tag

    def remove(self, name: str, owner: str = "", *, force: bool = False) -> None:
        """`force`: whosever it is. Raises `UnknownModuleError` for an unknown tag, `NotOwnerError` for
        another owner's."""
        with self._table.changing() as tags:
            if name not in tags:
                raise UnknownModuleError(f"no tag {name!r}")
            if not force:
                _require_owner(tags[name], owner)
            del tags[name]

    def modules(self) -> dict[str, str]:
        """Module id by tag."""
        return {name: row["module"] for name, row in self._table.read().items()}

    def list(self) -> list[Tag]:
        """All tags, by name."""
        return sorted((Tag(**tag) for tag in self._table.read().values()), key=lambda tag: tag.name)


def _require_owner(tag: dict[str, Any] | None, owner: str) -> None:
    if tag and tag["owner"] not in ("", owner):
        raise NotOwnerError(f"tag {tag['name']!r} belongs to {tag['owner']!r}")


class Ownership:
    """Ownership of the modules in one store.

    Changes hold the lock of its claims, so that nothing is added and removed at once."""

    def __init__(self, files: ModuleFiles, tags: Tags, claims: Claims, gone: Callable[[str], None]) -> None:
        """`gone`: told which module is stored no more."""
        self._files = files
        self._tags = tags
        self._claims = claims
        self._gone = gone

    @contextmanager
    def claiming(self, module_id: str, claimant: str) -> Iterator[None]:
        """Around making sure that a module is there: nobody removes it before the claim is written."""
        if not claimant:
            yield
            return
        with self._claims.changing() as claims:
            yield
            claims.add(module_id, claimant)

    def remove(self, module_id: str, owner: str = "", *, force: bool = False) -> bool:
        """Drop an owner's claim to a module, whose tags of it must be removed before.

        Where nobody else has a claim, no tag of anybody else names it, and it interprets no script, the
        module goes, with its compiled code, and the answer is true. `force`: it goes even if others have
        claims to it, and its tags too. Raises `UnknownModuleError`, `NotOwnerError` if the owner has no claim
        to it, `ModuleError` if the owner has tags on it.
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
        """Name a module, or move the tag there.

        Returns which module has gone with that, if any: see `untag`. Raises `UnknownModuleError`, and as
        `Tags.set`.
        """
        with self._claims.changing() as claims:
            if not self._files.has(module_id):
                raise UnknownModuleError(f"no module {module_id}")
            before = [tag.module for tag in self._tags.list() if tag.name == name]
            self._tags.set(name, module_id, owner)
            return self._drop_unwanted(before, claims)

    def untag(self, name: str, owner: str = "", *, force: bool = False) -> str | None:
        """Take a tag away; raises as `Tags.remove`.

        The last tag of a module that all its owners have removed has kept it, and takes it along: else it
        would stay for ever, and nobody could remove it. Returns the id of such a module.
        """
        with self._claims.changing() as claims:
            before = [tag.module for tag in self._tags.list() if tag.name == name]
            self._tags.remove(name, owner, force=force)
            return self._drop_unwanted(before, claims)

    def bytes_of(self, owner: str) -> int:
        """Bytes of all files that are stored on an owner's account; small ones count `LEAST_UPLOAD`.

        What several have uploaded counts for the first of them. What nobody claims any more counts for who
        keeps it by a tag, or by a script that needs it. Raises RuntimeFailure if a script cannot be read now.
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
        """`modules`: what a tag or a script needed that needs it no more; none or one."""
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
        """Returns whether a stored script needs a module. Raises RuntimeFailure if that is unknown now."""
        return any(note.interpreter == module_id for note in self._files.notes().values())
