"""The campaign `results` in a short form, and its detection of failures."""

from __future__ import annotations

import math
import random
import struct
from pathlib import Path

import numpy as np
import pytest

from aicirt.contract.abi import RowKind
from aicirt.contract.errors import ResultError, RuntimeFailure, SpaceError
from lab.campaigns import results
from lab.campaigns.campaign import Campaign
from lab.campaigns.script import CALLBACKS, random_script
from lab.campaigns.validating_engine import row_flaw
from lab.report import Report
from pyaici.client.results import Row

VOCAB = 40


def test_short_run_has_no_failures(tmp_path: Path) -> None:
    report = Report("results")
    campaign = Campaign(report, 3, 1500, None, tmp_path)
    results.run(campaign)
    assert not campaign.failures, [file.read_text() for file in tmp_path.glob("*.failure")]
    found = {figure.name: figure.value for figure in report.figures}
    assert found["results.results"] >= 1500 and found["results.witnesses"] >= 3
    for code in ("result", "empty_mask", "trap"):
        assert found[f"results.ended.{code}"] > 0
    assert found["results.ended.start_result"] > 0


def test_scripts_are_reproducible_and_fit() -> None:
    assert random_script(random.Random(1), 300) == random_script(random.Random(1), 300)
    for number in range(300):
        script = random_script(random.Random(number), 300)
        words = struct.unpack(f"<{len(script) // 4}I", script)
        assert sum(words[: len(CALLBACKS)]) == len(words) - len(CALLBACKS) < 8192 - len(CALLBACKS)


def test_errors_of_the_runtime_itself_are_failures(tmp_path: Path) -> None:
    table = results.Table.__new__(results.Table)
    table._campaign = campaign = Campaign(Report("results"), 1, 1, None, tmp_path)
    table._engine = type("", (), {"vocab_size": VOCAB})()
    for error in (ResultError("a verb"), SpaceError("no row")):
        table._judge(1, error)
    assert campaign.failures == 0
    table._judge(1, RuntimeFailure("internal error"))
    assert campaign.failures == 1 and "internal error" in (tmp_path / "results-1-1.failure").read_text()
    assert (tmp_path / "results-1-1.script").read_bytes() == table.script(1)


def mask(*tokens: int) -> Row:
    bits = np.zeros(2, np.uint32)
    for token in tokens:
        bits[token >> 5] |= np.uint32(1 << (token & 31))
    return Row(RowKind.BITMASK, bits)


def sparse(default: float, *pairs: tuple[int, float]) -> Row:
    tokens = np.array([token for token, _ in pairs], np.uint32)
    return Row(
        RowKind.SPARSE, default=default, tokens=tokens, bias=np.array([b for _, b in pairs], np.float32)
    )


def dense(first: float, others: float) -> Row:
    bias = np.full(VOCAB, others, np.float32)
    bias[0] = first
    return Row(RowKind.DENSE, bias=bias)


@pytest.mark.parametrize(
    "row",
    [
        mask(),
        mask(1, 41),
        Row(RowKind.TOKEN, token=VOCAB),
        Row(RowKind.ALL, temperature=math.nan),
        Row(RowKind.ALL, temperature=-1.0),
        Row(RowKind.ALL, temperature=math.inf),
        sparse(1.0, (1, 1.0)),
        sparse(0.0, (VOCAB, 1.0)),
        sparse(0.0, (1, math.inf)),
        sparse(0.0, (1, math.nan)),
        sparse(-math.inf),
        sparse(-math.inf, (1, -math.inf)),
        dense(math.nan, 0.0),
        dense(math.inf, 0.0),
        dense(-math.inf, -math.inf),
    ],
)
def test_invalid_rows_are_flaws(row: Row) -> None:
    assert row_flaw(row, VOCAB) is not None


@pytest.mark.parametrize(
    "row",
    [
        mask(39),
        Row(RowKind.TOKEN, token=VOCAB - 1),
        Row(RowKind.ALL, temperature=0.0),
        sparse(0.0),
        sparse(0.0, (1, -math.inf)),
        sparse(-math.inf, (1, -0.0)),
        dense(1.0, -math.inf),
    ],
)
def test_valid_rows_are_no_flaws(row: Row) -> None:
    assert row_flaw(row, VOCAB) is None
