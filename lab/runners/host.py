"""A small host that plays the ABI of aici.h for compiled controllers, in one process and without an engine.

What the runtime does around it (processes, rows in shared memory, deadlines) has tests of its own.
"""

from __future__ import annotations

import gc
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import wasmtime
from numpy.typing import NDArray

from aicirt.contract.abi import (
    ARG,
    ARG_LOOKED,
    CAP_FOLLOW,
    CAP_LOOK,
    CAP_MAX_FORKS,
    CAP_TOP_LOGPROBS,
    FOLLOW,
    FORK,
    FOUND,
    FOUND_RESULT,
    GROUP,
    LOGITS,
    LOOK_LOGITS,
    MID_DRAFTS,
    MID_RESULT,
    NUM_SOURCES,
    PROMPT,
    ROW_ALL,
    ROW_BITMASK,
    ROW_DENSE,
    ROW_SAME,
    ROW_SPARSE,
    ROW_TOKEN,
    SAMPLE,
    SPLICE,
    STOP,
    SUSPEND,
    TOKENS,
    TOP,
)
from aicirt.vocab import VocabularyImage, build_image
from aicirt.vocab.tokenizer import Speller
from aicirt.wasm import (
    Export,
    Fiber,
    GuestExit,
    Instance,
    Limits,
    Linker,
    Program,
    Ticker,
    WasmEngine,
    host_functions,
)
from aicirt.wasm.snapshot import fork
from lab.runners.calls import CALLS
from lab.runners.compiled import code_of

ALL, BITMASK, TOKEN, SPARSE, DENSE, SAME = ROW_ALL, ROW_BITMASK, ROW_TOKEN, ROW_SPARSE, ROW_DENSE, ROW_SAME
EVERYTHING = {
    **dict.fromkeys(range(1, 11), 1),
    CAP_TOP_LOGPROBS: 64,
    CAP_MAX_FORKS: 16,
    CAP_LOOK: LOOK_LOGITS,
    CAP_FOLLOW: 1,
}

_MID = MID_RESULT.packer("size", "flags")
_TRUNCATION = MID_RESULT.packer("top_p", "top_n_sigma")
#: what a result has for itself, and not in the row to which it refers
_OF_RESULT = ("flags", "temperature", "top_logprobs", "truncation")
_FOUND = FOUND_RESULT.packer("size", "data_len")


class Vocab:
    """A vocabulary with its image; `tokenize` defaults to the longest match, which is exact for it."""

    def __init__(
        self,
        tokens: Sequence[bytes],
        *,
        special: Sequence[int] = (),
        eos: Sequence[int] = (),
        vocab_size: int | None = None,
        tokenize: Callable[[bytes], list[int]] | None = None,
        **named: int | None,
    ) -> None:
        self.tokens = list(tokens)
        self.special = frozenset(special) | frozenset(eos)
        self.eos = list(eos)
        self.named = named
        self.image = build_image(tokens, special=special, eos=eos, vocab_size=vocab_size, **named)  # type: ignore[arg-type]
        self.view = VocabularyImage(self.image)
        self.size = self.view.vocab_size
        self.text = [i for i, token in enumerate(self.tokens) if token and i not in self.special]
        spelling = [b"" if i in self.special else token for i, token in enumerate(self.tokens)]
        self.tokenize = tokenize or Speller(spelling)

    def allowed(self, permits: Callable[[bytes], bool]) -> list[int]:
        """By brute force: the tokens of text that `permits` accepts."""
        return [i for i in self.text if permits(self.tokens[i])]


def ascii_vocab() -> Vocab:
    """Single printable bytes and newline, and an end token; the longest match is exact."""
    tokens = [bytes([b]) for b in (*range(32, 127), 10)]
    return Vocab([*tokens, b"<eos>"], eos=[len(tokens)])


@dataclass
class Mid:
    """The result of mid_process; `allowed` has the tokens of a bit mask.

    A row that refers to the last one has its contents, and `same`. A short result has no `truncation`.
    """

    verb: int
    kind: int = -1
    same: bool = False
    token: int = -1
    allowed: list[int] = field(default_factory=list)
    bits: NDArray[np.uint32] | None = None
    biases: dict[int, float] = field(default_factory=dict)
    default: float = 0.0
    temperature: float = 0.0
    top_logprobs: int = 0
    truncation: tuple[float, ...] = ()
    flags: int = 0
    backtrack: int = 0
    tokens: list[int] = field(default_factory=list)
    #: FOLLOW: the name of a second model
    model: str = ""


@dataclass
class Answer:
    """The results of the callbacks of a step; None for callbacks that were not called."""

    post: int | None = None
    pre: tuple[int, int] | None = None
    #: what a suspended sequence waits for: names and versions of variables, and milliseconds
    waits: list[tuple[str, int]] = field(default_factory=list)
    wait_ms: int = 0
    mid: Mid | None = None
    children: list[Guest] = field(default_factory=list)

    @property
    def row(self) -> Mid:
        """The result of mid_process, which must have been called."""
        assert self.mid is not None
        return self.mid


class Guest:
    """A sequence: an instance of a controller, and the state behind its imports."""

    def __init__(
        self,
        program: Program,
        vocab: Vocab,
        arg: bytes | str = b"",
        *,
        prompt: Sequence[int] = (),
        capabilities: dict[int, int] | None = None,
        seq_id: int = 1,
    ) -> None:
        self.vocab = vocab
        self.capabilities = EVERYTHING if capabilities is None else capabilities
        self.seq_id = seq_id
        self.step_number = 0
        self.output = bytearray()
        self.variables: dict[bytes, tuple[int, bytes]] = {}
        self.sources: list[bytes] = [b""] * NUM_SOURCES
        self.sources[ARG] = arg.encode() if isinstance(arg, str) else arg
        self.sources[PROMPT] = np.array(prompt, "<u4").tobytes()
        self.image_address = 0
        self.tokenized: list[bytes] = []
        self._last: Mid | None = None
        self._adopt(Instance(program))
        self._start()
        self.arg_address = self.instance.call(Export.ARG)
        if program.has[Export.INIT]:
            assert self.instance.call(Export.INIT, len(self.sources[ARG])) == 0
        if program.has[Export.INIT_PROMPT]:
            assert self.instance.call(Export.INIT_PROMPT, len(prompt)) == 0

    def warm(self, most: int = 10_000) -> int:
        """Calls aici_warm while it has more to do; how often."""
        for calls in range(1, most + 1):
            value = Fiber(self.instance, Export.WARM).run()
            assert value in (0, 1)
            if not value:
                return calls
        return most

    def found(self) -> bytes:
        """Calls aici_found, after which the guest must not be called any more."""
        size, data, length = _FOUND.unpack(self.read(self.instance.call(Export.FOUND), _FOUND.size))
        assert size == _FOUND.size
        return self.read(data, length)

    def learn(self, found: bytes) -> int:
        """Calls aici_warm with what another guest has found; returns the number of calls."""
        self.sources[FOUND] = found
        calls = self.warm()
        self.sources[FOUND] = b""
        return calls

    def _start(self) -> None:
        self.instance.start()

    def _adopt(self, instance: Instance) -> None:
        self.instance = instance
        instance.owner = self
        instance.log = lambda _fd, data: self.output.extend(data)

    def step(
        self,
        tokens: Sequence[int] = (),
        *,
        backtrack: int = 0,
        sampled: bool | None = None,
        logprob: float = math.nan,
        mass: float = math.nan,
        top: Sequence[tuple[int, float]] = (),
        group: Sequence[int] | None = None,
        children: Sequence[int] = (),
    ) -> Answer:
        """Runs a step. `children` are the ids for new sequences if pre_process forks."""
        self.begin(tokens, backtrack=backtrack, sampled=sampled, logprob=logprob, mass=mass, top=top)
        answer = self.critical()
        if answer.post == STOP or (answer.pre and answer.pre[0] in (STOP, SUSPEND)):
            return answer
        if answer.pre and answer.pre[0] == FORK:
            assert len(children) == answer.pre[1] - 1, "the test must give an id for each child"
            answer.children = [self.fork(child) for child in children]
            group = [self.seq_id, *children]
            for child in answer.children:
                child.set_group(group)
        if group is not None:
            self.set_group(group)
        answer.mid = self.mid()
        return answer

    def show(self, logits: Sequence[float] = (), top: Sequence[tuple[int, float]] = ()) -> Mid:
        """Answers a look with all logits or the most likely tokens; returns the result of mid_process."""
        self.begin([], top=top, looked=True)
        self.sources[LOGITS] = np.array(logits, "<f4").tobytes()
        return self.mid()

    def begin(
        self,
        tokens: Sequence[int],
        *,
        backtrack: int = 0,
        sampled: bool | None = None,
        logprob: float = math.nan,
        mass: float = math.nan,
        top: Sequence[tuple[int, float]] = (),
        looked: bool = False,
    ) -> None:
        """Fills in the step's argument."""
        self.step_number += 1
        sampled = len(tokens) == 1 if sampled is None else sampled
        flags = sampled | 2 * (not math.isnan(logprob)) | (ARG_LOOKED if looked else 0)
        words = struct.pack(
            "<5I2f2I",
            self.seq_id,
            self.step_number,
            flags,
            backtrack,
            len(tokens),
            logprob,
            mass,
            len(top),
            1,
        )
        inline = (list(tokens) + [0] * 16)[:16]
        group = [self.seq_id] + [0] * 15
        self.instance.write_memory(self.arg_address + 4, words + struct.pack("<32I", *inline, *group))
        self.sources[TOKENS] = np.array(tokens, "<u4").tobytes()
        self.sources[GROUP] = np.array([self.seq_id], "<u4").tobytes()
        self.sources[TOP] = b"".join(struct.pack("<If", token, value) for token, value in top)

    def set_group(self, group: Sequence[int]) -> None:
        """The fork group that mid_process sees."""
        self.sources[GROUP] = np.array(group, "<u4").tobytes()
        self.instance.write_memory(self.arg_address + 36, struct.pack("<I", len(group)))
        self.instance.write_memory(self.arg_address + 104, self.sources[GROUP][:64])

    def critical(self) -> Answer:
        """post_process and pre_process, where they exist."""
        answer, has = Answer(), self.instance.program.has
        num_tokens = len(self.sources[TOKENS])
        gc.disable()  # as workers do: a collection in a host function may take longer than the guest has
        try:
            if has[Export.POST] and num_tokens:
                answer.post = struct.unpack("<2I", self.read(self.instance.call(Export.POST), 8))[1]
            if has[Export.PRE] and answer.post != STOP:
                address = self.instance.call(Export.PRE)
                size, *pre = struct.unpack("<3I", self.read(address, 12))
                answer.pre = pre[0], pre[1]
                if size == 24 and answer.pre[0] == SUSPEND:
                    waits, count, answer.wait_ms = struct.unpack("<3I", self.read(address + 12, 12))
                    for place, length, version in struct.iter_unpack("<3I", self.read(waits, 12 * count)):
                        answer.waits.append((self.read(place, length).decode(), version))
        except GuestExit:
            answer.post = STOP
        finally:
            gc.enable()
        return answer

    def mid(self) -> Mid:
        """mid_process."""
        try:
            address = self.instance.call(Export.MID)
        except GuestExit:
            return Mid(STOP)
        size, verb, kind, row, length, default, temperature, top, backtrack, ff, count, flags = _MID.unpack(
            self.read(address, _MID.size)
        )
        assert size in (_MID.size, MID_RESULT.size)
        options = self.read(address, size)[_MID.size :]
        result = Mid(
            verb,
            kind,
            default=default,
            temperature=temperature,
            top_logprobs=top,
            truncation=_TRUNCATION.unpack(options) if options else (),
            flags=flags,
            backtrack=backtrack,
            token=row if verb == FOLLOW else -1,
        )
        if verb == FOLLOW:
            result.model = bytes(self.read(ff, count)).decode()
        if verb == SPLICE or flags & MID_DRAFTS:
            result.tokens = np.frombuffer(self.read(ff, 4 * count), "<u4").tolist()
        if verb == SAMPLE and kind == SAME:
            assert self._last is not None, "a row that refers to no row"
            own = {name: getattr(result, name) for name in _OF_RESULT}
            result = replace(self._last, same=True, **own)
        elif verb == SAMPLE:
            self._read_row(result, row, length)
            self._last = result
        return result

    def _read_row(self, result: Mid, row: int, length: int) -> None:
        if result.kind == TOKEN:
            result.token = row
        elif result.kind == BITMASK:
            assert length == self.vocab.view.mask_words
            result.bits = np.frombuffer(self.read(row, 4 * length), np.uint32)
            result.allowed = self.vocab.view.tokens_of(result.bits)
        elif result.kind == SPARSE:
            pairs = struct.iter_unpack("<If", self.read(row, 8 * length))
            result.biases = dict(pairs)
        elif result.kind == DENSE:
            assert length == self.vocab.size
            result.biases = dict(enumerate(np.frombuffer(self.read(row, 4 * length), "<f4").tolist()))

    def fork(self, seq_id: int) -> Guest:
        """A copy of this sequence, as the runtime makes it; they share variables."""
        child: Guest = object.__new__(type(self))
        child.__dict__.update(self.__dict__)
        child.seq_id = seq_id
        child.output = bytearray()
        child.sources = list(self.sources)
        child._adopt(fork(self.instance)[0])
        child.instance.write_memory(child.arg_address + 4, struct.pack("<I", seq_id))
        return child

    def read(self, address: int, length: int) -> bytes:
        """A copy of guest memory."""
        return self.instance.read(address, length)

    def take_log(self) -> str:
        """Returns the output since the last call, and clears it."""
        text = self.output.decode("utf-8", "replace")
        self.output.clear()
        return text


#: limits on a guest's CPU time, which also counts time in which a hypervisor takes the core away. These tests
#: check answers, not times. Where the runtime calls a sequence late, an interrupted call here ends the guest
PATIENCE = Limits(init_ms=20_000.0, pre_ms=1000.0, mid_ms=2000.0, post_ms=1000.0)


class Host:
    """The engine and linker of a test process, with these imports of "aici"; `with host:` around guests."""

    def __init__(self, calls: Mapping[str, Callable[..., Any]] = CALLS, kind: str = "") -> None:
        """`kind`: the name of the engine's configuration, if it is not the usual one."""
        self.engine, self.kind = WasmEngine(PATIENCE), kind
        self.ticker = Ticker(self.engine)
        # the functions of tests are slow, and free of charge
        self.linker = Linker(self.engine, host_functions(calls, dict.fromkeys(calls, lambda *_: 0)))
        self.programs: list[Program] = []

    def compile(self, wasm: bytes) -> Program:
        """A program, for `Guest`."""
        code = code_of(self.engine, wasm, self.kind)
        self.programs.append(Program(self.linker, wasmtime.Module.deserialize(self.engine.wasmtime, code)))
        return self.programs[-1]

    def __enter__(self) -> Host:
        self.ticker.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self.ticker.__exit__(*exc)  # type: ignore[arg-type]
        self.ticker.close()
        gc.collect()  # guests that a test left open go before their program
        for program in self.programs:
            program.close()
        self.linker.close()
        self.engine.close()
