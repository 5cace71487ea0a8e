"""Another user of the system, as which untrusted code runs."""

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
from aicirt.system.silence import finish

#: advice on how to allow a process to start others that become another user
CURE = "start aicirt as root, or with CAP_SETUID, CAP_SETGID, CAP_CHOWN and CAP_KILL"


@dataclass(frozen=True, slots=True)
class User:
    """The name and id of a user, and the id of the user's primary group."""

    name: str
    uid: int
    gid: int

    @classmethod
    def find(cls, name: str) -> User:
        """Looks up a user. Raises RuntimeFailure for an unknown user, for root, and for the current user."""
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            raise RuntimeFailure(
                f"there is no user {name!r}: create the user (useradd --system {name}), or name another"
            ) from None
        if entry.pw_uid in (0, os.getuid()):
            whose = "root" if entry.pw_uid == 0 else "aicirt"
            raise RuntimeFailure(
                f"workers that run as {name} can do what {whose} can do: name a user who owns nothing else, "
                "or omit --worker-user"
            )
        return cls(name, entry.pw_uid, entry.pw_gid)

    def require(self) -> None:
        """Raises RuntimeFailure if this process may not start others that become this user."""
        if problem := self.problem():
            raise RuntimeFailure(
                f"workers cannot run as {self.name}: {problem}: {CURE}, or omit --worker-user"
            )

    def problem(self) -> str:
        """Returns why this process may not start others that become this user; empty if it may."""
        command = [sys.executable, "-P", "-m", "aicirt.system.user", str(self.uid), str(self.gid)]
        try:
            tried = finish(command, env=child_environment())
        except (OSError, subprocess.TimeoutExpired) as error:
            return describe(error)
        if tried.returncode == 0:
            return ""
        return tried.stdout.strip() or f"the attempt ended with status {tried.returncode}"


def become(uid: int, gid: int) -> None:
    """Gives up this process's user, groups and capabilities for ever, while the process has one thread.

    Call this after the process has opened or imported what it needs from the old user's files, and before
    `sandbox.die_with`: a change of user clears the signal for the parent's death. Raises PermissionError.
    """
    for encoding in ("ascii", "latin-1", "utf-8"):  # each is a module that is imported on first use
        codecs.lookup(encoding)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    kernel.drop_capabilities()  # a process that was not root keeps its capabilities
    # otherwise root would own the process's files in /proc, and the Wasm engine needs one of them;
    # `sandbox.enter` undoes this later
    kernel.set_dumpable(True)


if __name__ == "__main__":
    try:
        become(int(sys.argv[1]), int(sys.argv[2]))
    except OSError as error:
        print(error.strerror)
        raise SystemExit(1) from None
