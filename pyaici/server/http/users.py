"""Users, their roles and their tokens, of which only hashes are stored."""

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
from aicirt.contract.owners import ANONYMOUS, DEFAULT_OWNER, is_one_person
from aicirt.system.files import write_whole

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}")
#: seconds until the file is checked again, so that a removed token stops working
RELOAD_SECONDS = 1.0


class Role(IntEnum):
    """The role of a user; each role includes the rights of those before it."""

    NONE = 0
    #: generate with existing controllers
    RUN = 1
    #: upload, tag and delete one's own controllers
    UPLOAD = 2
    #: see and delete the controllers of all users
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class User:
    """The user that sends a request; `name` owns what the user uploads."""

    name: str
    role: Role
    #: client address, for users without a token: all of them share one name
    address: str = ""

    @property
    def owner(self) -> str:
        """The owner of its sequences at the runtime: users without a token share only their uploads."""
        return f"{self.name} {self.address}" if self.address else self.name

    @property
    def caller(self) -> str:
        """Key of limits and queues: the user, from any address, or the address if there is no token."""
        return f"address {self.address}" if self.address else f"user {self.name}"


@dataclass(frozen=True, slots=True)
class Entry:
    """A user as stored in the file."""

    name: str
    role: str
    #: a token has 256 random bits and cannot be guessed, so a fast hash is enough
    token_sha256: str
    created: float


class UserFile:
    """The file of users: read again when it changes, replaced as a whole, readable by its owner only."""

    def __init__(self, path: Path) -> None:
        """Reads the file, if it exists. Raises AiciError if the file is invalid."""
        self.path = path
        self._stamp: tuple[int, int] | None = None
        self._looked = 0.0
        self._by_hash: dict[str, User] = {}
        self._reload()

    def find(self, token: str) -> User | None:
        """Returns the user of a token; None if the token is unknown."""
        # the time of a look-up by hash reveals nothing about the token
        wanted = hash_token(token)
        if wanted not in self._by_hash or time.monotonic() - self._looked > RELOAD_SECONDS:
            self._reload()  # a new token works immediately
        return self._by_hash.get(wanted)

    def entries(self) -> list[Entry]:
        """Returns all users by name; none if there is no file. Raises AiciError if the file is invalid."""
        try:
            listed = json.loads(self.path.read_text("utf-8"))["users"]
            entries = [Entry(**fields) for fields in listed]
            for entry in entries:
                Role[entry.role.upper()]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise AiciError(
                f"{self.path} is not a valid file of users, as `aici users` writes: {error!r}"
            ) from None
        return sorted(entries, key=lambda entry: entry.name)

    def add(self, name: str, role: Role) -> str:
        """Adds a user and returns the token, which cannot be recovered later. Raises AiciError."""
        if not _NAME.fullmatch(name):
            raise AiciError(
                f"the user name {name!r} is invalid: use 1 to 32 of a-z, 0-9, '.', '_' and '-', and begin "
                "with a letter or digit"
            )
        if name == DEFAULT_OWNER:
            raise AiciError(f"the user name {name!r} is that of the server itself: choose another one")
        if not is_one_person(name):
            raise AiciError(
                f"user names that begin with {ANONYMOUS!r} are those of requests without a token: choose "
                "another one"
            )
        entries = self.entries()
        if any(entry.name == name for entry in entries):
            raise AiciError(
                f"the user {name!r} exists already: remove that user first, or choose another name"
            )
        token = f"aici-{secrets.token_urlsafe(32)}"
        self._write([*entries, Entry(name, role.name.lower(), hash_token(token), time.time())])
        return token

    def remove(self, name: str) -> None:
        """Removes a user, whose token stops working. Raises AiciError if there is no user of this name."""
        entries = self.entries()
        left = [entry for entry in entries if entry.name != name]
        if len(left) == len(entries):
            raise AiciError(f"there is no user {name!r} in {self.path}")
        self._write(left)

    def _write(self, entries: list[Entry]) -> None:
        data = json.dumps({"users": [asdict(entry) for entry in entries]}, indent=1).encode()
        try:
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
    """Returns the hash that is stored for a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
