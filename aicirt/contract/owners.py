"""Names of owners that have a meaning for the runtime."""

from __future__ import annotations

#: the owner of clients that name none: the operator of the daemon, who also has the bundled controllers
DEFAULT_OWNER = "local"
#: names of owners that may be several people begin with this: a server does not know who they are
ANONYMOUS = "anonymous"


def is_one_person(owner: str) -> bool:
    """Returns whether all sequences of an owner belong to one person."""
    return not owner.startswith(ANONYMOUS)
