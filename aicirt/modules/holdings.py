"""Who holds what is stored, by claims, tags and scripts; what nobody holds goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aicirt.errors import ModuleError, RuntimeFailure, UnknownModuleError
from aicirt.settings import LEAST_UPLOAD

if TYPE_CHECKING:
    from aicirt.modules.claims import Claims, ClaimsChange
    from aicirt.modules.files import ModuleFiles
    from aicirt.modules.tags import Tags


class Holdings:
    """Of one store. Changes hold the lock of its claims, so that nothing is added and removed at once."""

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
        module goes, with what was compiled of it: then the answer is true. `force`: it goes whoever has
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
        """What interprets a script; None for a module, and for what is so damaged that nobody knows."""
        try:
            note = self._files.note(module_id)
        except (ModuleError, RuntimeFailure):
            return None
        return None if note is None else note.interpreter

    def _interprets(self, module_id: str) -> bool:
        """Whether a stored script needs it. Raises RuntimeFailure where that cannot be known now."""
        return any(note.interpreter == module_id for note in self._files.notes().values())
