"""The binary contract with guests, ABI version 1: the numbers, names and struct layouts of aici.h.

No other Python file repeats them; tests/aicirt/contract/test_abi.py compares this file with aici.h.
Verbs and row kinds exist as plain ints too: looking up a member of an Enum takes as long as calling a guest.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate

ABI_VERSION = 1
#: a module exports the marker ``aici_abi_v<version>``
MARKER = "aici_abi_v"
IMPORT_MODULE = "aici"

# -- numbers ------------------------------------------------------------------------------


class Verb(IntEnum):
    """Verbs of a controller's results. Guests return all but `LATE` and `ERROR`, which the runtime adds."""

    STOP = 0
    CONTINUE = 1
    SUSPEND = 2
    FORK = 3
    SAMPLE = 4
    SPLICE = 5
    #: `mid_process` is not ready: the sequence sits out this step
    LATE = 6
    #: the sequence ended with an error
    ERROR = 7
    #: `mid_process` wants to see the distribution of the next token before it decides
    LOOK = 8
    #: the sequence follows another one: it gets its tokens, and takes part in sampling them
    FOLLOW = 9


class RowKind(IntEnum):
    """Encodings of a row, which describes the tokens that may be sampled."""

    ALL = 0
    BITMASK = 1
    TOKEN = 2
    SPARSE = 3
    DENSE = 4
    #: the row of the sequence's previous SAMPLE; the client resolves it, so engines never see this kind
    SAME = 5


STOP, CONTINUE, SUSPEND, FORK, SAMPLE, SPLICE, LATE, ERROR, LOOK, FOLLOW = map(int, Verb)
ROW_ALL, ROW_BITMASK, ROW_TOKEN, ROW_SPARSE, ROW_DENSE, ROW_SAME = map(int, RowKind)

#: what `CAP_LOOK` says: a controller cannot look, gets lists of the most likely tokens, or all logits as well
LOOK_NEVER, LOOK_LISTS, LOOK_LOGITS = 0, 1, 2
#: flags of aici_mid_result
MID_HOLD_END, MID_SKIP_PRE, MID_SKIP_POST, MID_DRAFTS, MID_OWN = 1, 2, 4, 8, 16
MID_FLAGS = MID_HOLD_END | MID_SKIP_PRE | MID_SKIP_POST | MID_DRAFTS | MID_OWN
#: most bytes of the name of a second model (FOLLOW)
MAX_MODEL_NAME = 64
#: flags of aici_step_arg
ARG_SAMPLED, ARG_HAS_LOGPROB, ARG_HURRY, ARG_LOOKED = 1, 2, 4, 8
#: the temperature in aici_mid_result that means greedy sampling; 0 means the request's own temperature
GREEDY = -1.0

#: capabilities of the engine
CAP_FORK, CAP_BACKTRACK, CAP_FF_TOKENS, CAP_SUSPEND, CAP_LOGPROBS, CAP_TOP_LOGPROBS, CAP_DENSE = range(1, 8)
#: capabilities that the runtime adds
CAP_TOKENIZER, CAP_MAX_FORKS = 8, 9
#: another capability of the engine
CAP_HOLD_END = 10
#: a capability of the request: somebody answers calls
CAP_CALLS = 11
#: other capabilities of the engine; CAP_LOOK is LOOK_NEVER, LOOK_LISTS or LOOK_LOGITS
CAP_LOOK, CAP_FOLLOW, CAP_DRAFTS = 12, 13, 14
#: most drafts of a result for any engine, which keeps the logits after each: 40 MB with 150 000 tokens
MAX_DRAFTS = 64

#: sources of aici_read
ARG, PROMPT, TOKENS, GROUP, TOP, VALUE, TOKENIZED, FOUND, LOGITS = range(9)
NUM_SOURCES = 9
#: result of aici_tokenize if the vocabulary cannot spell the bytes
NO_TOKENS = 0xFFFFFFFF
#: operations of aici_var_write, and the version that matches any
SET, APPEND = 0, 1
#: names of the variables that have the answers to calls, with the call's number behind: only the runtime
#: writes them
CALL_RESULT = b"aici.call."
#: name of the variable that says that a sequence follows another one, with its number behind
FOLLOWS = b"aici.follows."
#: calls that everybody may make: what other calls there are; the name of the own run; a message to another
#: run of the same owner; the next message to the own run
LIST_CALLS, OWN_NAME, SEND, RECEIVE = "aici.calls", "aici.run", "aici.send", "aici.receive"
ANY_VERSION = 0xFFFFFFFF

# -- structs ------------------------------------------------------------------------------


class CStruct:
    """A struct of aici.h: little-endian fields of 4 bytes, without padding."""

    def __init__(self, **fields: str) -> None:
        """Maps each field, in order, to its format as in `struct`, such as "I", "f" or "16I"."""
        sizes = [struct.calcsize(f"<{form}") for form in fields.values()]
        self.fields = fields
        self.size = sum(sizes)
        #: bytes from the beginning of the struct to each field
        self.offsets = dict(zip(fields, accumulate([0, *sizes]), strict=False))

    def packer(self, first: str, last: str) -> struct.Struct:
        """Returns a `struct.Struct` that reads and writes the fields from `first` to `last`."""
        names = list(self.fields)
        some = names[names.index(first) : names.index(last) + 1]
        return struct.Struct("<" + "".join(self.fields[name] for name in some))


INLINE_TOKENS = INLINE_GROUP = 16
STEP_ARG = CStruct(
    size="I",
    seq_id="I",
    step="I",
    flags="I",
    backtrack="I",
    num_tokens="I",
    logprob="f",
    allowed_mass="f",
    num_top="I",
    num_group="I",
    tokens=f"{INLINE_TOKENS}I",
    group=f"{INLINE_GROUP}I",
)
PRE_RESULT = CStruct(size="I", verb="I", num_forks="I", waits="I", num_waits="I", wait_ms="I")
#: what a suspended sequence waits for: a variable with a later version than this
WAIT = CStruct(name="I", name_len="I", version="I")
POST_RESULT = CStruct(size="I", verb="I")
FOUND_RESULT = CStruct(size="I", data="I", data_len="I")
MID_RESULT = CStruct(
    size="I",
    verb="I",
    row_kind="I",
    row="I",
    row_len="I",
    row_default="f",
    temperature="f",
    top_logprobs="I",
    backtrack="I",
    ff_tokens="I",
    num_ff_tokens="I",
    flags="I",
    top_p="f",
    top_k="I",
    min_p="f",
    typical_p="f",
    top_n_sigma="f",
)
#: an entry of a SPARSE row, and of the source TOP
BIAS = CStruct(token="I", bias="f")
TOP_ENTRY = CStruct(token="I", logprob="f")

# -- functions ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FuncType:
    """The type of a WebAssembly function."""

    params: tuple[str, ...]
    results: tuple[str, ...]

    def __str__(self) -> str:
        return f"({', '.join(self.params)}) -> ({', '.join(self.results)})"


_NOTHING = FuncType((), ())
_RESULT = FuncType((), ("i32",))
_COUNT = FuncType(("i32",), ("i32",))


class Export(IntEnum):
    """Functions that the host calls. The values index an instance's handles."""

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
    FOUND = 9


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
    Export.FOUND: ("aici_found", _RESULT),
}
#: a module that lacks one of these is refused
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
    "call": _function(4),
    "capability": _function(1),
    "stop": _function(0, result=False),
    "fail": _function(2, result=False),
}

#: the other module from which a controller may import: WASI preview 1
WASI = "wasi_snapshot_preview1"
#: parameters of every function: i = i32, I = i64; all return an i32 except proc_exit
WASI_SIGNATURES = {
    "args_get": "ii",
    "args_sizes_get": "ii",
    "environ_get": "ii",
    "environ_sizes_get": "ii",
    "clock_res_get": "ii",
    "clock_time_get": "iIi",
    "fd_advise": "iIIi",
    "fd_allocate": "iII",
    "fd_close": "i",
    "fd_datasync": "i",
    "fd_fdstat_get": "ii",
    "fd_fdstat_set_flags": "ii",
    "fd_fdstat_set_rights": "iII",
    "fd_filestat_get": "ii",
    "fd_filestat_set_size": "iI",
    "fd_filestat_set_times": "iIIi",
    "fd_pread": "iiiIi",
    "fd_prestat_get": "ii",
    "fd_prestat_dir_name": "iii",
    "fd_pwrite": "iiiIi",
    "fd_read": "iiii",
    "fd_readdir": "iiiIi",
    "fd_renumber": "ii",
    "fd_seek": "iIii",
    "fd_sync": "i",
    "fd_tell": "ii",
    "fd_write": "iiii",
    "path_create_directory": "iii",
    "path_filestat_get": "iiiii",
    "path_filestat_set_times": "iiiiIIi",
    "path_link": "iiiiiii",
    "path_open": "iiiiiIIii",
    "path_readlink": "iiiiii",
    "path_remove_directory": "iii",
    "path_rename": "iiiiii",
    "path_symlink": "iiiii",
    "path_unlink_file": "iii",
    "poll_oneoff": "iiii",
    "proc_exit": "i",
    "proc_raise": "i",
    "sched_yield": "",
    "random_get": "ii",
    "sock_accept": "iii",
    "sock_recv": "iiiiii",
    "sock_send": "iiiii",
    "sock_shutdown": "ii",
}


def wasi_type(name: str) -> FuncType:
    """Returns the type of a function of WASI preview 1."""
    params = tuple("i64" if c == "I" else "i32" for c in WASI_SIGNATURES[name])
    return FuncType(params, () if name == "proc_exit" else ("i32",))


def known_imports() -> dict[tuple[str, str], FuncType]:
    """Returns the type of every function that a controller may import, by (module, name)."""
    known = {(IMPORT_MODULE, name): kind for name, kind in IMPORTS.items()}
    known.update({(WASI, name): wasi_type(name) for name in WASI_SIGNATURES})
    return known
