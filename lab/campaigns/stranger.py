"""A kind of hostile controller: its misdeed and its expected outcome."""

from __future__ import annotations

from dataclasses import dataclass

#: outcomes without an error
GOES_ON, STOPS = "goes on", "stops"
#: words of an error beyond the time of the critical path, which depends on the pace of the machine
CRITICAL = "each step adds {pre_ms:g} ms for aici_pre_process and {post_ms:g} ms for aici_post_process"


@dataclass(frozen=True, slots=True)
class Stranger:
    """A row of the table in `lab.campaigns.strangers`."""

    name: str
    does: str
    #: expected outcome: the code of a typed error, `GOES_ON` or `STOPS`; or several of these
    outcome: str
    #: part of the error's message, with names of `aicirt.settings.Limits` in braces
    words: str = ""
    #: argument for ``lab/guests/hostile.c``
    arg: str = ""
    #: module to upload instead, Wasm or its text
    module: str | bytes = ""
    #: number of requests, each with a different argument
    times: int = 1
    #: bytes to which the argument is padded
    size: int = 0


def of_module(name: str, does: str, outcome: str, words: str, module: str | bytes) -> Stranger:
    """Returns a hostile controller with a separate module and without an argument."""
    return Stranger(name, does, outcome, words, module=module)
