"""How clients say whose something is."""

from __future__ import annotations

from typing import Any

from aicirt.errors import ProtocolError

#: of clients that do not say whose they are
DEFAULT_OWNER = "local"
_MAX_OWNER = 64


def owner_of(args: dict[str, Any], default: str = DEFAULT_OWNER) -> str:
    """Whom a call names as its `owner`. Raises ProtocolError for what is no name."""
    owner = args.get("owner") or default
    if not isinstance(owner, str) or len(owner) > _MAX_OWNER or not owner.isprintable():
        raise ProtocolError(f"an owner is named by 1 to {_MAX_OWNER} printable characters, not {owner!r}")
    return owner
