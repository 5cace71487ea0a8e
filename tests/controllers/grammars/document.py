"""Examples of docs/grammars.md: grammars, and the table of texts below each."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[3] / "docs" / "grammars.md").read_text()
_TABLE = r"\| accepted \| rejected \|\n\|---\|---\|\n((?:\|[^\n]*\|\n)+)"


def examples(language: str) -> list[tuple[str, list[str], list[str]]]:
    """Returns grammar, accepted and rejected texts of each block of the language with a table below it."""
    found = re.findall(rf"```{language}\n(.*?)```\n\n{_TABLE}", PAGE, re.DOTALL)
    assert found and len(found) == PAGE.count(f"```{language}\n"), "every grammar has its table"
    return [(grammar, *_columns(table)) for grammar, table in found]


def _columns(table: str) -> tuple[list[str], list[str]]:
    columns: tuple[list[str], list[str]] = ([], [])
    for line in table.splitlines():
        for cell, column in zip(re.split(r"(?<!\\)\|", line)[1:-1], columns, strict=True):
            if cell.strip():
                column.append(cell.strip().strip("`").replace("\\|", "|").replace("↵", "\n"))
    return columns
