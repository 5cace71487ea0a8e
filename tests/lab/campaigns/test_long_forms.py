"""Campaigns in a long form, with `scripts/test.sh --thorough`; the other files here have short forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.campaigns.__main__ import campaigns, main

#: options of each campaign, for some minutes. `vllm` needs another environment, and
#: tests/controllers/exactness has the cases of `exactness`
LONG = {
    "faults": "--count 300",
    "hostile": "",
    "modules": "--count 20000",
    "results": "--count 20000",
    "scarcity": "",
    "server": "--seconds 240",
    "soak": "--seconds 300",
    "tenants": "--seconds 300",
}


def test_every_campaign_has_a_long_form() -> None:
    assert {*LONG, "exactness", "vllm"} == campaigns().keys()


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", LONG)
def test_long_form_has_no_failures(name: str, tmp_path: Path) -> None:
    status = main([name, *LONG[name].split(), "--out", str(tmp_path)])
    assert status == 0, [path.read_text() for path in (tmp_path / "failures").glob("*")]
