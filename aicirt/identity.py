"""Resolves the names of modules: ids, beginnings of ids, and tags. Ids win over tags everywhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from aicirt.errors import UnknownModuleError
from aicirt.stored_script import MODULE_ID

#: digits of the shortest beginning of an id that is taken for one, where a user sees the list of ids
SHORTEST_ID = 8
#: the same where the list is not shown: 48 bits, so that nobody finds the ids of others by trying
SHORTEST_UNSEEN_ID = 12
_BEGINNING = re.compile(f"[0-9a-f]{{{SHORTEST_ID},63}}")


def is_module_id(text: str) -> bool:
    """Whether this is a whole id."""
    return bool(MODULE_ID.fullmatch(text))


def looks_like_id(text: str) -> bool:
    """Whether this is an id, or may be taken for the beginning of one: no tag may look so."""
    return is_module_id(text) or bool(_BEGINNING.fullmatch(text))


def resolve_name(
    name: str,
    ids: Callable[[], Iterable[str]],
    tags: Callable[[], Mapping[str, str]],
    shortest: int = SHORTEST_UNSEEN_ID,
) -> str:
    """Returns the module id that `name` means: itself, the one id that begins so, or the id of a tag.

    `ids` lists the stored modules, `tags` maps each tag to its module; each is called only where it is
    needed. Raises UnknownModuleError if nothing has this name, or if several ids begin with it.
    """
    if is_module_id(name):
        return name
    if looks_like_id(name) and len(name) >= shortest:
        found = [module_id for module_id in ids() if module_id.startswith(name)]
        if len(found) > 1:
            problem = f"{len(found)} modules begin with {name!r}: say more of the id"
            raise UnknownModuleError(problem, modules=len(found))
        if found:
            return found[0]
    module = tags().get(name)
    if module is None:
        raise UnknownModuleError(f"no module or tag {name!r}")
    return module
