"""Who may do what: users with roles, and their tokens, which are kept as hashes only."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import time
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path

from aicirt.contract.errors import AiciError
from aicirt.system.files import write_whole

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}")
_RESERVED = {"anonymous", "local"}
#: the file is looked at again after so many seconds, so that a token that was taken back stops working
RELOAD_SECONDS = 1.0


class Role(IntEnum):
    """Each may do what those before it may."""

    NONE = 0
    #: generate with controllers that are there
    RUN = 1
    #: upload, tag and delete controllers of one's own
    UPLOAD = 2
    #: whatever others have
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class User:
    """Who calls; `name` owns what they upload."""

    name: str
    role: Role
    #: where they call from, of those without a token: many share that name
    address: str = ""

    @property
    def caller(self) -> str:
        """Whose pace and turn it is: a user's, wherever they call from, or an address's."""
        return f"address {self.address}" if self.address else f"user {self.name}"


@dataclass(frozen=True, slots=True)
class Entry:
    """A user as the file has them."""

    name: str
    role: str
    #: a token has 256 random bits: nobody finds it by trying, so a quick hash is enough
    token_sha256: str
    created: float


class UserFile:
    """The file of users: read when it has changed, written as a whole, for its owner's eyes only."""

    def __init__(self, path: Path) -> None:
        """Raises AiciError for a file that is there and makes no sense."""
        self.path = path
        self._stamp: tuple[int, int] | None = None
        self._looked = 0.0
        self._by_hash: dict[str, User] = {}
        self._reload()

    def find(self, token: str) -> User | None:
        """Whose token it is."""
        # a look-up by hash tells nothing of a token by the time that it takes
        wanted = hash_token(token)
        if wanted not in self._by_hash or time.monotonic() - self._looked > RELOAD_SECONDS:
            self._reload()  # one that is new works at once
        return self._by_hash.get(wanted)

    def entries(self) -> list[Entry]:
        """All users, by name; none where there is no file. Raises AiciError for one that makes no sense."""
        try:
            listed = json.loads(self.path.read_text("utf-8"))["users"]
            entries = [Entry(**fields) for fields in listed]
            for entry in entries:
                Role[entry.role.upper()]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise AiciError(
                f"{self.path} is no file of users, which `aici users` writes: {error!r}"
            ) from None
        return sorted(entries, key=lambda entry: entry.name)

    def add(self, name: str, role: Role) -> str:
        """A new user; returns the token, which nobody can find out again. Raises AiciError."""
        if not _NAME.fullmatch(name):
            raise AiciError(
                "a user's name has 1 to 32 of a-z, 0-9, '.', '_' and '-', and starts with a letter or digit; "
                f"{name!r} does not"
            )
        if name in _RESERVED:
            raise AiciError(f"{name!r} is the name of who has no token, or of the server: choose another one")
        entries = self.entries()
        if any(entry.name == name for entry in entries):
            raise AiciError(f"there is a user {name!r} already: remove them first, or choose another name")
        token = f"aici-{secrets.token_urlsafe(32)}"
        self._write([*entries, Entry(name, role.name.lower(), hash_token(token), time.time())])
        return token

    def remove(self, name: str) -> None:
        """Their token works no more. Raises AiciError if there is nobody of this name."""
        entries = self.entries()
        left = [entry for entry in entries if entry.name != name]
        if len(left) == len(entries):
            raise AiciError(f"there is no user {name!r} in {self.path}")
        self._write(left)

    def _write(self, entries: list[Entry]) -> None:
        data = json.dumps({"users": [asdict(entry) for entry in entries]}, indent=1).encode()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, data)
        except OSError as error:
            raise AiciError(f"cannot write {self.path}: {error.strerror}") from None
        self._reload()

    def _reload(self) -> None:
        self._looked = time.monotonic()
        try:
            status = self.path.stat()
            stamp: tuple[int, int] | None = (status.st_mtime_ns, status.st_ino)
        except OSError:
            stamp = None
        if stamp is None or stamp != self._stamp:
            users = [
                (entry.token_sha256, User(entry.name, Role[entry.role.upper()])) for entry in self.entries()
            ]
            self._by_hash = dict(users)
            self._stamp = stamp


def hash_token(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
