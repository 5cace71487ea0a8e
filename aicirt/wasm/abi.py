"""The names and types of ABI version 1, as in aici.h."""

from __future__ import annotations

from enum import IntEnum

from aicirt.wasm.reader import FuncType

ABI_VERSION = 1
#: a module exports the marker ``aici_abi_v<version>``
MARKER = "aici_abi_v"
IMPORT_MODULE = "aici"

_NOTHING = FuncType((), ())
_RESULT = FuncType((), ("i32",))
_COUNT = FuncType(("i32",), ("i32",))


class Export(IntEnum):
    """Functions that the host calls; an index into an instance's handles."""

    ARG = 0
    INIT = 1
    INIT_PROMPT = 2
    PRE = 3
    MID = 4
    POST = 5
    #: the rewritten start section, then the reactor's own start; once per fresh instance
    START = 6
    INITIALIZE = 7
    WARM = 8


#: name and type of each function export
EXPORTS: dict[Export, tuple[str, FuncType]] = {
    Export.ARG: ("aici_arg", _RESULT),
    Export.INIT: ("aici_init", _COUNT),
    Export.INIT_PROMPT: ("aici_init_prompt", _COUNT),
    Export.PRE: ("aici_pre_process", _RESULT),
    Export.MID: ("aici_mid_process", _RESULT),
    Export.POST: ("aici_post_process", _RESULT),
    Export.START: ("__aici_rt_start", _NOTHING),
    Export.INITIALIZE: ("_initialize", _NOTHING),
    Export.WARM: ("aici_warm", _RESULT),
}
#: a module without one of these is refused
REQUIRED = (Export.ARG, Export.MID)


def _function(params: int, result: bool = True) -> FuncType:
    return FuncType(("i32",) * params, ("i32",) if result else ())


#: functions of module ``aici``
IMPORTS: dict[str, FuncType] = {
    "read": _function(4),
    "vocabulary": _function(0),
    "tokenize": _function(2),
    "var_get": _function(3),
    "var_write": _function(6),
    "capability": _function(1),
    "stop": _function(0, result=False),
    "fail": _function(2, result=False),
}
