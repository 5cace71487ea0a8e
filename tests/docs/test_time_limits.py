"""docs/reliability.md lists every time limit of the source, and the source has no nameless ones."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.structure import ROOT, nodes_in

CONSTANT = re.compile(r"_?[A-Z_]*(SECONDS|TIMEOUT|MAX_BETWEEN|PAUSES)[A-Z_]*|_?[A-Z_]+_(MS|NS)")
#: files with limits as fields, and the units of these
SETTINGS = ("aicirt/settings.py", "aicirt/modules/compile.py", "pyaici/server/settings.py")
FIELD = re.compile(r"[a-z][a-z_]*(_ms|_s|_seconds)")


@cache
def source() -> list[tuple[str, ast.AST]]:
    paths = [path for top in ("aicirt", "pyaici") for path in sorted((ROOT / top).rglob("*.py"))]
    trees = ((str(path.relative_to(ROOT)), ast.parse(path.read_text())) for path in paths)
    return [(name, node) for name, tree in trees for node in nodes_in(tree)]


def names_in_the_source() -> set[str]:
    found = set()
    for path, node in source():
        if isinstance(node, ast.Assign) and not isinstance(getattr(node.value, "value", None), str):
            named = [
                part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)
            ]
            found |= {name for name in named if CONSTANT.fullmatch(name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and path in SETTINGS:
            found |= {node.target.id} if FIELD.fullmatch(node.target.id) else set()
    return found


def documented() -> set[str]:
    section = (ROOT / "docs/reliability.md").read_text().partition("## Time limits and slow machines\n")[2]
    rules, _, lists = section.partition("\n## ")[0].partition("| limit |")
    assert rules and lists
    firsts = "\n".join(line.split(" | ")[0] for line in lists.splitlines() if line.startswith("| `"))
    rest = lists.partition("These are no limits")[2]
    return set(re.findall(r"`(\w+)`", firsts + rest))


def test_every_time_limit_is_in_the_table_and_the_table_names_no_others() -> None:
    assert documented() == names_in_the_source()


def test_time_limits_have_names() -> None:
    nameless = [
        f"{path}:{keyword.value.lineno}"
        for path, node in source()
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "timeout" and isinstance(keyword.value, ast.Constant) and keyword.value.value
    ]
    assert not nameless, "give the number a name, and enter it in docs/reliability.md"
