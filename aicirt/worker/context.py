"""What the host functions of a guest can see: the owner of an instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aicirt.settings import RequestLimits
from aicirt.worker.log import Log

if TYPE_CHECKING:
    from aicirt.worker.variables import Variables
    from aicirt.worker.vocabulary import LoadedVocabulary

#: sources of `aici_read`, numbers as in aici.h
ARG, PROMPT, TOKENS, GROUP, TOP, VALUE, TOKENIZED = range(7)


class GuestContext:
    """State behind the imports of one instance; `aicirt.worker.hostapi` works on it."""

    __slots__ = ("capabilities", "limits", "log", "seed", "sources", "variables", "vocabulary")

    def __init__(
        self,
        *,
        vocabulary: LoadedVocabulary,
        capabilities: dict[int, int],
        limits: RequestLimits,
        arg: bytes,
        variables: Variables | None,
        seed: int,
    ) -> None:
        self.vocabulary = vocabulary
        #: aici.h AICI_CAP_* -> value
        self.capabilities = capabilities
        self.limits = limits
        #: None while `aici_init` runs: its result serves many requests
        self.variables = variables
        self.seed = seed
        self.log = Log(limits.log_bytes)
        self.sources: list[bytes] = [b""] * 7
        self.sources[ARG] = arg
