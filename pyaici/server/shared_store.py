"""Controllers and tags that the replicas of a server share, in a folder or in an object store.

Under `controllers/ID` are

- `module.wasm` or `script.json`: the content, of which ID is the SHA-256,
- `info.json`: its description, as the replica that has checked it last wrote it,
- `owners/USER` and `tags/TAG`: who has uploaded it, and tags that it may have.

`tags/TAG/NUMBER` is what the tag has named since its change NUMBER. Under `users/USER` are `tags/TAG`, tags
that the user may have, and `uploads/ID.SIZE`. A change of a tag creates the next number, which fails if
another replica has created it meanwhile. So of two changes at once, one follows the other, and none is lost.
Tags that are only possible are looked up.

The package obstore (extra `shared`) speaks to S3, GCS and Azure. A program that can write to the store
decides what users find by their tags, but not what an id means: content is compared with it, and checked and
compiled here like an upload. Nor does it have the server read, write or remove anything else: in a folder,
nothing is reached through links, and only regular files are opened.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby, islice, takewhile
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
from aicirt.contract.modules import (
    DESCRIBED_NAMES,
    TAG_NAME,
    ControllerInfo,
    StoredScript,
    is_module_id,
    resolve_name,
)
from aicirt.settings import MIN_UPLOAD
from aicirt.system.files import Descriptor, read_regular, write_whole

_KINDS = MODULE, SCRIPT = "module.wasm", "script.json"
#: maximum bytes of a tag's record, and of a description, which has at most 128 names
_MAX_RECORD, _MAX_INFO = 1024, 1 << 16
#: objects of a controller, tag or user, and the number of a tag's change, beyond which it counts as damaged
_MAX_OBJECTS, _MAX_NUMBER = 16_384, 10**15
#: number of a tag's change, and ID.SIZE of an upload
_NUMBER, _UPLOAD = re.compile("[0-9]{10,16}"), re.compile(r"([0-9a-f]{64})\.([0-9]{1,12})")
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
        self._max_bytes = max_bytes
        self._tags: OrderedDict[tuple[str, int], Tag] = OrderedDict()
        self._infos: OrderedDict[str, ControllerInfo] = OrderedDict()
        self._failures: tuple[type[Exception], ...] = (OSError,)
        is_bucket = "://" in url and not url.startswith("file://")
        if is_bucket:
            try:
                from obstore.exceptions import BaseError
            except ModuleNotFoundError as error:
                raise AiciError(
                    f"--shared-store needs the package {error.name}: pip install 'pyaici[shared]'"
                ) from None
            self._failures = (BaseError, OSError)
        with self._asking(f"the shared store {url} cannot be opened"):
            self._store = _Bucket(url) if is_bucket else _Folder(Path(url.removeprefix("file://")))
            next(self._store.listed("tags/"), None)

    # -- controllers -------------------------------------------------------------------------

    def put(self, info: ControllerInfo, content: bytes, owner: str = "", limit: int = 0) -> None:
        """Keeps a controller that was accepted here, for a user if there is one. Heals what is damaged.

        `limit`: of the bytes of all that the user has uploaded. Raises OwnerLimitError.
        """
        if owner:
            self._count_upload(info.id, len(content), owner, limit)
        folder = f"controllers/{info.id}"
        path = f"{folder}/{SCRIPT if info.script else MODULE}"
        if not self._create(path, content) and self._object(path, self._max_bytes) != content:
            self._create(path, content, replace=True)
        plain = {**info.to_wire(), "tags": [], "owners": [], "created": 0.0}
        self._create(f"{folder}/info.json", json.dumps(plain).encode(), replace=True)
        if owner:  # last: what nobody owns is not whole
            self._create(f"{folder}/owners/{owner}", b"")

    def _count_upload(self, id: str, size: int, owner: str, limit: int) -> None:
        """Counts before it asks, so that of two uploads at once at most one too many is refused."""
        counted = f"users/{owner}/uploads/{id}.{size}"
        if not self._create(counted, b""):
            return
        found = [_UPLOAD.fullmatch(name) for name in self._names(f"users/{owner}/uploads/")]
        total = sum(max(MIN_UPLOAD, int(one[2])) for one in found if one)
        if total > limit:
            self._delete(counted)
            raise OwnerLimitError(
                f"with this one, user {owner!r} has uploaded controllers that count {total} bytes; the limit "
                f"is {limit} (owner_upload_bytes): remove some first",
                limit=limit,
            )

    def entry(self, id: str) -> Entry:
        """Returns what is known of a controller. Raises UnknownControllerError."""
        objects = self._objects(f"controllers/{id}/") if is_module_id(id) else []
        found = next(_entries(iter(objects)), None)
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
        """Returns the description of a controller, with its time, and its first owners and present tags."""
        info = self._infos.get(entry.id)
        if info is None:
            data = self._object(f"controllers/{entry.id}/info.json", _MAX_INFO)
            try:
                info = ControllerInfo.from_wire(json.loads(data or b""))
                if info.id != entry.id or not _is_whole(info):
                    raise ValueError("no description of this controller")
            except (ProtocolError, *MALFORMED):
                raise SharedStoreError(
                    f"the description of {entry.id} is damaged in the shared store: upload it again"
                ) from None
            remember(self._infos, entry.id, info)
        tags = [tag for tag in sorted(entry.tags)[:DESCRIBED_NAMES] if self.tagged(tag) == entry.id]
        owners = sorted(entry.owners)[:DESCRIBED_NAMES]
        return ControllerInfo(**{**info.to_wire(), "owners": owners, "tags": tags, "created": entry.created})

    def page(self, after: str, limit: int, owner: str | None) -> list[ControllerInfo]:
        """Returns at most `limit` controllers with ids after `after`, by id.

        `owner`: only those that this user has uploaded, or that have a tag.
        """
        found: list[ControllerInfo] = []
        for entry in self._controllers(f"{after}0" if after else ""):  # "0" follows "/"
            if entry.kind and (owner is None or owner in entry.owners or entry.tags):
                try:
                    info = self.describe(entry)
                except SharedStoreError:
                    continue  # one that is damaged must not hide all others
                if owner is None or owner in entry.owners or info.tags:
                    found.append(info)
            if len(found) == limit:
                break
        return found

    def _controllers(self, after: str) -> Iterator[Entry]:
        """Yields controllers whose ids follow a text, by id."""
        with self._asking("controllers cannot be listed"):
            yield from _entries(self._store.listed("controllers/", f"controllers/{after}" if after else ""))

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
            self._disown(id, owner)
            if len(entry.owners) > 1 or tags:
                return False
        for tag in tags:
            self.untag(tag, owner, force=True)
        for one in entry.owners:
            self._disown(id, one)
        for path, _ in self._objects(f"controllers/{id}/"):
            self._delete(path)
        return True

    def _disown(self, id: str, owner: str) -> None:
        self._delete(f"controllers/{id}/owners/{owner}")
        for name in self._names(f"users/{owner}/uploads/"):
            if name.startswith(id):
                self._delete(f"users/{owner}/uploads/{name}")

    # -- tags --------------------------------------------------------------------------------

    def resolve(self, name: str) -> Entry:
        """Returns the controller of an id, the beginning of one, or a tag. Raises UnknownControllerError."""

        def ids() -> Iterator[str]:
            beginning = takewhile(lambda entry: entry.id.startswith(name), self._controllers(name))
            return (entry.id for entry in islice(beginning, _ATTEMPTS))

        return self.entry(resolve_name(name, ids, self.tagged))

    def tagged(self, name: str) -> str | None:
        """Returns the id of the controller with a tag; None if there is no such tag."""
        if not TAG_NAME.fullmatch(name) or (found := self._newest(name)) is None:
            return None
        return found.module or None

    def tag(self, name: str, module: str, owner: str, limit: int) -> None:
        """Gives a controller a tag. The tag's name has been checked. `limit`: of a user's tags.

        `module`: what `resolve` takes. Raises UnknownControllerError, NotOwnerError and OwnerLimitError.
        """
        id = self.resolve(module).id
        held = set(self._names(f"users/{owner}/tags/")) - {name}
        if len(held) >= limit:
            raise OwnerLimitError(
                f"user {owner!r} has {len(held)} tags; the limit is {limit} (owner_tags): remove some",
                limit=limit,
            )
        _check_holder(name, self._newest(name), owner)
        # what the tag is found by comes first: without a record it means nothing. And again afterwards, since
        # another replica may have removed it with what the tag was before
        for path in (links := _links(name, Tag(0, id, owner))):
            self._create(path, b"")
        self._change(name, id, owner, force=False)
        for path in links:
            self._create(path, b"")

    def untag(self, name: str, owner: str, *, force: bool = False) -> None:
        """Removes a tag; with `force`, of any user. Raises UnknownControllerError, NotOwnerError."""
        before = self._newest(name) if TAG_NAME.fullmatch(name) else None
        if before is None or not before.module:
            raise UnknownControllerError(f"no tag {name!r}")
        self._change(name, "", owner, force=force)

    def _change(self, name: str, module: str, owner: str, *, force: bool) -> None:
        for _ in range(_ATTEMPTS):
            before = self._newest(name) or Tag(0, "", "")
            if not force:
                _check_holder(name, before, owner)
            record = json.dumps({"module": module, "owner": owner}).encode()
            if not self._create(_version(name, before.number + 1), record):
                continue  # another replica was first
            for path in (old := _links(name, before) - _links(name, Tag(0, module, owner))):
                self._delete(path)
            if old and (now := self._newest(name)):
                for path in old & _links(name, now):  # another replica has changed it back
                    self._create(path, b"")
            for number in self._versions(name):
                if number <= before.number + 1 - _KEPT:
                    self._delete(_version(name, number))
            return
        raise SharedStoreError(f"the tag {name!r} is changed by others all the time: try again later")

    def _newest(self, name: str) -> Tag | None:
        for _ in range(_ATTEMPTS):
            if not (number := max(self._versions(name), default=0)):
                return None
            if (known := self._tags.get((name, number))) is not None:
                return known
            damaged = SharedStoreError(f"the tag {name!r} is damaged in the shared store")
            if number > _MAX_NUMBER:
                raise damaged
            if (data := self._object(_version(name, number), _MAX_RECORD)) is None:
                continue  # it has been replaced twice meanwhile
            try:
                record = json.loads(data)
                found = Tag(number, record["module"], record["owner"])
                if "/" in found.owner or not (found.module == "" or is_module_id(found.module)):
                    raise ValueError("no record of a tag")
            except MALFORMED:
                raise damaged from None
            remember(self._tags, (name, number), found)
            return found
        raise SharedStoreError(f"the tag {name!r} is changed by others all the time: try again later")

    def _versions(self, name: str) -> list[int]:
        """Returns the numbers of a tag's changes that are still there."""
        names = filter(_NUMBER.fullmatch, self._names(f"tags/{name}/"))
        return [int(number) for number in names if f"{int(number):010}" == number]

    # -- objects -----------------------------------------------------------------------------

    def _objects(self, folder: str) -> list[tuple[str, float]]:
        """Returns path and time of all objects under a folder, by path."""
        with self._asking(f"{folder} cannot be listed"):
            found = [*islice(self._store.listed(folder), _MAX_OBJECTS + 1)]
        if len(found) > _MAX_OBJECTS:
            raise SharedStoreError(f"{folder} has more than {_MAX_OBJECTS} objects in the shared store")
        return found

    def _names(self, folder: str) -> list[str]:
        return [path.removeprefix(folder) for path, _ in self._objects(folder)]

    def _object(self, path: str, most: int) -> bytes | None:
        """Returns an object; None if there is none."""
        with self._asking(f"{path} cannot be read"):
            data = self._store.read_object(path, most + 1)
        if data is not None and len(data) > most:
            raise SharedStoreError(f"{path} has more than {most} bytes in the shared store")
        return data

    def _create(self, path: str, data: bytes, *, replace: bool = False) -> bool:
        """Writes an object as a whole; without `replace`, returns False if there is one already."""
        with self._asking(f"{path} cannot be written"):
            return self._store.write_object(path, data, replace=replace)

    def _delete(self, path: str) -> None:
        with self._asking(f"{path} cannot be removed"), suppress(FileNotFoundError):
            self._store.erase(path)

    @contextmanager
    def _asking(self, problem: str) -> Iterator[None]:
        try:
            yield
        except self._failures as error:
            # the first line: what follows repeats it as the library has it
            raise SharedStoreError(f"{problem}: {str(error).partition(chr(10))[0]}") from error


class _Bucket:
    """Objects in an object store."""

    def __init__(self, url: str) -> None:
        import obstore
        from obstore.store import from_url

        self._obstore: Any = obstore
        # options here replace what the environment says of HTTP without TLS
        plain = os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true")
        client: Any = {"timeout": f"{_SECONDS} s", "allow_http": plain}
        retries: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=_SECONDS)}
        self._store: Any = from_url(url, client_options=client, retry_config=retries)

    def listed(self, folder: str, after: str = "") -> Iterator[tuple[str, float]]:
        """Yields path and time of the objects in a folder that follow a text, by path."""
        for some in self._obstore.list(self._store, folder, offset=after or None):
            for one in some:
                yield str(one["path"]), one["last_modified"].timestamp()

    def read_object(self, path: str, most: int) -> bytes | None:
        """Returns the first `most` bytes of an object; None if there is none."""
        try:
            found = self._obstore.get(self._store, path)
        except FileNotFoundError:
            return None
        data = bytearray()
        for part in found.stream(min_chunk_size=1 << 16):  # a store may send more than it has announced
            data += part
            if len(data) >= most:
                break
        return bytes(data[:most])

    def write_object(self, path: str, data: bytes, *, replace: bool) -> bool:
        """Writes an object; without `replace`, returns False if there is one."""
        from obstore.exceptions import AlreadyExistsError

        try:
            self._obstore.put(self._store, path, data, mode="overwrite" if replace else "create")
        except AlreadyExistsError:
            return False
        return True

    def erase(self, path: str) -> None:
        """Removes an object."""
        self._obstore.delete(self._store, path)


class _Folder:
    """Objects as files. Folders are opened one after the other, and none of them may be a link."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._root = Descriptor(os.open(path, _OPEN_FOLDER))

    @contextmanager
    def _opened(self, folders: list[str], *, make: bool = False) -> Iterator[Path]:
        """Opens a folder, for the time of the block. Raises FileNotFoundError."""
        fd = os.dup(self._root.fd)
        try:
            for name in folders:
                if name in ("", ".", ".."):
                    raise FileNotFoundError(name)
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=fd)
                inner = os.open(name, _OPEN_FOLDER | os.O_NOFOLLOW, dir_fd=fd)
                os.close(fd)
                fd = inner
            yield Path(f"/proc/self/fd/{fd}")
        finally:
            os.close(fd)

    def listed(self, path: str, after: str = "") -> Iterator[tuple[str, float]]:
        """Leaves out links, devices, and names that no object has."""
        path = path.rstrip("/")
        try:
            with self._opened(path.split("/")) as folder:
                found = sorted(_about(folder))
        except FileNotFoundError:  # there is no such folder
            return
        for name, about in found:
            inner = f"{path}/{name}"
            if name.startswith(".") or not name.isprintable():
                continue
            if stat.S_ISDIR(about.st_mode) and f"{inner}0" > after:
                yield from self.listed(inner, after)
            elif stat.S_ISREG(about.st_mode) and inner > after:
                yield inner, about.st_mtime

    def read_object(self, path: str, most: int) -> bytes | None:
        *folders, name = path.split("/")
        try:
            with self._opened(folders) as folder:
                return read_regular(folder / name, most)
        except FileNotFoundError:
            return None

    def write_object(self, path: str, data: bytes, *, replace: bool) -> bool:
        *folders, name = path.split("/")
        for _ in range(_ATTEMPTS):  # its folder may be removed meanwhile
            with suppress(FileNotFoundError), self._opened(folders, make=True) as folder:
                if replace:
                    write_whole(folder / name, data, 0o644)
                    return True
                new = folder / f".{uuid.uuid4().hex}"
                try:
                    write_whole(new, data, 0o644)
                    os.link(new, folder / name)  # without locks, which NFS may lack
                    return True
                except FileExistsError:
                    return False
                finally:
                    new.unlink(missing_ok=True)
        raise OSError("its folder is removed all the time")

    def erase(self, path: str) -> None:
        """Removes an object, and folders that have become empty."""
        *folders, name = path.split("/")
        with self._opened(folders) as folder:
            (folder / name).unlink()
        with suppress(OSError):
            while folders:
                *folders, name = folders
                with self._opened(folders) as folder:
                    (folder / name).rmdir()


def _about(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yields what is in a folder, without what another replica removes meanwhile."""
    for one in folder.iterdir():
        with suppress(FileNotFoundError):
            yield one.name, one.lstat()


_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def _entries(objects: Iterator[tuple[str, float]]) -> Iterator[Entry]:
    """Yields controllers of objects that are sorted by path."""
    parts = ((path.split("/"), time) for path, time in objects)
    for id, found in groupby(parts, lambda one: one[0][1]):
        entry = Entry(id)
        for (_, _, *inner), time in islice(found, _MAX_OBJECTS):
            match inner:
                case [kind] if kind in _KINDS:
                    entry.kind, entry.created = kind, time
                case ["owners", owner]:
                    entry.owners.append(owner)
                case ["tags", tag]:
                    entry.tags.append(tag)
        if is_module_id(id):
            yield entry


def _is_whole(info: ControllerInfo) -> bool:
    """Returns whether the fields of a description have the types that they should have."""
    usual = ControllerInfo("", 0).to_wire()
    return all(
        type(value) is type(usual[name]) and (type(value) is not list or {*map(type, value)} <= {str})
        for name, value in info.to_wire().items()
    )


def _version(name: str, number: int) -> str:
    return f"tags/{name}/{number:010}"


def _links(name: str, tag: Tag) -> set[str]:
    """Returns the objects by which a tag is found with its controller and its user."""
    both = {f"controllers/{tag.module}/tags/{name}", f"users/{tag.owner}/tags/{name}"}
    return both if tag.module else set()


def _check_holder(name: str, tag: Tag | None, owner: str) -> None:
    if tag is not None and tag.module and tag.owner not in ("", owner):
        raise NotOwnerError(f"tag {name!r} belongs to {tag.owner!r}")


def remember(known: OrderedDict[Any, Any], key: object, value: object) -> None:
    """Adds the newest entry; forgets the oldest one beyond `_REMEMBERED`."""
    known.pop(key, None)  # another thread may drop it at any time
    known[key] = value
    if len(known) > _REMEMBERED:
        known.popitem(last=False)
