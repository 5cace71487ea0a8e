"""Random arguments for ``lab/guests/puppet.c``: mostly almost valid results, and invalid calls."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Sequence
from enum import IntEnum

#: (base, offset)
Operand = tuple[int, int]


class Op(IntEnum):
    """Operations of the puppet."""

    RETURN = 0
    ANSWER = 1
    STORE = 2
    FILL = 3
    CALL = 4
    GROW = 5
    SPIN = 6
    TRAP = 7
    PRINT = 8


class Base(IntEnum):
    """Bases of operands."""

    PLAIN = 0
    ANSWER = 1
    BUFFER = 2
    END = 3
    ARG = 4
    RESULT = 5
    VOCABULARY = 6
    FIELD = 7


CALLBACKS = ("arg", "init", "prompt", "post", "pre", "mid")
#: functions that the puppet's CALL knows: the imports, exit, random_get and fd_write
_FUNCTIONS = range(11)
_ENDING = (6, 7, 8)
_READ, _TOKENIZE, _VAR_GET, _VAR_WRITE, _FD_WRITE = 0, 2, 3, 4, 10
_FLOATS = (*(0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 1e-45, -1e-45, 3.4e38, -3.4e38, math.inf, -math.inf, math.nan),)
#: NaNs that Python does not produce
_NANS = (0x7F800001, 0xFFC00000, 0xFFFFFFFF, 0x7FFFFFFF)
_STOP, _CONTINUE, _SUSPEND, _FORK, _SAMPLE, _SPLICE = range(6)
_ALL, _BITMASK, _TOKEN, _SPARSE, _DENSE, _SAME = range(6)
_STEPS = 8


def random_script(rng: random.Random, vocab_size: int) -> bytes:
    """Returns an argument: all operations of a sequence."""
    return _Writer(rng, vocab_size).script()


class _Writer:
    def __init__(self, rng: random.Random, vocab_size: int) -> None:
        self._random = rng
        self._vocab = vocab_size
        words = -(-vocab_size // 32)
        near = [
            n + d for n in (vocab_size, words, 4 * words, 4 * vocab_size, 4096, 65536) for d in (-1, 0, 1)
        ]
        powers = [(1 << bit) + d for bit in (7, 8, 15, 16, 20, 24, 28, 29, 30, 31, 32) for d in (-1, 0, 1)]
        small = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 44, 168, 300, 1000]
        self._edges = [n & 0xFFFFFFFF for n in (*small, *near, *powers)]

    def script(self) -> bytes:
        """Returns the operations of all callbacks."""
        rng = self._random
        parts: dict[str, list[int]] = {name: [] for name in CALLBACKS}
        if rng.random() < 0.05:
            parts["arg"] = self._return(self._pointer(Base.ARG, 0.7))
        for name in ("init", "prompt"):
            if rng.random() < 0.2:
                parts[name] = self._calls(0.7) + self._return(
                    (Base.PLAIN, 0 if rng.random() < 0.8 else self._edge())
                )
        # some sequences repeat one action
        habit = rng.choices(("", "suspend", "splice nothing"), (90, 5, 5))[0]
        for _ in range(_STEPS):
            parts["post"] += self._calls(0.05) + self._answer(
                [8, _CONTINUE if rng.random() < 0.97 else _STOP]
            )
            if habit == "suspend":
                parts["pre"] += self._answer([12, _SUSPEND, 0])
            else:
                parts["pre"] += self._calls(0.05) + self._pre()
            if habit == "splice nothing":
                parts["mid"] += self._answer([44, _SPLICE, *([0] * 9)])
            else:
                parts["mid"] += self._calls(0.2) + self._mid()
        words = [len(parts[name]) for name in CALLBACKS]
        for name in CALLBACKS:
            words += parts[name]
        return struct.pack(f"<{len(words)}I", *words)

    # -- results -----------------------------------------------------------------------------

    def _pre(self) -> list[int]:
        verb = self._random.choices((_CONTINUE, _SUSPEND, _FORK, _STOP), (84, 6, 8, 2))[0]
        return self._answer([12, verb, self._random.randint(0, 3)])

    def _mid(self) -> list[int]:
        """Returns a result.

        Its fields: size, verb, kind, row, len, default, temperature, top_logprobs, backtrack, ff_tokens,
        num_ff, flags, top_p, top_k, min_p, typical_p, top_n_sigma.
        """
        rng, vocab = self._random, self._vocab
        words = -(-vocab // 32)
        kind = rng.choices(
            ("all", "mask", "token", "sparse", "dense", "same", "splice", "stop"), (8, 30, 8, 14, 8, 8, 22, 2)
        )
        before: list[int] = []
        row: Operand = (Base.BUFFER, 0)
        size, flags = rng.choice((44, 48, 68)), rng.randint(0, 7)  # smaller sizes lack the last fields
        plain = [size, _SAMPLE, _ALL, row, 0, 0, 0, 0, 0, 0, 0, flags, 0, 0, 0, 0, 0]
        match kind[0]:
            case "mask":
                plain[2:5] = [_BITMASK, row, rng.choice((words, words, 4096))]
                before = self._op(Op.FILL, row, (0, 16384), (0, rng.choice((0xFF, 0xFF, 1, 0x80, 0))))
            case "token":
                plain[2:4] = [_TOKEN, (Base.PLAIN, rng.randrange(vocab))]
            case "sparse":
                count = rng.choice((0, 1, 2, 3, vocab // 64))
                for place in range(min(count, 4)):
                    before += self._op(Op.STORE, (Base.BUFFER, 8 * place), (0, rng.randrange(vocab)))
                    before += self._op(Op.STORE, (Base.BUFFER, 8 * place + 4), (0, self._float()))
                plain[2:6] = [_SPARSE, row, count, rng.choice((0, _bits(-math.inf), _bits(-0.0)))]
            case "dense":
                before = self._op(Op.FILL, row, (0, 16384), (0, rng.choice((0, 0, 1, 0xBF, 0xFF, 0x7F))))
                before += self._op(Op.STORE, (Base.BUFFER, 4 * rng.randrange(vocab)), (0, self._float()))
                plain[2:5] = [_DENSE, row, rng.choice((vocab, vocab, vocab - 1))]
            case "same":
                plain[2] = _SAME
            case "splice":
                count = rng.choice((0, 1, 2, 16, 17, 100))
                before = self._op(Op.FILL, row, (0, 16384), (0, rng.choice((0, 0, 0, 1))))
                plain[1] = _SPLICE
                plain[8:11] = [rng.choice((0, 0, 1, 2, 3, 10)), row, count]
            case "stop":
                plain[1] = _STOP
        if plain[1] == _SAMPLE and rng.random() < 0.3:
            plain[6] = self._float() if rng.random() < 0.3 else _bits(rng.choice((0.5, 1.0, -1.0, 1e-30)))
            plain[7] = rng.choice((0, 1, 64, 65, 0xFFFFFFFF))
        if plain[1] == _SAMPLE and rng.random() < 0.2:
            shares = [_bits(rng.choice((0, 0.25, 1))) for _ in range(4)]
            plain[12:17] = [shares[0], rng.choice((0, 1, 0xFFFFFFFF)), *shares[1:]]
            if rng.random() < 0.1:
                plain[rng.choice((12, 14, 15, 16))] = self._float()
        return before + self._answer(plain)

    def _answer(self, fields: Sequence[int | Operand]) -> list[int]:
        """Returns a result, sometimes with fields replaced, or at another address."""
        rng = self._random
        operands = [field if isinstance(field, tuple) else (Base.PLAIN, field) for field in fields]
        if rng.random() < 0.08:
            for _ in range(rng.randint(1, 3)):
                place = rng.randrange(len(operands))
                base = operands[place][0]
                operands[place] = self._pointer(Base(base), 0.5) if base else (Base.PLAIN, self._number())
        if rng.random() < 0.01:  # the previous answer, or an address near it
            return self._return(self._pointer(Base.ANSWER, 0.5))
        return self._op(Op.ANSWER, (len(operands),), *operands)

    def _return(self, operand: Operand) -> list[int]:
        return self._op(Op.RETURN, operand)

    # -- other actions of a callback ---------------------------------------------------------------

    def _calls(self, likely: float) -> list[int]:
        rng = self._random
        words: list[int] = []
        while rng.random() < likely:
            likely *= 0.6
            words += self._call() if rng.random() < 0.85 else self._other()
        return words

    def _call(self) -> list[int]:
        rng = self._random
        function = rng.choice(_FUNCTIONS)
        if function in _ENDING and rng.random() < 0.9:
            function = rng.choice((_READ, _TOKENIZE, _VAR_GET, _VAR_WRITE))
        usual: dict[int, list[Operand]] = {
            _READ: [
                (0, rng.randrange(8)),
                (0, self._edge()),
                (Base.BUFFER, 0),
                (0, rng.choice((4, 64, 16384))),
            ],
            _TOKENIZE: [(Base.BUFFER, 0), (0, rng.choice((0, 1, 7, 100)))],
            _VAR_GET: [(Base.BUFFER, 0), (0, rng.randrange(4)), (Base.BUFFER, 64)],
            _VAR_WRITE: [
                *((Base.BUFFER, 0), (0, rng.randrange(4)), (Base.BUFFER, 8), (0, rng.choice((0, 9, 1000)))),
                *((0, rng.randrange(3)), (0, rng.choice((0, 1, 0xFFFFFFFF)))),
            ],
            # fd, -, the parts (addresses and lengths), their number, address for the written length
            _FD_WRITE: [
                *((0, rng.choice((1, 1, 2, 0, 3))), (0, 0), (Base.BUFFER, 128)),
                *((0, rng.choice((1, 2, 1024, 1025))), (Base.BUFFER, 0)),
            ],
        }
        operands = usual.get(function, [])
        operands += [(Base.PLAIN, self._edge()) for _ in range(6 - len(operands))]
        for _ in range(rng.choice((0, 0, 1, 2))):
            operands[rng.randrange(6)] = self._pointer(Base.BUFFER, 0.3)
        return [Op.CALL, function] + [word & 0xFFFFFFFF for operand in operands for word in operand]

    def _other(self) -> list[int]:
        rng = self._random
        match rng.choices(("grow", "print", "store", "fill", "spin", "trap"), (20, 30, 30, 15, 4, 1))[0]:
            case "grow":
                return self._op(Op.GROW, (0, rng.choice((0, 1, 100, 1000, 65535, 0xFFFFFFFF))))
            case "print":
                return [Op.PRINT, rng.choice((0, 1, 100, 4095))]
            case "store":
                return self._op(Op.STORE, self._pointer(Base.ARG, 0.6), (0, self._number()))
            case "fill":
                return self._op(
                    Op.FILL, self._pointer(Base.BUFFER, 0.5), (0, self._edge()), (0, rng.randrange(256))
                )
            case "spin":
                return [Op.SPIN, rng.choice((1, 100, 1000, 30_000))]
            case _:
                return [Op.TRAP]

    # -- numbers ------------------------------------------------------------------------------------

    def _pointer(self, base: Base, near: float) -> Operand:
        """Returns an address, with probability `near` at the right place or close to it."""
        rng = self._random
        if rng.random() < near:
            return base, rng.choice((0, 0, 1, 2, 3, -1, -4, 4))
        return rng.choice(list(Base)), rng.choice((0, -1, -4, -8, -44, 4, self._edge(), self._edge()))

    def _edge(self) -> int:
        rng = self._random
        return rng.choice(self._edges) if rng.random() < 0.9 else rng.getrandbits(32)

    def _number(self) -> int:
        return self._float() if self._random.random() < 0.3 else self._edge()

    def _float(self) -> int:
        rng = self._random
        return rng.choice(_NANS) if rng.random() < 0.1 else _bits(rng.choice(_FLOATS))

    @staticmethod
    def _op(op: Op, *operands: tuple[int, ...]) -> list[int]:
        return [op, *(word & 0xFFFFFFFF for operand in operands for word in operand)]


def _bits(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])
