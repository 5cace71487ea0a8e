"""Another user of the system, as whom strangers' code runs."""

from __future__ import annotations

import codecs
import os
import pwd
import subprocess
import sys
from dataclasses import dataclass

from aicirt.contract.errors import RuntimeFailure
from aicirt.sandbox import kernel
from aicirt.system.environment import child_environment
from aicirt.system.shortage import describe

_SECONDS = 60
#: how a process may start others that become another user
CURE = "start aicirt as root, or with CAP_SETUID, CAP_SETGID, CAP_CHOWN and CAP_KILL"


@dataclass(frozen=True, slots=True)
class User:
    """Name and numbers of a user, and of the group that comes first."""

    name: str
    uid: int
    gid: int

    @classmethod
    def find(cls, name: str) -> User:
        """Raises RuntimeFailure if there is none, or it would not be another one."""
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            raise RuntimeFailure(
                f"there is no user {name!r}: make one (useradd --system {name}), or name another"
            ) from None
        if entry.pw_uid in (0, os.getuid()):
            whose = "root" if entry.pw_uid == 0 else "aicirt"
            raise RuntimeFailure(
                f"workers that run as {name} can do what {whose} can: name a user who has nothing else, or "
                "leave --worker-user out"
            )
        return cls(name, entry.pw_uid, entry.pw_gid)

    def require(self) -> None:
        """Raises RuntimeFailure if this process may not start others that become this user."""
        if problem := self.problem():
            raise RuntimeFailure(
                f"workers cannot run as {self.name}: {problem}: {CURE}, or leave --worker-user out"
            )

    def problem(self) -> str:
        """Why this process may not start others that become this user; empty if it may."""
        command = [sys.executable, "-P", "-m", "aicirt.system.user", str(self.uid), str(self.gid)]
        try:
            tried = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                env=child_environment(),
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return describe(error)
        if tried.returncode == 0:
            return ""
        return tried.stdout.strip() or f"trying it ended with status {tried.returncode}"


def become(uid: int, gid: int) -> None:
    """This process, while it has one thread, gives up its user, groups and capabilities for ever.

    What it needs of the old user's files it has open or has imported. Raises PermissionError. Before
    `sandbox.die_with`: with the user a process loses the signal that tells it of its parent's death.
    """
    for encoding in ("ascii", "latin-1", "utf-8"):  # each is a module that is imported when it is first used
        codecs.lookup(encoding)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    kernel.drop_capabilities()  # a process that was not root keeps its capabilities
    # else its own files in /proc, of which the engine needs one, would be root's; `sandbox.enter` follows
    kernel.set_dumpable(True)


if __name__ == "__main__":
    try:
        become(int(sys.argv[1]), int(sys.argv[2]))
    except OSError as error:
        print(error.strerror)
        raise SystemExit(1) from None
