"""Controllers and tags that the replicas of a server share, in a folder or in an object store.

Objects are written once and never changed. Under `controllers/ID` are

- `module.wasm` or `script.json`: the content, of which ID is the SHA-256,
- `info.json`: its description, as the replica that checked it wrote it,
- `owners/USER` and `tags/TAG`: who has uploaded it, and tags that it may have.

`tags/TAG/NUMBER` is what the tag has named since its change NUMBER, and `users/USER/TAG` a tag that the user
may have. A change of a tag creates the next number, which fails if another replica has created it meanwhile.
So of two changes at once, one follows the other, and none is lost. Tags that are only possible are looked up.

The package obstore (extra `shared`) speaks to S3, GCS, Azure and folders, NFS included: it creates files
there by links, without locks. A program that can write to the store decides what users find by their tags,
but not what an id means: content is compared with it, and checked and compiled here like an upload.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from aicirt.contract.errors import (
    MALFORMED,
    AiciError,
    ModuleError,
    NotOwnerError,
    OwnerLimitError,
    ProtocolError,
    RuntimeFailure,
    UnknownControllerError,
)
from aicirt.contract.modules import TAG_NAME, ControllerInfo, StoredScript, is_module_id, resolve_name

_KINDS = MODULE, SCRIPT = "module.wasm", "script.json"
#: maximum bytes of a tag's record, and of a description
_MAX_RECORD, _MAX_INFO = 1024, 1 << 20
#: records, descriptions and meanings of names that are remembered
_REMEMBERED = 4096
#: attempts to change a tag while others change it
_ATTEMPTS = 64
#: versions of a tag that stay, so that a replica which has just listed them can read the newest one
_KEPT = 4
#: seconds of a request to an object store, with its answer; those that fail are repeated for as long
_SECONDS = 20


class SharedStoreError(RuntimeFailure):
    """Reports a shared store that cannot be reached, read or written, or an object that is damaged."""

    code = "shared_store"


class Tag(NamedTuple):
    """The meaning of a tag: its number, the module ("" after its removal), and the user who made it so."""

    number: int
    module: str
    owner: str


@dataclass
class Entry:
    """The objects of a controller."""

    id: str
    #: `MODULE` or `SCRIPT`; "" while an upload is under way
    kind: str = ""
    created: float = 0.0
    owners: list[str] = field(default_factory=list)
    #: tags that the controller has, or has had
    tags: list[str] = field(default_factory=list)


class SharedStore:
    """Reads and writes a shared store. Methods block; any number of threads may call them."""

    def __init__(self, url: str, max_bytes: int) -> None:
        """`url`: a folder, or `s3://BUCKET/FOLDER` and the like. `max_bytes`: of a controller.

        The environment has credentials and the like (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT`, ...). Raises
        AiciError without the package, SharedStoreError if the store cannot be listed.
        """
        try:
            import obstore
            from obstore.exceptions import AlreadyExistsError, BaseError
            from obstore.store import LocalStore, from_url
        except ModuleNotFoundError as error:
            raise AiciError(
                f"--shared-store needs the package {error.name}: pip install 'pyaici[shared]'"
            ) from None
        self._obstore: Any = obstore
        self._exists, self._failures = AlreadyExistsError, (BaseError, OSError)
        self._max_bytes = max_bytes
        self._tags: OrderedDict[tuple[str, int], Tag] = OrderedDict()
        self._infos: OrderedDict[str, ControllerInfo] = OrderedDict()
        with self._asking(f"the shared store {url} cannot be opened"):
            if "://" in url and not url.startswith("file://"):
                # options here replace what the environment says of HTTP without TLS
                plain = os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true")
                client: Any = {"timeout": f"{_SECONDS} s", "allow_http": plain}
                retries: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=_SECONDS)}
                self._store: Any = from_url(url, client_options=client, retry_config=retries)
            else:
                self._store = LocalStore(Path(url.removeprefix("file://")).absolute(), mkdir=True)
            self._obstore.list_with_delimiter(self._store, "tags")

    # -- controllers -------------------------------------------------------------------------

    def put(self, info: ControllerInfo, content: bytes, owner: str = "") -> None:
        """Keeps a controller that was accepted here, for a user if there is one; the owner comes last."""
        folder = f"controllers/{info.id}"
        kind = SCRIPT if info.script else MODULE
        self._create(f"{folder}/{kind}", content)
        plain = {**info.to_wire(), "tags": [], "owners": []}
        self._create(f"{folder}/info.json", json.dumps(plain).encode())
        if owner:
            self._create(f"{folder}/owners/{owner}", b"")

    def entry(self, id: str) -> Entry:
        """Returns what is known of a controller. Raises UnknownControllerError."""
        found = next(iter(self._entries(f"controllers/{id}/")), None)
        if found is None or not found.kind:
            raise UnknownControllerError(f"no controller {id!r}", name=id)
        return found

    def content(self, entry: Entry) -> bytes | StoredScript:
        """Returns a module or script, compared with its id. Raises UnknownControllerError, ModuleError."""
        data = self._object(f"controllers/{entry.id}/{entry.kind}", self._max_bytes)
        if data is None:
            raise UnknownControllerError(f"no controller {entry.id!r}", name=entry.id)
        if hashlib.sha256(data).hexdigest() != entry.id:
            raise SharedStoreError(f"{entry.id} is damaged in the shared store: remove and upload it again")
        return data if entry.kind == MODULE else StoredScript.unpack(data)

    def describe(self, entry: Entry) -> ControllerInfo:
        """Returns the description of a controller, with its owners, its time and its present tags."""
        info = self._infos.get(entry.id)
        if info is None:
            data = self._object(f"controllers/{entry.id}/info.json", _MAX_INFO)
            try:
                info = ControllerInfo.from_wire(json.loads(data or b""))
                if info.id != entry.id:
                    raise ValueError("another controller's")
            except (ProtocolError, *MALFORMED):
                raise SharedStoreError(
                    f"the description of {entry.id} is damaged in the shared store: upload it again"
                ) from None
            remember(self._infos, entry.id, info)
        tags = sorted(tag for tag in entry.tags if self.tagged(tag) == entry.id)
        return ControllerInfo(
            **{**info.to_wire(), "owners": sorted(entry.owners), "tags": tags, "created": entry.created}
        )

    def page(self, after: str, limit: int, owner: str | None) -> list[ControllerInfo]:
        """Returns at most `limit` controllers with ids after `after`, by id.

        `owner`: only those that this user has uploaded, or that have a tag.
        """
        offset = f"controllers/{after}0" if after else None  # "0" follows "/"
        found: list[ControllerInfo] = []
        for entry in self._entries("controllers/", offset):
            if entry.kind and (owner is None or owner in entry.owners or entry.tags):
                info = self.describe(entry)
                if owner is None or owner in info.owners or info.tags:
                    found.append(info)
            if len(found) == limit:
                break
        return found

    def remove(self, id: str, owner: str, *, force: bool = False) -> bool:
        """Removes a user from a controller's owners, and the controller if it has no owner and no tag left.

        With `force`, removes it and its tags. Returns whether it is gone. Raises UnknownControllerError,
        NotOwnerError, and ModuleError if the user has tags on it.
        """
        entry = self.entry(id)
        tags = [tag for tag in entry.tags if self.tagged(tag) == id]
        if not force:
            if owner not in entry.owners:
                raise NotOwnerError(f"user {owner!r} has not uploaded {id}: only who has can remove it")
            own = [tag for tag in tags if (found := self._newest(tag)) and found.owner == owner]
            if own:
                raise ModuleError(f"{id} still has the tags {', '.join(own)}: remove them first")
            self._delete(f"controllers/{id}/owners/{owner}")
            if len(entry.owners) > 1 or tags:
                return False
        for tag in tags:
            self.untag(tag, owner, force=True)
        for path, _ in self._objects(f"controllers/{id}/"):
            self._delete(path)
        return True

    # -- tags --------------------------------------------------------------------------------

    def resolve(self, name: str) -> Entry:
        """Returns the controller of an id, the beginning of one, or a tag. Raises UnknownControllerError."""
        return self.entry(resolve_name(name, self._ids, self.tagged))

    def tagged(self, name: str) -> str | None:
        """Returns the id of the controller with a tag; None if there is no such tag."""
        if not TAG_NAME.fullmatch(name) or (found := self._newest(name)) is None:
            return None
        return found.module or None

    def tag(self, name: str, id: str, owner: str, limit: int) -> None:
        """Gives a controller a tag. The name has been checked. `limit`: of a user's tags.

        Raises UnknownControllerError, NotOwnerError and OwnerLimitError.
        """
        self.entry(id)
        held = {path.rpartition("/")[2] for path, _ in self._objects(f"users/{owner}/")} - {name}
        if len(held) >= limit:
            raise OwnerLimitError(
                f"user {owner!r} has {len(held)} tags; the limit is {limit} (owner_tags): remove some",
                limit=limit,
            )
        # what the tag is found by comes first: without a record it means nothing
        self._create(f"controllers/{id}/tags/{name}", b"")
        self._create(f"users/{owner}/{name}", b"")
        self._change(name, id, owner, force=False)

    def untag(self, name: str, owner: str, *, force: bool = False) -> None:
        """Removes a tag; with `force`, of any user. Raises UnknownControllerError, NotOwnerError."""
        before = self._newest(name) if TAG_NAME.fullmatch(name) else None
        if before is None or not before.module:
            raise UnknownControllerError(f"no tag {name!r}")
        self._change(name, "", owner, force=force)
        self._delete(f"controllers/{before.module}/tags/{name}")

    def _change(self, name: str, module: str, owner: str, *, force: bool) -> None:
        for _ in range(_ATTEMPTS):
            before = self._newest(name)
            number, held = (0, "") if before is None else (before.number, before.module and before.owner)
            if held not in ("", owner) and not force:
                raise NotOwnerError(f"tag {name!r} belongs to {held!r}")
            record = json.dumps({"module": module, "owner": owner}).encode()
            if not self._create(f"tags/{name}/{number + 1:010}", record):
                continue  # another replica was first
            if held and (not module or held != owner):
                self._delete(f"users/{held}/{name}")
            for old, _ in self._objects(f"tags/{name}/"):
                if int(old.rpartition("/")[2]) <= number + 1 - _KEPT:
                    self._delete(old)
            return
        raise SharedStoreError(f"the tag {name!r} is changed by others all the time: try again later")

    def _newest(self, name: str) -> Tag | None:
        for _ in range(_ATTEMPTS):
            numbers = [path.rpartition("/")[2] for path, _ in self._objects(f"tags/{name}/")]
            number = max((int(number) for number in numbers if number.isdecimal()), default=0)
            if not number:
                return None
            if (known := self._tags.get((name, number))) is not None:
                return known
            if (data := self._object(f"tags/{name}/{number:010}", _MAX_RECORD)) is None:
                continue  # it has been replaced twice meanwhile
            try:
                record = json.loads(data)
                found = Tag(number, record["module"], record["owner"])
                if not isinstance(found.owner, str) or (
                    found.module != "" and not is_module_id(found.module)
                ):
                    raise ValueError("no record of a tag")
            except MALFORMED:
                raise SharedStoreError(f"the tag {name!r} is damaged in the shared store") from None
            remember(self._tags, (name, number), found)
            return found
        raise SharedStoreError(f"the tag {name!r} is changed by others all the time: try again later")

    # -- objects -----------------------------------------------------------------------------

    def _ids(self) -> list[str]:
        with self._asking("controllers cannot be listed"):
            prefixes = self._obstore.list_with_delimiter(self._store, "controllers")["common_prefixes"]
        return sorted(filter(is_module_id, (path.rpartition("/")[2] for path in prefixes)))

    def _entries(self, prefix: str, offset: str | None = None) -> list[Entry]:
        found: dict[str, Entry] = {}
        for path, time in self._objects(prefix, offset):
            _, id, part, *rest = path.split("/")
            if not is_module_id(id):
                continue
            entry = found.setdefault(id, Entry(id))
            if part in _KINDS and not rest:
                entry.kind, entry.created = part, time
            elif part in ("owners", "tags") and rest:
                getattr(entry, part).append(rest[0])
        return sorted(found.values(), key=lambda entry: entry.id)

    def _objects(self, prefix: str, offset: str | None = None) -> list[tuple[str, float]]:
        """Returns path and time of all objects under a prefix, which ends at a folder."""
        with self._asking(f"{prefix} cannot be listed"):
            return [
                (str(one["path"]), one["last_modified"].timestamp())
                for some in self._obstore.list(self._store, prefix, offset=offset)
                for one in some
            ]

    def _object(self, path: str, most: int) -> bytes | None:
        """Returns an object; None if there is none."""
        with self._asking(f"{path} cannot be read"):
            try:
                found = self._obstore.get(self._store, path)
            except FileNotFoundError:
                return None
            if found.meta["size"] > most:
                raise SharedStoreError(f"{path} has more than {most} bytes in the shared store")
            return bytes(found.bytes())

    def _create(self, path: str, data: bytes) -> bool:
        """Writes an object as a whole; returns False if there is one already."""
        with self._asking(f"{path} cannot be written"):
            try:
                self._obstore.put(self._store, path, data, mode="create")
            except self._exists:
                return False
            return True

    def _delete(self, path: str) -> None:
        with self._asking(f"{path} cannot be removed"):
            try:
                self._obstore.delete(self._store, path)
            except FileNotFoundError:
                pass

    @contextmanager
    def _asking(self, problem: str) -> Iterator[None]:
        try:
            yield
        except self._failures as error:
            # the first line: what follows repeats it as the library has it
            raise SharedStoreError(f"{problem}: {str(error).partition(chr(10))[0]}") from error


def remember(known: OrderedDict[Any, Any], key: object, value: object) -> None:
    """Adds the newest entry; forgets the oldest one beyond `_REMEMBERED`."""
    known.pop(key, None)  # another thread may drop it at any time
    known[key] = value
    if len(known) > _REMEMBERED:
        known.popitem(last=False)
