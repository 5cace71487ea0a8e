"""The names of functions and data: those that an object defines, and the sources that may define a name."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path

from .errors import BuildError

#: numbers of the format of relocatable objects (the document Linking.md of WebAssembly's tool conventions)
_CUSTOM_SECTION, _SYMBOL_TABLE = 0, 8
_FUNCTION, _DATA, _GLOBAL, _SECTION, _TAG, _TABLE = range(6)
_LOCAL, _UNDEFINED = 0x02, 0x10


class _Reader:
    """Reads numbers and names from a part of an object."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        if end > len(data):
            raise ValueError("a part ends after the file")
        self.data, self.at, self.end = data, at, end

    def byte(self) -> int:
        if self.at >= self.end:
            raise ValueError("a part ends too early")
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def part(self) -> _Reader:
        """Returns the next part, which begins with its length, and goes on behind it."""
        size = self.number()
        start = self.at
        if start + size > self.end:
            raise ValueError("a part is longer than what contains it")
        self.at = start + size
        return _Reader(self.data, start, self.at)

    def name(self) -> str:
        part = self.part()
        return self.data[part.at : part.end].decode()


def defined_symbols(data: bytes) -> frozenset[str]:
    """Returns the names that a relocatable WebAssembly object defines for others.

    Raises:
        BuildError: `data` is not such an object.
    """
    try:
        if data[:8] != b"\0asm\1\0\0\0":
            raise ValueError("it does not begin as a module")
        file = _Reader(data, 8, len(data))
        while file.at < file.end:
            kind, section = file.byte(), file.part()
            if kind == _CUSTOM_SECTION and section.name() == "linking":
                return frozenset(_linking(section))
    except (ValueError, UnicodeDecodeError) as error:
        raise BuildError(f"not an object for Wasm: {error}") from error
    raise BuildError("not an object for Wasm: it has no symbols")


def _linking(section: _Reader) -> Iterable[str]:
    section.number()  # the version
    while section.at < section.end:
        kind, part = section.byte(), section.part()
        if kind == _SYMBOL_TABLE:
            for _ in range(part.number()):
                if (name := _symbol(part)) is not None:
                    yield name


def _symbol(part: _Reader) -> str | None:
    """Reads a symbol; returns its name if the object defines it for others."""
    kind, flags = part.byte(), part.number()
    if kind == _SECTION:
        part.number()
        return None
    if kind not in (_FUNCTION, _DATA, _GLOBAL, _TAG, _TABLE):
        raise ValueError(f"a symbol of the unknown kind {kind}")
    if kind != _DATA:
        part.number()
        if flags & _UNDEFINED and not flags & 0x40:  # the import has the name
            return None
    name = part.name()
    if kind == _DATA and not flags & _UNDEFINED:
        for _ in range(3):
            part.number()
    return None if flags & (_LOCAL | _UNDEFINED) else name


#: what precedes the name proper: of tables of types and virtual functions, guards of variables, thunks
_SPECIAL = re.compile(r"_Z(?:T[VTISC]|GV|T[hv]n?\d+_(?:n\d+_)?)")
_SUBSTITUTE = re.compile(r"S(?:[tabsiod]|[0-9A-Z]*_)")
_ABI_TAG = re.compile(r"B\d+[a-z]+\d+")
#: names of libc++ and libc++abi, and operators new and delete
_STANDARD = re.compile(r"_Z(?:N?[KVrRO]*(?:S[tabsiod]|10__cxxabiv1)|n[wa]|d[la])")
_ALLOCATION = re.compile(r"_Z(?:n[wa]|d[la])")
_ANYWHERE = ("__1", "_GLOBAL__N_1")


def is_cxx(symbol: str) -> bool:
    """Returns whether a symbol is a mangled name of C++."""
    return symbol.startswith("_Z")


def is_standard(symbol: str) -> bool:
    """Returns whether a symbol is a mangled name of C++ that its standard library defines."""
    return _STANDARD.match(_SPECIAL.sub("_Z", symbol)) is not None


@functools.cache
def identifiers(symbol: str) -> tuple[str, ...]:
    """Returns the identifiers in the qualified name of a mangled symbol: namespaces, classes, the function.

    Leaves out parameters and arguments of templates. The last one of an operator is ``operator``.
    """
    if (allocates := _ALLOCATION.match(symbol)) is not None:
        return ("operator new" if allocates[0][2] == "n" else "operator delete",)
    text = _ABI_TAG.sub("", _SPECIAL.sub("_Z", symbol))
    at, depth, found, ended = 2, 0, list[str](), False
    while at < len(text) and not ended:
        letter = text[at]
        if number := re.compile(r"\d+").match(text, at):
            at = number.end() + int(number[0])
            if depth <= 1:
                found.append(text[number.end() : at])
            ended = depth == 0
        elif substitute := _SUBSTITUTE.match(text, at):
            at = substitute.end()
        elif letter == "L":  # a literal
            at = text.find("E", at) + 1 or len(text)
        elif depth == 1 and letter in "CD" and text[at + 1 : at + 2].isdigit():
            break  # a constructor or destructor has the name of its class
        else:
            if depth <= 1 and letter.islower() and not (depth and letter in "rn"):
                found.append("operator")
                break
            depth += (letter in "NIXJF") - (letter == "E")
            ended = depth <= 0
            at += 1
    return tuple(name for name in found if name and name not in _ANYWHERE) or ("operator",)


class Texts:
    """The texts of sources and headers, in which definitions are searched."""

    def __init__(self) -> None:
        self._read = dict[Path, str]()

    def of(self, path: Path) -> str:
        """Returns the text of a file."""
        if path not in self._read:
            self._read[path] = path.read_text(errors="replace")
        return self._read[path]

    def cxx_likelihood(self, symbol: str, path: Path) -> int:
        """Returns how likely a source defines the mangled name `symbol`: 0, or more if the name is in it.

        A template that libc++ instantiates can be in another file, so its class is enough.
        """
        text, names = self.of(path), identifiers(symbol)
        if names[-1] not in text and not (is_standard(symbol) and names[0] in text):
            return 0
        last = re.escape(names[-1])
        likely = 1 + sum(name in text for name in names)
        if len(names) > 1:
            member = rf"\b{re.escape(names[-2])}(?:<[^;{{}}]*?>)?::~?{last}\b"
            likely += 4 * (re.search(member, text) is not None)
        likely += 2 * (f"{names[-1]}::" in text)
        # a definition, not a call, begins a line, and a body follows the parameters
        function = rf"(?m)^[\w(\[](?:[^\n;=#(]*[\s*&:])?{last}\s*\((?:[^;{{}}]|{{[^;{{}}]*}})*\)[\s\w]*{{"
        if names[-1] != "operator" or not is_standard(symbol):
            likely += 6 * (re.search(function, text) is not None)
        stem = path.stem.replace("_", "")
        small = [name.replace("_", "").lower() for name in names]
        if is_standard(symbol):  # the classes of an operator's parameters count, too
            small.append(symbol.replace("_", "").lower())
        return likely + 4 * any(stem in name or name in stem for name in small if len(name) > 2)

    def defines_c(self, name: str, path: Path) -> bool:
        """Returns whether a source seems to define the function or variable `name` of C."""
        text = self.of(path)
        if name not in text:
            return False
        name = re.escape(name)
        function = rf"^(?:[A-Za-z_][^\n;=]*\b)?{name}\s*\([^;]*?\{{"
        alias = rf"alias\s*\([^)]*\b{name}\s*\)"
        variable = rf"^(?!extern|#|typedef)[A-Za-z_][^\n;(]*\b{name}\s*(?:\[|=|;)"
        return re.search(rf"(?m){function}|{alias}|{variable}", text) is not None
