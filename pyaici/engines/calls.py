"""The controller that a request names to an engine in another process: the keys that all such engines read.

The keys begin with `PREFIX`. An engine adds keys of its own for what only it can do.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from aicirt.contract.owners import ANONYMOUS
from pyaici.scripting.script import InterpreterMissingError, read_request

#: environment variable: with 1, clients may name the owner of their requests
TRUST_OWNERS = "AICI_TRUST_OWNERS"
#: prefix of all AICI keys
PREFIX = "aici_"
#: `Call.calls` of a request that may make the calls that the operator offers to all
OPERATOR = "operator"
#: the keys that every engine reads
KEYS = ("aici_controller", "aici_arg", "aici_script", "aici_owner")


@dataclass(frozen=True, slots=True)
class Call:
    """The controller that a request names, its argument and its owner."""

    #: a bundled controller's name, or the id or tag of a module that was uploaded
    controller: str
    #: the controller's argument
    arg: str = ""
    #: owner of the request, whose limits apply
    owner: str = ANONYMOUS
    #: who answers the controller's calls: the token of an offer, `OPERATOR` for the operator's tools, or ""
    calls: str = ""
    #: under which other runs of the owner send it messages
    name: str = ""


def read_call(args: Mapping[str, Any], ours: Collection[str], keys: Collection[str] = KEYS) -> Call:
    """Reads the keys of a request that all engines have.

    `ours`: the keys in `args` that begin with `PREFIX`, at least one. `keys`: those that the engine knows.
    Raises ValueError for unknown keys and invalid values.
    """
    for key in ours:
        if key not in keys:
            meant = difflib.get_close_matches(key, keys, n=1)
            hint = f"did you mean {meant[0]}?" if meant else f"the keys are {', '.join(keys)}"
            raise ValueError(f"the request has the unknown key {key}: {hint}")
    controller, arg = _controlled(args, next(iter(ours)))
    owner = args.get("aici_owner")
    if owner is not None and (not isinstance(owner, str) or not owner):
        raise ValueError(f"aici_owner is {owner!r}; it must be the name of an owner")
    if owner is not None and os.environ.get(TRUST_OWNERS) != "1":
        raise ValueError(
            "aici_owner is refused, since any client could name any owner: if only a server that knows "
            f"its users reaches this engine, start the engine with {TRUST_OWNERS}=1"
        )
    calls = args.get("aici_calls", "")
    if calls is True or (isinstance(calls, str) and calls.lower() in ("true", "1")):
        calls = OPERATOR
    if not isinstance(calls, str):
        raise ValueError(f"aici_calls is {calls!r}; it must be true, or the token of an offer of calls")
    name = args.get("aici_name", "")
    if not isinstance(name, str) or (name and calls not in ("", OPERATOR)):
        raise ValueError(
            f"aici_name is {name!r}; it must be the name of a run whose aici_calls is true or missing"
        )
    return Call(controller, arg, owner or ANONYMOUS, calls, name)


def _controlled(args: Mapping[str, Any], first: str) -> tuple[str, str]:
    """Returns the controller and its argument; for a script, its interpreter and the argument that runs it.

    `first`: one of our keys in the request. Raises ValueError.
    """
    if (script := args.get("aici_script")) is not None:
        for other in ("aici_controller", "aici_arg"):
            if args.get(other) is not None:
                raise ValueError(
                    f"aici_script and {other} exclude each other: the script is the controller, and "
                    "its argument is the member arg of aici_script"
                )
        try:
            return read_request(script)
        except (ValueError, InterpreterMissingError) as error:
            raise ValueError(f"aici_script: {error}") from None
    controller = args.get("aici_controller")
    if not isinstance(controller, str) or not controller:
        raise ValueError(
            "aici_controller must be a bundled controller's name, or the id or tag of an uploaded one: "
            + (
                f"it is missing, but the request has {first}"
                if controller is None
                else f"it is {controller!r}"
            )
        )
    return controller, _argument_text(args.get("aici_arg", ""))


def _argument_text(arg: Any) -> str:
    """Returns a text as it is, and other values as JSON. Raises ValueError for values without JSON."""
    if isinstance(arg, str):
        return arg
    try:
        return json.dumps(arg, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"aici_arg must be a text or a JSON value: {error}") from None
