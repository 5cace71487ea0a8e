"""The imports of module "aici", as aici.h declares them, and what they access: vocabulary, output, state."""

from __future__ import annotations

import mmap
import os
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from aicirt.contract.abi import (
    ANY_VERSION,
    APPEND,
    ARG,
    ARG_HURRY,
    CALL_RESULT,
    GROUP,
    LOGITS,
    NO_TOKENS,
    NUM_SOURCES,
    SET,
    STEP_ARG,
    TOKENIZED,
    TOKENS,
    VALUE,
)
from aicirt.contract.errors import (
    CallLimitError,
    CapabilityError,
    ControllerFailed,
    ProtocolError,
    ResultError,
    TimeLimitError,
    VocabularyError,
    counted,
)
from aicirt.settings import RequestLimits
from aicirt.system.files import Descriptor
from aicirt.vocab.reader import VocabularyImage
from aicirt.vocab.tokenizer import load_tokenizer
from aicirt.wasm.host import GuestExit, HostCallable
from aicirt.wasm.snapshot import map_readonly

if TYPE_CHECKING:
    from aicirt.wasm.instance import Instance
    from aicirt.worker.owners import Owner, RequestState


_FLAGS = STEP_ARG.offsets["flags"]


class Log:
    """Output of one sequence on stdout and stderr, in the order of writing."""

    __slots__ = ("_data", "_dropped", "_limit", "_owner", "_why", "waiting")

    def __init__(self, limit: int, owner: Owner | None = None) -> None:
        """`limit`: bytes between two calls of `take`; all logs of an `owner` share a second limit."""
        self._limit = limit
        self._owner = owner
        #: the limit that the first dropped output exceeded, in words
        self._why = ""
        #: one object, since each of many short pieces would take 50 bytes more than it counts for
        self._data = bytearray()
        self._dropped = 0
        #: there is output to take; every step of every sequence reads this
        self.waiting = False

    def add_output(self, data: bytes) -> None:
        """Adds output. Output beyond the limit is counted and dropped, as the beginning matters most."""
        if not data:
            return
        self.waiting = True
        room, owner = self._limit - len(self._data), self._owner
        if owner is not None and owner.log_room < room:
            room = owner.log_room
        if len(data) > room:
            self._drop(len(data) - room)
            data = data[:room]
        if data:
            self._data += data
            if owner is not None:
                owner.log_bytes += len(data)

    def _drop(self, count: int) -> None:
        owner = self._owner
        if not self._dropped:
            self._why = f"{self._limit} per step"
            if owner is not None:
                owner.counters["log_dropped"] += 1
                if owner.log_room < self._limit - len(self._data):
                    self._why = f"{owner.log_limit} for all waiting output of owner {owner.name!r}"
        self._dropped += count

    def take_text(self) -> str:
        """Returns and removes all text since the last call; replaces bytes that are not UTF-8."""
        text = self._data.decode("utf-8", "replace")
        if self._dropped:
            text += f"\n[{counted(self._dropped, 'byte')} of output dropped: over the limit of {self._why}]\n"
        self.clear()
        return text

    def clear(self) -> None:
        """Discards all output."""
        if self._owner is not None:
            self._owner.log_bytes -= len(self._data)
        self._data.clear()
        self._dropped = 0
        self.waiting = False


class LoadedVocabulary:
    """A registered vocabulary: its image and its tokenizer."""

    __slots__ = ("_file", "_size", "_tokenize", "exact", "image", "vocab_size")

    def __init__(
        self, image_fd: int, image_bytes: int, tokenizer_fd: int, tokenizer_bytes: int, tokenizer_kind: str
    ) -> None:
        """Takes over the descriptors. Raises VocabularyError if the tokenizer cannot be loaded."""
        try:
            try:
                data = os.pread(tokenizer_fd, tokenizer_bytes, 0) if tokenizer_bytes else b""
            finally:
                os.close(tokenizer_fd)
            if len(data) != tokenizer_bytes:
                raise ProtocolError(
                    f"the tokenizer has {len(data)} bytes, but {tokenizer_bytes} were expected"
                )
            self._size = image_bytes
            self.image = VocabularyImage(memoryview(mmap.mmap(image_fd, image_bytes, prot=mmap.PROT_READ)))
            self.vocab_size = self.image.vocab_size
            tokens = [self.image.token(token) for token in range(self.vocab_size)]
            self._tokenize = load_tokenizer(tokenizer_kind, data, tokens)
        except BaseException:
            os.close(image_fd)
            raise
        self._file = Descriptor(image_fd)
        #: whether this is the model's own tokenizer, not a substitute
        self.exact = self._tokenize.exact

    def map_into(self, instance: Instance) -> int:
        """Maps the image into a guest at the first call; returns its address there."""
        for mapping in instance.mappings:  # only the image is ever mapped
            return mapping.address
        return map_readonly(instance, self._file.fd, self._size)

    @property
    def file(self) -> tuple[int, int]:
        """Descriptor and size of the image."""
        return self._file.fd, self._size

    def tokenize(self, text: bytes) -> bytes:
        """Returns the tokens of `text` as little-endian uint32."""
        return np.asarray(self._tokenize(text), dtype="<u4").tobytes()


class GuestContext:
    """State of one instance that the imports read and change."""

    __slots__ = (
        "arg_address",
        "asked",
        "capabilities",
        "group",
        "limits",
        "log",
        "logits",
        "request",
        "seed",
        "sources",
        "tokens",
        "vocabulary",
    )

    def __init__(
        self,
        vocabulary: LoadedVocabulary,
        capabilities: dict[int, int],
        limits: RequestLimits,
        arg: bytes,
        request: RequestState | None = None,
        seed: int = 0,
    ) -> None:
        self.vocabulary = vocabulary
        #: of the guest's aici_step_arg; 0 = not known yet
        self.arg_address = 0
        #: whether the guest has called an import that does not answer all requests of a client alike
        self.asked = False
        #: aici.h AICI_CAP_* -> value
        self.capabilities = capabilities
        self.limits = limits
        #: None while `aici_init` runs, as its result serves many requests
        self.request = request
        self.seed = seed
        self.log = Log(limits.log_bytes, None if request is None else request.owner)
        self.sources: list[bytes] = [b""] * NUM_SOURCES
        self.sources[ARG] = arg
        # guests seldom read these as sources: the step's argument has both inline
        #: tokens that were added in this step
        self.tokens: Sequence[int] = ()
        #: the fork group that mid_process sees
        self.group: Sequence[int] = ()
        #: returns the logits that the engine has shown for this step, float32 [V], or none of them
        self.logits: Callable[[], memoryview] | None = None

    def bind(self, instance: Instance) -> None:
        """Makes this the state of an instance, in place of any other."""
        instance.owner = self
        instance.log = self.write_log
        instance.seed = self.seed

    def fork(self, seed: int) -> GuestContext:
        """Returns the state of a fork or clone, which belongs to the same request."""
        context = GuestContext(self.vocabulary, self.capabilities, self.limits, b"", self.request, seed)
        context.sources = list(self.sources)
        context.arg_address, context.tokens = self.arg_address, self.tokens
        return context

    def without_request(self) -> GuestContext:
        """Returns the state for a call that concerns no request: without prompt, variables and argument."""
        return GuestContext(self.vocabulary, self.capabilities, self.limits, b"", seed=self.seed)

    def write_log(self, _fd: int, data: bytes) -> None:
        """Adds output of the guest, stdout and stderr alike, to the log."""
        self.log.add_output(data)

    def source(self, number: int) -> bytes | memoryview:
        """Returns the bytes of a source. Raises ResultError if the number is unknown."""
        if number == TOKENS:
            return array("I", self.tokens).tobytes()
        if number == GROUP:
            return array("I", self.group).tobytes()
        if number == LOGITS and self.logits is not None:
            return self.logits()
        if number >= len(self.sources):
            raise ResultError(f"aici_read: there is no source {number}")
        return self.sources[number]


def context_of(instance: Instance) -> GuestContext:
    """Returns the state that `GuestContext.bind` has given to an instance."""
    context: GuestContext = instance.owner
    return context


def _asking(instance: Instance) -> GuestContext:
    """Returns the context for an import whose answer depends on the request."""
    context = context_of(instance)
    context.asked = True
    return context


def read(instance: Instance, source: int, offset: int, dst: int, length: int) -> int:
    """Copies a part of a source to the guest; returns the size of the whole source in bytes."""
    data = _asking(instance).source(source)
    if offset < len(data) and length:
        instance.write_memory(dst, data[offset : offset + length])
    return len(data)


def vocabulary(instance: Instance) -> int:
    """Maps the vocabulary image, unless it is mapped already; returns its address."""
    return context_of(instance).vocabulary.map_into(instance)


def tokenize(instance: Instance, src: int, length: int) -> int:
    """Tokenizes bytes into the TOKENIZED source; returns the number of tokens, or NO_TOKENS."""
    context = _asking(instance)
    if length > context.limits.max_tokenize_bytes:
        raise ResultError(
            f"aici_tokenize: {length} bytes are over the limit of {context.limits.max_tokenize_bytes}"
        )
    try:
        tokens = context.vocabulary.tokenize(instance.read(src, length))
    except VocabularyError:
        return NO_TOKENS
    context.sources[TOKENIZED] = tokens
    return len(tokens) // 4


def var_get(instance: Instance, name: int, name_len: int, length_out: int) -> int:
    """Puts a variable's value into the VALUE source; returns its version, 0 if it is missing."""
    context = _asking(instance)
    request = context.request
    version, value = (0, b"") if request is None else request.variables.get(_name(instance, name, name_len))
    context.sources[VALUE] = value
    if length_out:
        instance.write_memory(length_out, len(value).to_bytes(4, "little"))
    return version


def var_write(
    instance: Instance, name: int, name_len: int, value: int, value_len: int, op: int, when_version: int
) -> int:
    """Sets or appends to a variable; returns its new version, 0 if `when_version` differs."""
    context = _asking(instance)
    if context.request is None:
        raise ControllerFailed(
            "aici_init cannot write variables, because many requests share its result: use aici_init_prompt"
        )
    if value_len > context.limits.max_variable_bytes:
        limit = context.limits.max_variable_bytes
        raise ResultError(f"aici_var_write: a value of {value_len} bytes is over the limit of {limit}")
    variables, key = context.request.variables, _name(instance, name, name_len)
    data = instance.read(value, value_len)
    condition = None if when_version == ANY_VERSION else when_version
    if key.startswith(CALL_RESULT):
        raise ResultError("aici_var_write: names that begin with aici.call. are of answers to calls")
    if op == SET:
        return variables.set(key, data, condition)
    if op == APPEND:
        return variables.append(key, data, condition)
    raise ResultError(f"aici_var_write: there is no operation {op}")


def call(instance: Instance, name: int, name_len: int, arguments: int, arguments_len: int) -> int:
    """Makes a call and returns its number, which CALL_RESULT precedes in the answer's name."""
    context = _asking(instance)
    if context.request is None:
        raise ControllerFailed(
            "aici_init cannot make calls, because many requests share its result: use aici_init_prompt"
        )
    calls, limit = context.request.calls, context.limits.max_call_bytes
    if calls is None:
        raise CapabilityError("nobody answers calls of this request (AICI_CAP_CALLS)")
    if arguments_len > limit:
        raise CallLimitError(
            f"the arguments of a call have {arguments_len} bytes; the limit is {limit} (max_call_bytes)",
            limit=limit,
        )
    try:
        what = _name(instance, name, name_len, "call").decode()
    except UnicodeDecodeError:
        raise ResultError("aici_call: the name is not UTF-8") from None
    return calls.make(what, instance.read(arguments, arguments_len))


def capability(instance: Instance, number: int) -> int:
    """Returns the value of a capability, 0 if it is unknown."""
    return context_of(instance).capabilities.get(number, 0)


def stop(instance: Instance) -> None:
    """Ends the sequence without an error."""
    raise GuestExit("aici_stop")


def fail(instance: Instance, message: int, length: int) -> None:
    """Ends the sequence with the guest's message."""
    context = _asking(instance)
    text = instance.read(message, min(length, context.limits.log_bytes)).decode("utf-8", "replace")
    address = context.arg_address
    if address and instance.view[address + _FLAGS] & ARG_HURRY and instance.engine.is_nearly_over(instance):
        limit, used = instance.limit_ns / 1e6, instance.used_ns / 1e6
        said = f"{text}\nthe limit is {round(limit, 1):g} ms of CPU time"
        raise TimeLimitError(said, callback=instance.callback, limit_ms=limit, used_ms=used)
    raise ControllerFailed(text or "the controller called aici_fail without a message")


def warn(instance: Instance) -> None:
    """Tells the guest in its aici_step_arg that the running call has nearly used its time."""
    if address := context_of(instance).arg_address:
        instance.view[address + _FLAGS] |= ARG_HURRY


def _name(instance: Instance, name: int, length: int, of: str = "variable") -> bytes:
    limit = _asking(instance).limits.max_variable_name
    if length > limit:
        raise ResultError(f"a {of} name of {length} bytes is over the limit of {limit}")
    return instance.read(name, length)


#: the imports by name; only the tokenizer may take long
CALLS: dict[str, HostCallable] = {
    "read": read,
    "vocabulary": vocabulary,
    "tokenize": tokenize,
    "var_get": var_get,
    "var_write": var_write,
    "call": call,
    "capability": capability,
    "stop": stop,
    "fail": fail,
}
#: their work: a call takes some time even for an empty text
TIMED: dict[str, Callable[[int, int], int]] = {"tokenize": lambda _src, length: max(length, 64)}
