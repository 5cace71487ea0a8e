"""One kind of hostile controller: what it does, and what it must end with."""

from __future__ import annotations

from dataclasses import dataclass

#: what a stranger may end with that is no error
GOES_ON, STOPS = "goes on", "stops"
#: mid_process that takes too long, depending on who had the processor
TOO_LATE = "late time_limit"


@dataclass(frozen=True, slots=True)
class Stranger:
    """A row of the table in `bench.campaigns.strangers`."""

    name: str
    does: str
    #: code of the typed error, or several of which one must come; `GOES_ON` or `STOPS`
    outcome: str
    #: part of the error's message
    words: str = ""
    #: for ``bench/guests/hostile.c``
    arg: str = ""
    #: to upload instead, Wasm or its text
    module: str | bytes = ""
    #: so many requests, each with an argument of its own
    times: int = 1
    #: bytes to which the argument is filled up
    size: int = 0


def of_module(name: str, does: str, outcome: str, words: str, module: str | bytes) -> Stranger:
    """One with a module of its own, and without an argument."""
    return Stranger(name, does, outcome, words, module=module)
