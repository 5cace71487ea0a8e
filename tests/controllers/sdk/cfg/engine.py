"""The context-free engine, compiled to Wasm with probe.cpp, behind Python methods."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab.runners.probe import Probe
from pyaici.toolchain import build_controller

PROBE = Path(__file__).with_name("probe.cpp")


class Refused(Exception):
    """The engine refuses a grammar."""


@dataclass(frozen=True)
class Expr:
    """An expression in the notation of probe.cpp."""

    words: str

    def __or__(self, other: Expr) -> Expr:
        return choice(self, other)

    def __add__(self, other: Expr) -> Expr:
        return sequence(self, other)


def lit(text: str) -> Expr:
    return Expr(f"l:{text.encode().hex()}")


def regex(pattern: str) -> Expr:
    return Expr(f"r:{pattern.encode().hex()}")


def early(pattern: str) -> Expr:
    return Expr(f"e:{pattern.encode().hex()}")


def substring(text: str) -> Expr:
    return Expr(f"s:{text.encode().hex()}")


def but(pattern: str, *texts: str) -> Expr:
    return Expr("x:" + ",".join(text.encode().hex() for text in (pattern, *texts)))


def counted(least: int, most: int, pattern: str) -> Expr:
    """The texts of a pattern with so many characters; an escape of JSON is one."""
    return Expr(f"n:{least}:{most}:{pattern.encode().hex()}")


def call(rule: int) -> Expr:
    return Expr(f"c:{rule}")


def sequence(*parts: Expr) -> Expr:
    return Expr(" ".join(part.words for part in parts) + f" q:{len(parts)}") if parts else lit("")


def choice(*parts: Expr) -> Expr:
    return Expr(" ".join(part.words for part in parts) + f" a:{len(parts)}")


def repeat(part: Expr, least: int, most: int | None = None) -> Expr:
    return Expr(f"{part.words} p:{least}:{'' if most is None else most}")


@dataclass(frozen=True)
class Member:
    """A rule that is one of the parts of `any_order`."""

    rule: int
    required: bool = False
    repeats: bool = False

    def __str__(self) -> str:
        return f"{self.rule}{'!' if self.required else ''}{'*' if self.repeats else ''}"


def any_order(
    separator: str,
    *members: Member,
    least: int = 0,
    most: int | None = None,
    once: bool = False,
    ordered: bool = False,
) -> Expr:
    """Members in any order; with `once`, those that repeat count once, all together, for `least`.

    With `ordered`, required members come in their order, and others next to the required ones that are around
    them or after the last one.
    """
    number = "" if most is None else most
    flags = f"{once:d}:{ordered:d}"
    return Expr(f"{lit(separator).words} o:{least}:{number}:{flags}:{','.join(map(str, members))}")


class Engine(Probe):
    """Holds one grammar, which `make` replaces. Classes of bytes apply to grammars made later."""

    def make(
        self, *rules: Expr, ignore: Expr | None = None, longest: bool = False, anywhere: int = 0
    ) -> Engine:
        """Rule 0 is the start; the last `anywhere` ones are read anywhere. Raises Refused."""
        signs = [""] * (len(rules) - anywhere) + ["="] * anywhere
        lines = [f"{number}{signs[number]} {expr.words}" for number, expr in enumerate(rules)]
        if ignore is not None:
            lines.append(f"ignore {ignore.words}")
        data = "\n".join(lines).encode()
        if not self._call("probe_make", self._put(data), len(data), longest):
            raise Refused(self._text(self._call("probe_error")))
        return self

    def limits(
        self, *, places: int = 0, nesting: int = 0, threads: int = 0, compact_always: bool = False
    ) -> None:
        """For later calls of `make`; 0 is the default."""
        self._call("probe_limits", places, nesting, threads, compact_always)

    def can_end(self, state: int, most: int = 3000) -> bool | None:
        """Returns whether some text leads to an end; None if the search exceeds `most` steps."""
        return {0: False, 1: True, 2: None}[self._call("probe_can_end", state, most)]

    def failure(self) -> str | None:
        return self._text(self._call("probe_error")) if self._call("probe_failed") else None

    def columns(self) -> int:
        return self._number("probe_columns")

    def bytes(self) -> int:
        return self._number("probe_bytes")


def build(folder: Path) -> Path:
    return build_controller([PROBE], folder / "cfg_probe.wasm").path
