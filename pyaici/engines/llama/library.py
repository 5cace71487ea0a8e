"""llama.cpp as a shared library: the declarations that the engine needs, and checks that they fit.

The package xllamacpp contains llama.cpp in one file that exports its C interface. The interface changes
within days, and structs are passed by value, so a wrong declaration would corrupt memory silently. Loading
therefore checks the layout of every struct against the library itself.

Source: llama.h of the llama.cpp repository, as of 2026-10-10.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import platform
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from pyaici.toolchain.sdk import install_command

#: the package whose library is tested, and its versions
PACKAGE = "xllamacpp"
TESTED = ("2026.10.11549",)
#: what `pip install` needs
REQUIREMENT = f"{PACKAGE}=={TESTED[-1]}"
#: the library's limit of sequences in a context, a constant of its source
MAX_SEQUENCES = 256
#: what the processor must have for the package's library, which is built for it without a fallback
_CPU_FLAGS = ("avx2", "fma", "f16c", "bmi2")

_POINTER, _INT, _UINT, _FLOAT = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32, ctypes.c_float
_BOOL, _SIZE, _TEXT = ctypes.c_bool, ctypes.c_size_t, ctypes.c_char_p


def _of_kind(kind: Any, names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names.split()]


class ModelParams(ctypes.Structure):
    """llama_model_params."""

    _fields_ = (
        *_of_kind(_POINTER, "devices tensor_buft_overrides"),
        *_of_kind(_INT, "n_gpu_layers split_mode load_mode lazy_mode main_gpu"),
        *_of_kind(_POINTER, "tensor_split progress_callback progress_callback_user_data kv_overrides"),
        *_of_kind(_BOOL, "vocab_only check_tensors use_extra_bufts no_host no_alloc load_mtp"),
    )


class ContextParams(ctypes.Structure):
    """llama_context_params."""

    _fields_ = (
        *_of_kind(_UINT, "n_ctx n_batch n_ubatch n_seq_max n_rs_seq n_outputs_max n_outputs_max_per_seq"),
        *_of_kind(_INT, "n_threads n_threads_batch ctx_type rope_scaling_type pooling_type"),
        *_of_kind(_INT, "attention_type flash_attn_type"),
        *_of_kind(_FLOAT, "rope_freq_base rope_freq_scale"),
        *_of_kind(_FLOAT, "yarn_ext_factor yarn_attn_factor yarn_beta_fast yarn_beta_slow"),
        ("yarn_orig_ctx", _UINT),
        ("defrag_thold", _FLOAT),
        *_of_kind(_POINTER, "cb_eval cb_eval_user_data"),
        *_of_kind(_INT, "type_k type_v"),
        ("moe_cache_size", _SIZE),
        *_of_kind(_POINTER, "abort_callback abort_callback_data"),
        *_of_kind(_BOOL, "embeddings offload_kqv no_perf op_offload swa_full kv_unified"),
        ("samplers", _POINTER),
        ("n_samplers", _SIZE),
        ("ctx_other", _POINTER),
    )


class Batch(ctypes.Structure):
    """llama_batch."""

    _fields_ = (("n_tokens", _INT), *_of_kind(_POINTER, "token embd pos n_seq_id seq_id logits"))


_LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, _TEXT, _POINTER)
_KINDS = {
    "v": None,
    "s": _TEXT,
    "p": _POINTER,
    "i": _INT,
    "u": _UINT,
    "b": _BOOL,
    "z": _SIZE,
    "L": _LOG,
    "M": ModelParams,
    "C": ContextParams,
    "B": Batch,
}
#: name:types, the type of the result first
_SIGNATURES = """
backend_init:v log_set:vLp model_default_params:M context_default_params:C
model_load_from_file:psM model_free:vp init_from_model:ppC free:vp model_get_vocab:pp
model_n_ctx_train:ip model_n_embd:ip model_n_layer:ip model_n_head:ip model_n_head_kv:ip
model_n_swa:ip model_rope_type:ip model_has_encoder:bp model_is_recurrent:bp model_is_hybrid:bp
model_is_diffusion:bp n_ctx:up n_ctx_seq:up get_memory:pp
memory_seq_rm:bpiii memory_seq_cp:vpiiii memory_seq_pos_max:ipi decode:ipB get_logits:pp
supports_gpu_offload:b vocab_n_tokens:ip tokenize:ipsipibb token_to_piece:ipisiib
"""
#: defaults of the structs, which the library returns; all of them at the right place mean the same layout
_MODEL_DEFAULTS = {
    "n_gpu_layers": -1,
    "split_mode": 1,
    "load_mode": -1,
    "main_gpu": 0,
    "kv_overrides": None,
    "vocab_only": False,
    "use_extra_bufts": True,
    "no_alloc": False,
}
_CONTEXT_DEFAULTS = {
    "n_ctx": 512,
    "n_batch": 2048,
    "n_ubatch": 512,
    "n_seq_max": 1,
    "n_outputs_max_per_seq": 1,
    "pooling_type": -1,
    "attention_type": -1,
    "flash_attn_type": -1,
    "yarn_ext_factor": -1.0,
    "defrag_thold": -1.0,
    "type_k": 1,
    "type_v": 1,
    "moe_cache_size": 0,
    "offload_kqv": True,
    "op_offload": True,
    "swa_full": True,
    "kv_unified": False,
    "ctx_other": None,
}


class LibraryError(ValueError):
    """llama.cpp is missing, or is not the one that the engine knows."""


class Library:
    """The functions of a llama.cpp library, without their prefix `llama_`.

    Calls release the interpreter's lock, so masks are computed while the model runs.
    """

    def __init__(self, path: Path) -> None:
        """Loads and checks the library. Raises LibraryError."""
        self.path = path
        #: the library's last messages in each thread, which explain a failure
        self._messages = threading.local()
        os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # an abort would start a debugger
        try:
            self._library = ctypes.CDLL(str(path))
        except OSError as error:
            raise LibraryError(f"cannot load {path}: {error}{_remedy(str(error))}") from None
        for line in _SIGNATURES.split():
            name, kinds = line.split(":")
            try:
                function = getattr(self._library, f"llama_{name}")
            except AttributeError:
                raise LibraryError(
                    f"{path} has no function llama_{name}: it is not the llama.cpp that this engine knows"
                    f" (that of {REQUIREMENT})"
                ) from None
            function.restype, function.argtypes = _KINDS[kinds[0]], [_KINDS[kind] for kind in kinds[1:]]
            setattr(self, name, function)
        self._log = _LOG(self._keep_message)  # the library keeps the pointer
        self.log_set(self._log, None)
        self.backend_init()
        _check_layout(self._library, "model_default_params", ModelParams, _MODEL_DEFAULTS, path)
        _check_layout(self._library, "context_default_params", ContextParams, _CONTEXT_DEFAULTS, path)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)  # for type checkers: the functions are attributes of each object

    def _keep_message(self, level: int, text: bytes, data: Any) -> None:
        if level >= 3 and text:  # warnings and errors, and the continued lines of both
            self._of_thread().append(text.decode("utf-8", "replace").strip())

    def _of_thread(self) -> deque[str]:
        found: deque[str] = self._messages.__dict__.setdefault("last", deque(maxlen=8))
        return found

    @contextmanager
    def explained(self) -> Iterator[list[str]]:
        """Yields a list that has, after the `with` body, the library's warnings and errors in it."""
        self.log_set(self._log, None)  # another object for the same library may have set its own
        self.reasons()
        found: list[str] = []
        try:
            yield found
        finally:
            found += self.reasons()

    def reasons(self) -> list[str]:
        """Returns the library's last warnings and errors in this thread, and forgets them."""
        messages = self._of_thread()
        found = [message for message in messages if message.strip(". \n")]
        messages.clear()
        return found


def _remedy(error: str) -> str:
    if "libgomp" in error:
        return "; install the OpenMP runtime of GCC, on Debian and Ubuntu: apt install libgomp1"
    return ""


def _check_layout(
    library: ctypes.CDLL, name: str, kind: type[ctypes.Structure], defaults: dict[str, Any], path: Path
) -> None:
    """Raises LibraryError unless the library's struct has the layout that is declared here."""
    # On x86-64 the caller passes a hidden pointer to the result, so that its exact extent can be seen. This
    # comes first: ctypes would give a larger struct too little room.
    if platform.machine() in ("x86_64", "AMD64"):
        extent = _extent(getattr(ctypes.CDLL(str(path)), f"llama_{name}"))
        last = max(getattr(kind, field[0]).offset + getattr(kind, field[0]).size for field in kind._fields_)
        if not last <= extent <= ctypes.sizeof(kind):
            raise _other_version(path, name, f"the struct has {extent} bytes instead of {last}")
    found = getattr(library, f"llama_{name}")()
    wrong = [
        f"{key} is {getattr(found, key)}" for key, value in defaults.items() if getattr(found, key) != value
    ]
    if wrong:
        raise _other_version(path, name, ", ".join(wrong[:3]))


def _other_version(path: Path, name: str, problem: str) -> LibraryError:
    return LibraryError(
        f"{path} is another version of llama.cpp than this engine knows ({problem} in llama_{name}); install "
        f"the tested one: pip install {REQUIREMENT}"
    )


def _extent(function: Any) -> int:
    """Returns how many bytes of its result a function writes."""
    function.restype, function.argtypes = _POINTER, [_POINTER]
    room = 4096
    filled = [(ctypes.c_uint8 * room)(*[byte] * room) for byte in (0xAA, 0x55)]
    for buffer in filled:
        function(ctypes.byref(buffer))
    written = [at for at in range(room) if filled[0][at] == filled[1][at]]
    return written[-1] + 1 if written else 0


@cache
def load_library(path: Path | None = None) -> Library:
    """Returns the library: that of the package xllamacpp, or the file `path`.

    Raises LibraryError if it is missing or of a version that is not known, or if the processor is too old
    for the package's library.
    """
    if path is not None:
        if not path.is_file():
            raise LibraryError(f"there is no llama.cpp library {path}")
        return Library(path)
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise LibraryError(
            f"the engine for GGUF models is missing: {install_command('llama')} ({REQUIREMENT})"
        )
    version = importlib.metadata.version(PACKAGE)
    if version not in TESTED:
        raise LibraryError(
            f"{PACKAGE} {version} is not a version that this engine knows: pip install {REQUIREMENT}"
        )
    missing = _missing_flags()
    if missing:
        raise LibraryError(
            f"this processor lacks {', '.join(missing)}, which the llama.cpp of {PACKAGE} needs; build "
            "llama.cpp for it and pass the library: --llama-library PATH (in Python: llama_library)"
        )
    return Library(Path(spec.origin).with_name(f"{PACKAGE}.abi3.so"))


def _missing_flags() -> list[str]:
    """Returns the processor's missing features; none if they are unknown."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return []
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            flags = line.split()
            return [flag for flag in _CPU_FLAGS if flag not in flags]
    return []
