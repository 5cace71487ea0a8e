"""What the supervisor asks of a worker."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aicirt.errors import AiciError, ProtocolError, RuntimeFailure
from aicirt.ipc.frames import FrameSocket
from aicirt.ipc.layout import Layout
from aicirt.ipc.messages import Reply
from aicirt.wasm.host import GuestExit
from aicirt.wasm.program import Program
from aicirt.worker.client import Client
from aicirt.worker.templates import Template
from aicirt.worker.vocabulary import LoadedVocabulary

if TYPE_CHECKING:
    from aicirt.worker.loop import Worker

_log = logging.getLogger("aicirt.worker")
#: returned by a call that answers later
_LATER = object()


class Controls:
    """Serves the control socket of a worker."""

    def __init__(self, worker: Worker, socket: FrameSocket) -> None:
        self._worker = worker
        self._socket = socket
        self._programs: dict[str, Program] = {}
        self._calls: dict[str, Callable[[int, dict[str, Any]], Any]] = {
            "ping": self._ping,
            "vocabulary": self._vocabulary,
            "template": self._template,
            "attach": self._attach,
            "detach": self._detach,
            "stop": self._stop,
        }

    def serve(self) -> bool:
        """Answers one call if there is one."""
        message = self._socket.poll()
        if message is None:
            if self._socket.closed:  # the supervisor is gone
                self._worker.running = False
            return False
        number, name, args = message
        try:
            value = self._calls[name](number, args)
        except AiciError as error:
            self._drop_descriptors()
            self._reply(Reply(number, error.to_wire(), None))
        except GuestExit as error:
            self._reply(
                Reply(number, RuntimeFailure(f"the controller ended: {error.reason}").to_wire(), None)
            )
        except Exception as error:
            _log.exception("call %r failed", name)
            self._reply(
                Reply(number, RuntimeFailure(f"internal error in {name!r}: {error!r}").to_wire(), None)
            )
        else:
            if value is not _LATER:
                self._reply(Reply(number, None, value))
        return True

    def _drop_descriptors(self) -> None:
        """Of a call that failed before it took them."""
        while self._socket.fds:
            os.close(self._socket.fds.pop())

    def _reply(self, reply: Reply) -> None:
        try:
            self._socket.send(reply)
        except OSError:
            self._worker.running = False

    def _ping(self, _: int, __: dict[str, Any]) -> dict[str, int]:
        worker = self._worker
        return {
            "sequences": worker.num_sequences,
            "clients": len(worker.clients),
            "steps": worker.steps,
            "snapshot_bytes": worker.templates.nbytes,
        }

    def _vocabulary(self, _: int, args: dict[str, Any]) -> None:
        fds = self._socket.fds
        if len(fds) < 2:
            raise ProtocolError("a vocabulary came without its descriptors")
        image_fd, tokenizer_fd = fds[:2]
        del fds[:2]
        self._worker.vocabularies[args["id"]] = LoadedVocabulary(
            image_fd, args["image_bytes"], tokenizer_fd, args["tokenizer_bytes"], args["tokenizer_kind"]
        )

    def _template(self, number: int, args: dict[str, Any]) -> object:
        worker = self._worker
        if not self._socket.fds:
            raise ProtocolError("a template came without its argument")
        fd = self._socket.fds.pop(0)
        try:
            arg = os.pread(fd, args["arg_bytes"], 0)
        finally:
            os.close(fd)
        vocabulary = worker.vocabularies[args["vocabulary"]]
        program = self._programs.get(args["module"])
        if program is None:
            program = self._programs[args["module"]] = Program.from_file(worker.linker, args["path"])

        def done(result: Template | AiciError) -> None:
            if isinstance(result, AiciError):
                self._reply(Reply(number, result.to_wire(), None))
            else:
                self._reply(Reply(number, None, result.number))

        capabilities = worker.guest_capabilities(args["capabilities"], vocabulary)
        worker.templates.make(program, arg, vocabulary, capabilities, done)
        return _LATER

    def _attach(self, _: int, args: dict[str, Any]) -> None:
        worker = self._worker
        worker.detach(args["client"])  # a client that registers another vocabulary comes again
        worker.clients[args["client"]] = Client(
            args["client"],
            args["link"],
            args["segment"],
            args["bell"],
            Layout.from_wire(args["layout"]),
            worker.vocabularies[args["vocabulary"]],
            worker.settings.max_outbox,
        )

    def _detach(self, _: int, args: dict[str, Any]) -> None:
        self._worker.detach(args["client"])

    def _stop(self, _: int, __: dict[str, Any]) -> None:
        self._worker.running = False
