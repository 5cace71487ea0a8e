"""Calls about modules: store, name, describe and remove them, within the limits of each owner."""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import OwnerLimitError, ProtocolError
from aicirt.contract.modules import StoredScript
from aicirt.contract.owners import DEFAULT_OWNER
from aicirt.settings import LIST_PAGE, MIN_UPLOAD
from aicirt.system.logs import fields
from aicirt.system.threads import Result

if TYPE_CHECKING:
    from aicirt.modules.store import ModuleStore
    from aicirt.supervisor.fair_queue import FairQueue

_MAX_OWNER = 64


def owner_of(args: dict[str, Any], default: str = DEFAULT_OWNER) -> str:
    """Returns the owner that a call names. Raises ProtocolError if the name is invalid."""
    owner = args.get("owner") or default
    if not isinstance(owner, str) or len(owner) > _MAX_OWNER or not owner.isprintable():
        raise ProtocolError(
            f"invalid owner {owner!r}: an owner's name has 1 to {_MAX_OWNER} printable characters"
        )
    return owner


class Uploads:
    """Limits bytes by owner: those stored, which survive a restart, and those being uploaded."""

    def __init__(self, limit: int, stored: Callable[[str], Awaitable[int]]) -> None:
        """`stored` returns the bytes that an owner has in the store."""
        self._limit = limit
        self._stored = stored
        self._coming: Counter[str] = Counter()

    @asynccontextmanager
    async def counted(self, owner: str, size: int) -> AsyncIterator[None]:
        """Counts `size` bytes during the block; 0 if they are stored already. Raises OwnerLimitError."""
        if not size:
            yield
            return
        nbytes = max(MIN_UPLOAD, size)
        coming = self._coming[owner]  # those that are stored while we ask count twice
        self._coming[owner] += nbytes
        try:
            have = coming + await self._stored(owner)
            if have + nbytes > self._limit:
                raise OwnerLimitError(
                    f"owner {owner!r} has uploaded modules and scripts that count {have} bytes, and this one "
                    f"counts {nbytes}; the limit is {self._limit} (owner_upload_bytes): remove some first",
                    setting="owner_upload_bytes",
                    limit=self._limit,
                )
            yield
        finally:
            self._coming[owner] -= nbytes
            self._coming += Counter()  # drops owners with none


_log = logging.getLogger("aicirt.supervisor")


@dataclass(slots=True)
class Caller:
    """The client of a connection."""

    number: int
    #: the process id that `hello` reports; 0 before
    pid: int = 0
    #: whose tags, snapshots and limits count if a call names no owner; clients may share an owner
    owner: str = DEFAULT_OWNER

    def about(self, **more: Any) -> dict[str, Any]:
        """Returns the fields that describe the client in log calls."""
        return fields(**{"client": self.number, "pid": self.pid, "owner": self.owner, **more})


class ModuleCalls:
    """The calls of one connection that concern the store; each may name another owner."""

    def __init__(
        self,
        caller: Caller,
        store: ModuleStore,
        uploads: Uploads,
        changes: FairQueue,
        owner_tags: int,
        forget: Callable[[str], None],
    ) -> None:
        """`owner_tags`: limit of each owner. `forget` receives each module that is no longer stored."""
        self._caller = caller
        self._store = store
        self._uploads = uploads
        self._changes = changes
        self._owner_tags = owner_tags
        self._forget = forget
        self.calls: dict[str, Callable[[dict[str, Any]], Awaitable[Any]]] = {
            "upload": self._upload,
            "upload_script": self._upload_script,
            "tag": self._tag,
            "untag": self._untag,
            "remove": self._remove,
            "describe": self._describe,
            "list": self._list,
        }

    async def _upload(self, args: dict[str, Any]) -> dict[str, Any]:
        store, owner, wasm = self._store, self._owner(args), args["wasm"]
        known = await store.apart(partial(store.knows, wasm))
        async with self._uploads.counted(owner, 0 if known else len(wasm)):
            info = await store.add_async(wasm, owner)
        self._log_change("client %d has uploaded %s", owner, info.id)
        return info.to_wire()

    async def _upload_script(self, args: dict[str, Any]) -> dict[str, Any]:
        store, owner = self._store, self._owner(args)
        given = args["script"]
        script = StoredScript(*(given[field.name] for field in dataclasses.fields(StoredScript)))

        def check() -> tuple[bool, int]:
            script.check()
            return store.has(script.id), len(script.pack())

        known, nbytes = await store.apart(check)
        async with self._uploads.counted(owner, 0 if known else nbytes):
            info = await self._change(owner, partial(store.add_script, script, owner), nbytes)
        self._log_change("client %d has uploaded the script %s", owner, info.id)
        return info.to_wire()

    async def _tag(self, args: dict[str, Any]) -> None:
        owner, limit = self._owner(args), self._owner_tags
        self._forget_all(
            owner,
            await self._change(owner, partial(self._store.tag, args["tag"], args["module"], owner, limit)),
        )

    async def _untag(self, args: dict[str, Any]) -> None:
        owner, force = self._owner(args), args.get("force") is True
        self._forget_all(
            owner, await self._change(owner, partial(self._store.untag, args["tag"], owner, force=force))
        )

    async def _remove(self, args: dict[str, Any]) -> bool:
        """Removes an owner's claim; returns whether the module is gone too."""
        owner, force = self._owner(args), args.get("force") is True
        gone = await self._change(owner, partial(self._store.remove, args["module"], owner, force=force))
        self._forget_all(owner, gone)
        return bool(gone)

    async def _change(self, owner: str, change: Callable[[], Result], nbytes: int = 0) -> Result:
        """Changes the store in a thread, in the owner's turn."""
        async with self._changes.turn(owner, nbytes):
            return await self._store.apart(change)

    def _forget_all(self, owner: str, gone: list[str]) -> None:
        """Forgets and logs modules that are no longer stored."""
        for module in gone:
            self._forget(module)
        if gone:  # an interpreter that went with its last script is not the caller's
            self._log_change("client %d has removed %s", owner, gone[0])

    async def _describe(self, args: dict[str, Any]) -> dict[str, Any]:
        info = await self._store.describe_async(args["module"], self._owner(args))
        return info.to_wire()

    async def _list(self, args: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns the next page of modules after the id `after`; an empty list at the end."""
        after, limit = args.get("after") or "", args.get("limit") or LIST_PAGE
        found_by = args.get("found_by")
        if not isinstance(after, str) or not isinstance(found_by, str | None) or not isinstance(limit, int):
            raise ProtocolError(
                "invalid arguments for 'list': after and found_by are texts, limit is a number"
            )
        store, limit = self._store, min(max(limit, 1), LIST_PAGE)
        page = await store.apart(partial(store.page, after, limit, found_by))
        return [info.to_wire() for info in page]

    def _owner(self, args: dict[str, Any]) -> str:
        return owner_of(args, self._caller.owner)

    def _log_change(self, what: str, owner: str, module: str) -> None:
        caller = self._caller
        _log.info(what, caller.number, module, extra=caller.about(owner=owner, module=module))
