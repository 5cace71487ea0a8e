"""The client's connection to the supervisor: one call at a time."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import Any

from aicirt.errors import (
    ProtocolError,
    RuntimeFailure,
    RuntimeTimeoutError,
    SupervisorDiedError,
    error_from_wire,
)
from aicirt.ipc.frames import FrameSocket
from aicirt.ipc.messages import PROTOCOL_VERSION, Call, Reply
from aicirt.settings import CALL_SECONDS


class Control:
    """Blocking calls over the control socket; safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        """Raises RuntimeFailure if nobody listens there."""
        self._path = path
        self._lock = threading.Lock()
        self._number = 0
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(CALL_SECONDS)
        try:
            sock.connect(str(path))
        except OSError as error:
            sock.close()
            raise RuntimeFailure(
                f"no aicirt listens on {path} ({error.strerror or error}); start one with 'aici runtime', "
                "or leave the socket out to have one started"
            ) from error
        self._socket = FrameSocket(sock)
        self.hello: dict[str, Any] = self.call("hello", protocol=PROTOCOL_VERSION, pid=os.getpid())

    def call(self, name: str, **args: Any) -> Any:
        """The supervisor's answer. Raises its error, SupervisorDiedError or RuntimeTimeoutError."""
        with self._lock:
            self._number += 1
            number = self._number
            try:
                self._socket.send(Call(number, name, args))
                while (message := self._socket.receive()) is not None and message[0] != number:
                    pass  # the late answer to a call that was given up
            except TimeoutError as error:
                raise RuntimeTimeoutError(
                    f"aicirt did not answer {name!r} within {CALL_SECONDS:.0f} s"
                ) from error
            except OSError as error:
                raise SupervisorDiedError(
                    f"the connection to aicirt at {self._path} broke: {error}"
                ) from error
        if message is None:
            raise SupervisorDiedError(f"aicirt at {self._path} closed the connection")
        if len(message) != len(Reply._fields):
            raise ProtocolError(f"the answer to {name!r} has {len(message)} fields")
        if message[1] is not None:
            raise error_from_wire(message[1])
        return message[2]

    def close(self) -> None:
        """Closes the connection; the supervisor then frees what this client had."""
        self._socket.close()
