"""What the host functions of a guest can see: the owner of an instance."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from aicirt.errors import ResultError
from aicirt.settings import RequestLimits
from aicirt.worker.log import Log

if TYPE_CHECKING:
    from aicirt.worker.owner import Owner
    from aicirt.worker.sequence import Sequence
    from aicirt.worker.variables import Variables
    from aicirt.worker.vocabulary import LoadedVocabulary

#: sources of `aici_read`, numbers as in aici.h
ARG, PROMPT, TOKENS, GROUP, TOP, VALUE, TOKENIZED = range(7)


class GuestContext:
    """State behind the imports of one instance; `aicirt.worker.hostapi` works on it."""

    __slots__ = (
        "capabilities",
        "limits",
        "log",
        "seed",
        "sequence",
        "sources",
        "variables",
        "vocabulary",
    )

    def __init__(
        self,
        *,
        vocabulary: LoadedVocabulary,
        capabilities: dict[int, int],
        limits: RequestLimits,
        arg: bytes,
        variables: Variables | None,
        seed: int,
        owner: Owner | None = None,
    ) -> None:
        self.vocabulary = vocabulary
        #: aici.h AICI_CAP_* -> value
        self.capabilities = capabilities
        self.limits = limits
        #: None while `aici_init` runs: its result serves many requests
        self.variables = variables
        self.seed = seed
        self.log = Log(limits.log_bytes, owner)
        self.sources: list[bytes] = [b""] * 7
        self.sources[ARG] = arg
        #: who has what is behind TOKENS and GROUP, which are read rarely: both are in the step's argument
        self.sequence: Sequence | None = None

    def write_log(self, _fd: int, data: bytes) -> None:
        """stdout and stderr of the guest, in one log."""
        self.log.write(data)

    def source(self, number: int) -> bytes:
        """The bytes of a source. Raises ResultError if there is none with this number."""
        if number == TOKENS:
            return array("I", self.sequence.tokens if self.sequence else ()).tobytes()
        if number == GROUP:
            return array("I", self.sequence.group if self.sequence else ()).tobytes()
        if number >= len(self.sources):
            raise ResultError(f"aici_read: there is no source {number}")
        return self.sources[number]
