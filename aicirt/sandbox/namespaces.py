"""Namespaces of its own for a process: no network device but a loopback that is down, no rights outside.

There is no pid namespace: its first process would have to be a child, so that the supervisor, which watches
and kills workers by pidfd, would see another process than the one that serves clients.
"""

from __future__ import annotations

from aicirt.sandbox import kernel

_IPC, _USER, _NET = 0x0800_0000, 0x1000_0000, 0x4000_0000
_NAMES = {_USER: "user", _NET: "network", _IPC: "ipc"}


def enter_namespaces() -> tuple[str, ...]:
    """Moves this process, while it has one thread, into new namespaces; returns their names, if any.

    Writes no map of user ids: the process needs no name for its user, and has no other.
    """
    # root in a container may have no user namespaces, but the right to make the others
    for flags in (_USER | _NET | _IPC, _NET | _IPC):
        try:
            kernel.unshare(flags)
        except OSError:
            continue
        return tuple(name for flag, name in _NAMES.items() if flags & flag)
    return ()
