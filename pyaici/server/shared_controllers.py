"""Controllers of a server whose replicas share a store.

Each replica has an aicirt of its own, to which it brings what is used: a cache for each user. What users have
uploaded counts in the store.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from aicirt.contract.errors import NotOwnerError, OwnerLimitError, UnknownControllerError
from aicirt.contract.modules import StoredScript, check_tag_name
from pyaici.bundled import DESCRIPTIONS, LANGUAGES, SCHEME, check_tag, find_controller
from pyaici.server.controller_store import ControllerStore
from pyaici.server.http.users import Role
from pyaici.server.shared_store import MODULE, Entry, SharedStore, SharedStoreError, remember

if TYPE_CHECKING:
    from aicirt.contract.modules import ControllerInfo
    from pyaici.client.runtime import Runtime
    from pyaici.scripting.script import Script
    from pyaici.server.http.users import User
    from pyaici.server.settings import ServerSettings

_log = logging.getLogger("aicirt.server")
#: seconds after which a name is looked up again: a tag that has moved means something else everywhere soon
_FRESH_S = 0.5
#: the same where the store cannot be asked: requests go on with what a name meant last
_RETRY_S = 5.0
#: seconds that a request waits for a slow store before it goes on with that
_PATIENT_S = 1.0
#: beginning of the owner at aicirt of what a user has used: a cache of at most `owner_upload_bytes`. No user
#: has such a name
CACHE_OWNER = "shared store"


class SharedControllers(ControllerStore):
    """Finds, uploads, tags and removes controllers in the shared store."""

    def __init__(
        self,
        runtime: Runtime,
        settings: ServerSettings,
        shared: SharedStore,
        is_building: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(runtime, settings, is_building)
        self._shared = shared
        #: what names have meant, and when they are looked up again
        self._names: OrderedDict[str, tuple[float, Entry]] = OrderedDict()
        #: ids that aicirt has, those used least recently first
        self._here: OrderedDict[str, None] = OrderedDict()

    def _is_local(self, name: str) -> bool:
        return name.startswith(SCHEME) or name in DESCRIPTIONS or name in self._runtime.bundled.values()

    async def find(self, name: str, user: User) -> str:
        """Returns a controller's id, after bringing it to aicirt. Raises also SharedStoreError."""
        if self._is_local(name):
            return await super().find(name, user)
        entry = await self._resolve(name, user)
        await self._bring(entry, user)
        return entry.id

    def _claimant(self, user: User) -> str:
        return f"{CACHE_OWNER} {user.owner}"

    async def _resolve(self, name: str, user: User) -> Entry:
        until, entry = self._names.get(name, (0.0, None))
        if entry is not None and time.monotonic() <= until:
            return entry
        asked = self._once((user.caller, name), partial(self._look_up, name, entry, user))
        if entry is None:
            return await asked
        try:
            async with asyncio.timeout(_PATIENT_S):
                return await asked
        except TimeoutError:  # the store is slow; who asks next may know
            return entry

    async def _look_up(self, name: str, before: Entry | None, user: User) -> Entry:
        fresh = _FRESH_S
        try:
            entry = await self._ask(user, partial(self._shared.resolve, name))
        except SharedStoreError as error:
            if before is None:
                raise
            _log.warning("%s is used as it was: %s", name, error.message)
            entry, fresh = before, _RETRY_S
        except UnknownControllerError:
            self._names.pop(name, None)
            raise
        remember(self._names, name, (time.monotonic() + fresh, entry))
        return entry

    async def _bring(self, entry: Entry, user: User) -> None:
        if entry.id not in self._here:
            await self._once((user.caller, entry.id), partial(self._arrive, entry, user))
        self._here[entry.id] = None
        self._here.move_to_end(entry.id)

    async def _arrive(self, entry: Entry, user: User) -> None:
        with suppress(UnknownControllerError):
            await self._ask(user, partial(self._runtime.describe, entry.id, owner=user.owner))
            return
        content = await self._ask(user, partial(self._shared.content, entry))
        owner = self._claimant(user)
        if isinstance(content, StoredScript):
            await self._bring_interpreter(content, user)
            upload = partial(self._runtime.upload_script, content, owner=owner)
        else:
            upload = partial(self._runtime.upload, content, owner=owner)
        await self._fitting(user, partial(self._ask, user, upload))

    async def _fitting(self, user: User, upload: Callable[[], Awaitable[ControllerInfo]]) -> ControllerInfo:
        """Uploads to aicirt, after making room among what the user has used."""
        while True:
            try:
                return await upload()
            except OwnerLimitError as error:
                # room does not help against the limits of compilations
                if error.detail.get("setting") != "owner_upload_bytes" or not await self._evict(user):
                    raise

    async def _bring_interpreter(self, script: StoredScript, user: User) -> None:
        """Brings the interpreter that a script was checked with: this version's, or another one's."""
        with suppress(UnknownControllerError):  # that of this version has not been built
            for one in LANGUAGES:
                own = one.word == script.language
                if own and await super().find(one.controller, user) == script.interpreter:
                    return
        entry = await self._resolve(script.interpreter, user)
        if entry.kind != MODULE:  # else each script could need another one
            raise SharedStoreError(f"the interpreter {entry.id} of a script is no module")
        await self._bring(entry, user)

    async def _evict(self, user: User) -> bool:
        """Removes what the user has used least recently; returns whether there was anything."""
        owner = self._claimant(user)
        page = await self._ask(user, partial(self._runtime.list_page, found_by=owner))
        places = {id: place for place, id in enumerate(self._here)}
        brought = [info.id for info in page if owner in info.owners]
        if not brought:
            return False
        oldest = min(brought, key=lambda id: places.get(id, -1))
        self._here.pop(oldest, None)
        with suppress(UnknownControllerError):
            await self._ask(user, partial(self._runtime.remove, oldest, owner=owner))
        return True

    async def upload(self, wasm: bytes, user: User) -> ControllerInfo:
        """Stores and compiles a module here, then shares it. Raises ModuleError, SharedStoreError."""
        info = await self._fitting(user, partial(super().upload, wasm, user))
        return await self._share(info, wasm, user)

    async def upload_script(self, script: Script, user: User) -> ControllerInfo:
        """Stores a script here, then shares it, with its interpreter. Raises also SharedStoreError."""
        info = await self._fitting(user, partial(super().upload_script, script, user))
        await self._share_bundled(script.language.controller, user)
        return await self._share(info, script.stored(info.interpreter).pack(), user)

    async def _share(self, info: ControllerInfo, content: bytes, user: User) -> ControllerInfo:
        limit = self._runtime.owner_limits["owner_upload_bytes"]
        await self._ask(user, partial(self._shared.put, info, content, user.name, limit))
        return await self.describe(info.id, user)

    async def _share_bundled(self, name: str, user: User) -> str:
        """Shares a bundled controller, which belongs to nobody; returns its id."""
        info = await super().describe(name, user)
        wasm = find_controller(name).read_bytes()
        await self._ask(user, partial(self._shared.put, info, wasm))
        return info.id

    async def describe(self, name: str, user: User) -> ControllerInfo:
        """Returns a controller's description, by the names that `find` takes. Raises SharedStoreError."""
        if self._is_local(name):
            return await super().describe(name, user)
        return await self._ask(user, lambda: self._shared.describe(self._shared.resolve(name)))

    async def list(self, user: User, after: str, limit: int) -> tuple[list[ControllerInfo], bool]:
        """Returns at most `limit` controllers with ids after `after`, by id, and whether there are more."""
        owner = None if user.role == Role.ADMIN else user.name
        found = await self._ask(user, partial(self._shared.page, after, limit + 1, owner))
        return found[:limit], len(found) > limit

    async def tag(self, module: str, tag: str, user: User) -> None:
        """Gives a controller a tag. Raises also OwnerLimitError and SharedStoreError."""
        check_tag_name(tag)
        check_tag(tag)
        if self._is_local(module):
            module = await self._share_bundled(module, user)
        limit = self._runtime.owner_limits["owner_tags"]
        await self._ask(user, partial(self._shared.tag, tag, module, user.name, limit))
        self._names.pop(tag, None)

    async def untag(self, tag: str, user: User) -> None:
        """Removes a tag. Raises UnknownControllerError, NotOwnerError, SharedStoreError."""
        force = user.role == Role.ADMIN
        await self._ask(user, partial(self._shared.untag, tag, user.name, force=force))
        self._names.pop(tag, None)

    async def remove(self, module: str, user: User) -> None:
        """Removes the user from a controller's owners. Other replicas know it within a second."""
        force = user.role == Role.ADMIN
        await self._ask(user, partial(self._shared.remove, module, user.name, force=force))
        self._names.clear()
        self._here.pop(module, None)
        with suppress(UnknownControllerError, NotOwnerError):  # another replica has it
            await self._ask(user, partial(self._runtime.remove, module, owner=self._claimant(user)))
        self._forget(lambda _, removed: removed == module)
