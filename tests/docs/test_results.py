"""The guide lists the attributes of results."""

from __future__ import annotations

import re

import pytest

from pyaici.engines.engine import GenerationResult
from pyaici.testing import Transcript

from .blocks import ROOT


@pytest.mark.parametrize(("column", "kind"), [(0, GenerationResult), (1, Transcript)])
def test_the_table_of_results_has_their_attributes(column: int, kind: type) -> None:
    page = (ROOT / "docs" / "guide" / "script_reference.md").read_text()
    table = page.partition("\n## Results\n")[2].partition("\n\n- ")[0]
    rows = [row.split("|")[1:-1] for row in table.splitlines() if row.startswith("| ")][1:]
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row[column])}
    assert listed == {name for name in dir(kind) if not name.startswith("_")}
