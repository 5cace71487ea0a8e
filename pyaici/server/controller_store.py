"""Controllers of the server's users: found by name, uploaded, tagged, described and deleted."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from aicirt.contract.errors import ControllerError, UnknownControllerError
from aicirt.contract.owners import to_evict
from aicirt.system.logs import fields
from aicirt.system.threads import call_at_end
from pyaici.bundled import DESCRIPTIONS, LANGUAGES, SCHEME
from pyaici.scripting.checker import is_syntax_error
from pyaici.scripting.script import interpreter_file
from pyaici.server.http.errors import busy
from pyaici.server.http.users import Role
from pyaici.server.scheduling.queues import FairTurns, WaitingLimits
from pyaici.server.scheduling.threads import in_own_thread

if TYPE_CHECKING:
    from aicirt.contract.modules import ControllerInfo
    from pyaici.client.calls import Answerer
    from pyaici.client.runtime import Runtime
    from pyaici.scripting.script import Script
    from pyaici.server.http.users import User
    from pyaici.server.settings import ServerSettings


_log = logging.getLogger("aicirt.server")
Result = TypeVar("Result")
#: concurrent calls to aicirt, of all users and of one. Each has a thread; in aicirt, owners take turns for
#: slow operations
_CALLS, _CALLS_EACH = 64, 4
#: accepted arguments that are remembered: more than aicirt keeps ready. One takes 0.3 KiB
_ACCEPTED = 1024
#: time after which a client asks again for a controller that is being built; most take 1 to 30 s
_BUILD_SECONDS = 10
#: controllers of registries whose ids are remembered. One takes 0.5 KiB
_PULLED = 1024


class ControllerStore:
    """Sends requests to aicirt on behalf of users. Calls may take seconds and do not block the event loop."""

    def __init__(
        self, runtime: Runtime, settings: ServerSettings, is_building: Callable[[], bool] = lambda: False
    ) -> None:
        """Uses `runtime`, which belongs to the server alone and has the model's vocabulary registered.

        `is_building`: returns whether missing bundled controllers are being built.
        """
        self._runtime = runtime
        self._is_building = is_building
        #: (user, module, digest of the argument) of the latest accepted arguments
        self._accepted: OrderedDict[tuple[str, str, bytes], None] = OrderedDict()
        self._settings = settings
        #: ids of the controllers that (user, reference) has named so far
        self._pulled: OrderedDict[tuple[str, str], str] = OrderedDict()
        #: controllers that are being fetched from elsewhere
        self._fetching: dict[Hashable, asyncio.Task[Any]] = {}
        self._turns = FairTurns(_CALLS, WaitingLimits.before_streams(settings), each=_CALLS_EACH)

    @property
    def answerer(self) -> Answerer:
        """Offers to answer calls of controllers."""
        return self._runtime.answerer

    def watch(self) -> None:
        """Logs the end of aicirt when it comes; call it in the event loop. Calls fail from then on."""

        def ended() -> None:
            _log.error(
                "aicirt (pid %d) has ended: requests with a controller get status 503; restart the server",
                pid,
                extra=fields(pid=pid),
            )

        pid = self._runtime.daemon_pid
        try:
            call_at_end(pid, ended)
        except OSError:
            ended()

    async def find(self, name: str, user: User) -> str:
        """Returns a controller's id, given an id, a tag, the name of a bundled controller or a reference.

        Raises what `describe` raises, and ArtifactError.
        """
        if name.startswith(SCHEME):
            return await self._pull(name, user)
        if name in self._runtime.bundled:
            return self._runtime.bundled[name]
        return (await self.describe(name, user)).id

    async def prepare(self, module: str, arg: str, user: User) -> None:
        """Has the controller read its argument. Raises ArgumentError, and every other ControllerError.

        Returns at once for an argument that it has accepted: that request must not wait for slow new ones.
        """
        key = user.owner, module, hashlib.sha256(arg.encode()).digest()
        if key not in self._accepted:
            await self._ask(user, partial(self._runtime.prepare, module, arg, owner=user.owner))
        _remember(self._accepted, key, None, _ACCEPTED)

    def forget(self, user: User) -> None:
        """Forgets a user's accepted arguments: a module that they need may have been removed."""
        self._forget(lambda owner, _: owner == user.owner)

    def _forget(self, unwanted: Callable[[str, str], bool]) -> None:
        """Forgets the accepted arguments for which `unwanted`, called with user and module, returns True."""
        for key in [key for key in self._accepted if unwanted(*key[:2])]:
            del self._accepted[key]

    async def _pull(self, name: str, user: User) -> str:
        """Returns the id of a controller of a registry, after uploading it for the user at its first use.

        The user's tag stays with what it referred to then. Raises ArtifactError, and what uploads raise.
        """
        from pyaici.artifacts import ArtifactError, Reference, pull  # their packages are optional

        reference, allowed = Reference.parse(name), self._settings.oci_allow
        if not reference.within(allowed):
            raise ArtifactError(
                f"{reference} is in no registry that the server's operator allows (--oci-allow): "
                f"{', '.join(allowed) or 'none'}"
            )
        key = user.name, str(reference)
        if (known := self._pulled.get(key)) is not None:
            return known

        async def fetch() -> str:
            options = self._settings.oci_keys, self._settings.max_upload_bytes
            artifact = await self._ask(user, partial(pull, reference, *options))
            if (script := artifact.script) is not None:
                info = await self.upload_script(script, user)
            else:
                info = await self.upload(artifact.content, user)
            _log.info(
                "%s is %s", reference, artifact.digest, extra=fields(controller=info.id, owner=user.name)
            )
            _remember(self._pulled, key, info.id, _PULLED)
            return info.id

        return await self._once(key, fetch)

    def _claimant(self, user: User) -> str:
        """Returns the owner at aicirt of what a user uploads."""
        return user.name

    async def upload(self, wasm: bytes, user: User) -> ControllerInfo:
        """Stores and compiles a module. Raises ModuleError with all reasons."""
        return await self._ask(user, partial(self._runtime.upload, wasm, owner=self._claimant(user)))

    async def upload_script(self, script: Script, user: User) -> ControllerInfo:
        """Stores a script.

        Raises ArgumentError for syntax errors, and what `find` raises if the interpreter is missing.
        """
        interpreter = await self.find(script.language.controller, user)
        try:  # the script runs here without its argument; errors other than syntax errors may be due to that
            await self.prepare(interpreter, script.argument(), user)
        except ControllerError as error:
            if is_syntax_error(error.message):
                raise
        stored, owner = script.stored(interpreter), self._claimant(user)
        return await self._ask(user, partial(self._runtime.upload_script, stored, owner=owner))

    async def list(self, user: User, after: str, limit: int) -> tuple[list[ControllerInfo], bool]:
        """Returns at most `limit` controllers with ids after `after`, by id, and whether there are more.

        Lists what the user has uploaded or can find by a tag. Lists everything for an administrator, except
        bundled controllers without a tag.
        """
        found_by = None if user.role == Role.ADMIN else user.name
        bundled = set(self._runtime.bundled.values())
        found: list[ControllerInfo] = []
        while len(found) <= limit:
            page = await self._ask(user, partial(self._runtime.list_page, after, found_by=found_by))
            if not page:
                return found, False
            after = page[-1].id
            found += [
                info for info in page if info.tags or user.name in info.owners or info.id not in bundled
            ]
        return found[:limit], True

    async def describe(self, name: str, user: User) -> ControllerInfo:
        """Returns a controller's description, by the names that `find` takes.

        Raises UnknownControllerError, and for a bundled controller that has not been built ApiError if it is
        being built, or InterpreterMissingError if it runs scripts.
        """
        is_building = self._is_building()  # asked first, since the build may end during the call
        try:
            return await self._ask(user, partial(self._runtime.describe, name, owner=user.name))
        except UnknownControllerError:
            if is_building and name in DESCRIPTIONS:
                raise busy(
                    f"the controller {name!r} is being built: try again in {_BUILD_SECONDS} s", _BUILD_SECONDS
                ) from None
            for language in LANGUAGES:
                if language.controller == name:
                    interpreter_file(language)
            raise

    async def tag(self, module: str, tag: str, user: User) -> None:
        """Gives a controller a tag.

        Raises NotOwnerError if the tag belongs to another owner, and ModuleError if the name is not allowed.
        """
        await self._ask(user, partial(self._runtime.tag, module, tag, owner=user.name))

    async def untag(self, tag: str, user: User) -> None:
        """Removes a tag. Raises UnknownControllerError, or NotOwnerError if another owner has it."""
        force = user.role == Role.ADMIN
        await self._ask(user, partial(self._runtime.untag, tag, owner=user.name, force=force))

    async def remove(self, module: str, user: User) -> None:
        """Removes the user from a module's owners; a module without owners is deleted.

        An administrator deletes it for all. Raises ModuleError, NotOwnerError or UnknownControllerError.
        """
        force = user.role == Role.ADMIN
        await self._ask(user, partial(self._runtime.remove, module, owner=user.name, force=force))
        self._forget(lambda _, removed: removed == module)
        for key in [key for key, known in self._pulled.items() if known == module]:
            del self._pulled[key]

    async def health(self) -> dict[str, Any]:
        """Returns what aicirt reports about itself."""
        return await in_own_thread(self._runtime.health)

    @property
    def connected(self) -> bool:
        """Whether aicirt is connected."""
        return self._runtime.is_connected()

    async def _once(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Returns what `work` does; callers with the same key at the same time share one call.

        It goes on if its caller stops waiting: others may wait for it.
        """
        if (task := self._fetching.get(key)) is None:
            task = self._fetching[key] = asyncio.create_task(work())
            # asks for the error, since perhaps nobody waits any longer
            task.add_done_callback(
                lambda task: (self._fetching.pop(key), task.cancelled() or task.exception())
            )
        result: Result = await asyncio.shield(task)
        return result

    async def _ask(self, user: User, call: Callable[[], Result]) -> Result:
        """Returns the result of `call`. Raises what it raises, and ApiError if too many calls wait already.

        The turn lasts until the call has ended, even if its caller has stopped waiting.
        """
        async with self._turns.turn(user.caller):
            return await in_own_thread(call)


def _remember(known: OrderedDict[Any, Any], key: tuple[Any, ...], value: object, most: int) -> None:
    """Adds the newest entry. Each key begins with its owner; who has most loses the oldest beyond `most`."""
    known[key] = value
    known.move_to_end(key)
    if len(known) > most:
        del known[to_evict((key, key[0], 1) for key in known)]
