"""Measures how much there is to understand: files, lines, circles, long functions and common names.

`LIMITS` are upper bounds that may only fall: lower one together with the change that makes it possible.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache

from tests.structure import ROOT, files, imported, modules, statements_in

LIMITS = {
    "files of Python": 333,
    "lines of Python": 70_282,
    "files of the SDK": 110,
    "files of Python under 60 lines": 55,
    "circles of files": 0,
    "files in circles": 0,
    "functions over 60 lines": 0,
    "names defined more than five times": 25,
    "names with MOST or LEAST": 0,
}
#: lines from which a file, or a function, counts as long
_LINES = 60
#: definitions of the same name
_MANY = 5
#: names of constants in Python, C++ and C
_MOST = re.compile(r"\b(?:_?(?:MOST|LEAST)_[A-Z0-9_]+|k(?:Most|Least)\w+)\b")


def circles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Returns the sets of names that reach each other, of more than one name, each sorted."""
    found, stack = [], list[str]()
    index, low = dict[str, int](), dict[str, int]()

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(edges.get(name, ())):
            if other not in index:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == index[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for name in edges:
        if name not in index:
            visit(name)
    return found


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for node in statements_in(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node


@cache
def measures() -> dict[str, int]:
    """Returns the present values of what `LIMITS` bounds. Imports for type checkers count like others."""
    texts = {path: (ROOT / path).read_text() for path in modules().values()}
    lines = {path: text.count("\n") for path, text in texts.items()}
    defined, long = Counter[str](), 0
    for text in texts.values():
        for node in _functions(ast.parse(text)):
            if not node.name.startswith("__"):
                defined[node.name] += 1
            if not isinstance(node, ast.ClassDef):
                long += (node.end_lineno or 0) - node.lineno >= _LINES
    sdk = [path for path in files("controllers/sdk/*") if path.suffix in (".hpp", ".cpp", ".h", ".c")]
    found = circles({name: imported(path) - {name} for name, path in modules().items()})
    most = {name for text in texts.values() for name in _MOST.findall(text)}
    for path in sdk:
        most |= set(_MOST.findall((ROOT / path).read_text()))
    return {
        "files of Python": len(texts),
        "lines of Python": sum(lines.values()),
        "files of the SDK": len(sdk),
        "files of Python under 60 lines": sum(n < _LINES for n in lines.values()),
        "circles of files": len(found),
        "files in circles": sum(map(len, found)),
        "functions over 60 lines": long,
        "names defined more than five times": sum(n > _MANY for n in defined.values()),
        "names with MOST or LEAST": len(most),
    }


def report() -> Iterator[str]:
    """Yields a line for each measure, with its limit."""
    for name, value in measures().items():
        yield f"{name:36} {value:6} (at most {LIMITS[name]})"
