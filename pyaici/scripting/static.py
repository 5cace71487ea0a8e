"""Finds mistakes in a script's text that appear only when `main` runs."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

#: functions that bind names which the text does not show
_DYNAMIC = {"exec", "globals"}
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
#: what a script must await to have it carried out
_ACTIONS = {"gen", "generate", "json", "sample", "choose", "retry", "distribution", "likely"} | {
    *("fork", "gather", "mix", "wait", "sleep", "next_step")
}
#: what a JavaScript module gets as its last line: refuses a `main` that cannot return a promise
JAVASCRIPT_MAIN = (
    'if (typeof main === "function" && main.constructor.name !== "AsyncFunction" && '
    r'!/\breturn\b|=>/.test(main)) throw new TypeError("main must be asynchronous: '
    'write export async function main()");'
)
_JAVASCRIPT_FUNCTION = re.compile(r"\bfunction\s*\*?\s*main\b")


@dataclass(frozen=True, slots=True)
class Use:
    """A name that a script reads. Lines and columns count from 1."""

    name: str
    line: int
    column: int


def left_open(source: str) -> Use | None:
    """Returns the bracket that a script in Python never closes; None if there is none."""
    try:
        _parse(source)
    except SyntaxError as error:
        if found := re.fullmatch(r"'(.)' was never closed", error.msg):
            return Use(found[1], error.lineno or 1, error.offset or 1)
    except (ValueError, RecursionError, MemoryError):
        pass
    return None


def _parse(source: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about escapes in strings
        return ast.parse(source)


class PythonText:
    """The text of a script in Python. Raises SyntaxError if CPython cannot parse it."""

    def __init__(self, source: str) -> None:
        self._lines = re.split(r"\r\n|\r|\n", source)  # splitlines() would count form feeds, too
        self._tree = _parse(source)
        self._nodes = list(_evaluated(self._tree))

    def plain_main(self) -> Use | None:
        """Returns the place of a `main` that is neither asynchronous nor able to return a coroutine."""
        found = [
            node
            for node in self._tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "main"
        ]
        if not found or isinstance(found[-1], ast.AsyncFunctionDef) or found[-1].decorator_list:
            return None
        for node in ast.walk(found[-1]):
            if isinstance(node, ast.Yield | ast.YieldFrom) or (isinstance(node, ast.Return) and node.value):
                return None
        return self._use("main", found[-1])

    def unawaited(self) -> Use | None:
        """Returns the first statement that only calls an action of the library, without `await`."""
        names = {
            alias.asname or alias.name
            for node in self._nodes
            if isinstance(node, ast.ImportFrom) and node.module == "aici"
            for alias in node.names
            if alias.name in _ACTIONS or alias.name == "*"
        }
        if "*" in names:
            names |= _ACTIONS
        own = {node.name for node in self._nodes if isinstance(node, _DEFINITIONS)}
        for node in self._nodes:
            match node:
                case ast.Expr(value=ast.Call(func=ast.Name(id=name) as called)) if name in names - own:
                    return self._use(name, called)
        return None

    def unbound(self) -> list[Use]:
        """Returns the first use of each name that the script reads and binds nowhere, in the text's order.

        Those that are built in, or that `star_imports` bring, are among them. Returns none if the script may
        bind names in other ways.
        """
        bound: set[str] = set()
        used: dict[str, ast.Name] = {}
        for node in self._nodes:
            match node:
                case ast.Name(id=name, ctx=ast.Load()):
                    if name not in used or _place(node) < _place(used[name]):
                        used[name] = node
                case ast.Name(id=name) | ast.arg(arg=name):
                    bound.add(name)
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    bound.add(name)
                case ast.alias(name=name, asname=other):
                    bound.add(other or name.partition(".")[0])
                case ast.ExceptHandler(name=str(name)):
                    bound.add(name)
        if _DYNAMIC & used.keys():
            return []
        return [
            self._use(name, used[name]) for name in sorted(used.keys() - bound, key=lambda n: _place(used[n]))
        ]

    def star_imports(self) -> list[str]:
        """Returns the statements that import all names of a module."""
        return [
            f"from {node.module} import *"
            for node in self._nodes
            if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
        ]

    def _use(self, name: str, node: ast.Name | ast.FunctionDef) -> Use:
        before = self._lines[node.lineno - 1].encode()[: node.col_offset]
        return Use(name, node.lineno, len(before.decode()) + 1)


def line_of_main(source: str) -> int:
    """Returns the line of the function `main` in a script in JavaScript; 1 if it is not found."""
    found = _JAVASCRIPT_FUNCTION.search(source)
    return source.count("\n", 0, found.start()) + 1 if found else 1


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """Yields a node and all below it, except annotations, which MicroPython ignores."""
    yield node
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _evaluated(child)


def _place(node: ast.Name) -> tuple[int, int]:
    return node.lineno, node.col_offset
