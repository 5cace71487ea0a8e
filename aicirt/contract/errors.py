"""Typed errors of the runtime and its client, with their names on the wire.

Every error that a user can meet is a subclass of `AiciError`. On the wire an
error is ``[code, message, detail]``; `AiciError.to_wire` and `error_from_wire`
convert, so that the client raises the same type as the worker did.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, ClassVar

#: what reading bytes of strangers may raise, if the parts are not what they should be
MALFORMED = (
    *(TypeError, ValueError, LookupError, ArithmeticError, AttributeError),
    *(RecursionError, struct.error, zlib.error),
)


class AiciError(Exception):
    """Base class of all errors; `code` names the type on the wire.

    `detail` holds machine-readable facts: limit names, positions, the log of a
    failed sequence under ``"log"``. The message must be clear to a person without it.
    """

    code: ClassVar[str] = "error"

    def __init__(self, message: str, **detail: Any) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail

    def to_wire(self) -> list[Any]:
        """Returns ``[code, message, detail]``, which msgpack can encode."""
        return [self.code, self.message, self.detail]


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun, which is regular: "1 token", "2 tokens"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# -- a module is refused ------------------------------------------------------------


class ModuleError(AiciError):
    """The file is not a controller that this runtime accepts; `detail["reasons"]` lists the reasons."""

    code = "module"


class CompileLimitError(ModuleError):
    """Compiling took more time or memory than allowed."""

    code = "compile_limit"


class NotOwnerError(ModuleError):
    """The module or tag belongs to another owner: only that owner may change it."""

    code = "not_owner"


class UnknownControllerError(AiciError):
    """No controller has this id or tag."""

    code = "unknown_controller"


# -- a controller ends its sequence with an error ------------------------------------------


class ControllerError(AiciError):
    """A sequence ended because of what its controller did."""

    code = "controller"


class ArgumentError(ControllerError):
    """The controller refused its argument."""

    code = "argument"


class ControllerFailed(ControllerError):
    """The controller called `aici_fail`, or `proc_exit` with a nonzero status."""

    code = "failed"


class TrapError(ControllerError):
    """The Wasm code trapped; `detail["trap"]` names the kind."""

    code = "trap"


class TimeLimitError(ControllerError):
    """A callback used more CPU time than its limit."""

    code = "time_limit"


class MemoryLimitError(ControllerError):
    """The guest asked for more memory than its limit and then failed."""

    code = "memory_limit"


class ResultError(ControllerError):
    """A callback returned something out of range: a pointer, length, verb, token or NaN."""

    code = "result"


class EmptyMaskError(ControllerError):
    """The row allows no token at all."""

    code = "empty_mask"


class ForkLimitError(ControllerError):
    """The request has more live sequences than allowed, or the engine cannot fork."""

    code = "fork_limit"


class VariableLimitError(ControllerError):
    """Shared variables exceed their count or size limit."""

    code = "variable_limit"


class CallLimitError(ControllerError):
    """The request has made too many calls, or asks for too much with one."""

    code = "call_limit"


class DeadlockError(ControllerError):
    """Every sequence of the request stayed suspended."""

    code = "deadlock"


class LivelockError(ControllerError):
    """Too many rounds passed in which controllers did something, but no token was added or removed."""

    code = "livelock"


class CapabilityError(ControllerError):
    """The controller used a verb that this engine does not support."""

    code = "capability"


# -- the runtime itself -------------------------------------------------------------------------


class RuntimeFailure(AiciError):
    """The runtime could not complete an operation."""

    code = "runtime"


class ClosedError(RuntimeFailure):
    """The runtime has been closed in this process."""

    code = "closed"

    def __init__(self, message: str = "the runtime has been closed: create another one") -> None:
        super().__init__(message)


class WorkerDiedError(RuntimeFailure):
    """The worker process of this sequence ended."""

    code = "worker_died"


class SupervisorDiedError(RuntimeFailure):
    """The aicirt process ended or closed the connection."""

    code = "supervisor_died"


class ForeignDaemonError(RuntimeFailure):
    """Another user's process listens on the socket; nothing was sent to it."""

    code = "foreign_daemon"


class RuntimeTimeoutError(RuntimeFailure):
    """No answer came within the time allowed."""

    code = "timeout"


class ProtocolError(RuntimeFailure):
    """A message or shared-memory segment violates the protocol."""

    code = "protocol"


class SpaceError(RuntimeFailure):
    """Shared memory, mask rows, or room for another sequence ran out."""

    code = "space"


class TemplateGoneError(RuntimeFailure):
    """The worker has evicted the controller's snapshot: the sequence must be placed again."""

    code = "template_gone"


class OwnerLimitError(RuntimeFailure):
    """An owner has reached a limit per owner; other owners are not affected.

    `detail["limit"]` is its value. `detail["setting"]` is the name of the setting if room can be made for it.
    """

    code = "owner_limit"


class VocabularyError(AiciError):
    """The vocabulary or tokenizer cannot be used."""

    code = "vocabulary"


class OfferError(AiciError):
    """An offer to answer calls is invalid, or a request names one that does not exist."""

    code = "offer"


class UnknownRunError(AiciError):
    """No run of this owner has the name to which a message is sent."""

    code = "unknown_run"


class UnknownSequenceError(AiciError):
    """No live sequence has this id."""

    code = "unknown_sequence"


def _all_codes(base: type[AiciError]) -> dict[str, type[AiciError]]:
    found = {base.code: base}
    for sub in base.__subclasses__():
        found.update(_all_codes(sub))
    return found


#: errors about a process that has ended or was not reached: a worker that lives has none of them, and an
#: engine may give up a runtime for them
_NOT_OF_WORKERS = (ClosedError, ForeignDaemonError, SupervisorDiedError, WorkerDiedError)


def worker_error_from_wire(wire: list[Any]) -> AiciError:
    """Rebuilds an error that a worker has sent. Raises ProtocolError also if no worker can have it."""
    found = error_from_wire(wire)
    if isinstance(found, _NOT_OF_WORKERS):
        raise ProtocolError(f"a worker has sent the error {found.code!r}")
    return found


def error_from_wire(wire: list[Any]) -> AiciError:
    """Rebuilds an error from the result of `AiciError.to_wire`; an unknown code gives `AiciError`.

    Raises ProtocolError if `wire`, which another process has sent, does not describe an error.
    """
    try:
        code, message, detail = wire
        if not (isinstance(code, str) and isinstance(message, str)):
            raise TypeError("code and message must be texts")
        found = _all_codes(AiciError).get(code, AiciError)(message)
        found.detail = {str(key): value for key, value in detail.items()}
    except (TypeError, ValueError, AttributeError):
        raise ProtocolError("not a valid description of an error") from None
    return found
