"""Every hostile controller has the expected outcome and affects nothing else.

Most meet the witness in a simulated daemon; the long form of the campaign has all of them in a real one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from aicirt.contract.errors import error_from_wire
from lab.campaigns import hostile, validating_engine
from lab.campaigns.campaign import Campaign
from lab.campaigns.hostile import Arena, arena
from lab.campaigns.stranger import GOES_ON, STOPS, Stranger
from lab.campaigns.strangers import STRANGERS
from lab.report import Report
from tests.simulation import World
from tests.thorough import also

#: names, or their ends, of those whose time the simulation does not count: it passes in host functions, in
#: system calls and in throwing exceptions
_COSTLY = (
    *("_print", "write_parts", "write_in_a_row", "random", "random_in_pre", "read_all", "tokenize_small"),
    *("variable_rewritten", "grows_in_a_row", "throw_storm"),
)
#: one of each other kind, to show that both kinds of daemon are alike
_ALIKE = (
    *("mid_loop", "mid_recurse", "row_outside", "fork_bomb", "slow_init"),
    *also("start_loop", "pre_above", "mid_trap", "touch_in_mid", "forks_together", "splice_nothing"),
    *also("suspend", "snapshots"),
)
#: its compilation takes 4 s of a processor. tests/pyaici/client/test_shares.py has such code, too
_LONG = ("straight_line",)


SIMULATED = [stranger for stranger in STRANGERS if not stranger.name.endswith(_COSTLY + _LONG)]
REAL = [stranger for stranger in STRANGERS if stranger.name.endswith(_COSTLY + _ALIKE + also(*_LONG))]


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest) -> Iterator[Arena]:
    """An arena. Its end raises RuntimeError if names are left in shared memory."""
    with (
        nullcontext() if request.param == "real" else World(None, hostile, validating_engine),
        arena() as made,
    ):
        yield made


simulated = pytest.mark.parametrize("place", ["simulated"], indirect=True)
real = pytest.mark.parametrize("place", ["real"], indirect=True)


def name_of(stranger: Stranger) -> str:
    return stranger.name


@simulated
@pytest.mark.parametrize("stranger", SIMULATED, ids=name_of)
def test_hostile_controller_has_the_expected_outcome_and_affects_no_other(
    place: Arena, stranger: Stranger
) -> None:
    assert place.meet(stranger).problems == []


def test_hostile_controllers_are_many_and_have_unique_names() -> None:
    names = [stranger.name for stranger in STRANGERS]
    assert len(set(names)) == len(names) >= 60
    for stranger in STRANGERS:
        assert stranger.does
        for code in hostile._outcomes(stranger.outcome) - {GOES_ON, STOPS}:
            assert error_from_wire([code, "", {}]).code == code, (
                f"{stranger.name}: there is no error {code!r}"
            )


@simulated
@pytest.mark.parametrize("where", ["start", "arg", "init", "pre", "post", "mid"])
def test_output_before_a_trap_comes_with_the_error(place: Arena, where: str) -> None:
    met = place.meet(Stranger("", "", "trap", "unreachable", f"{where} print_and_trap"))
    assert met.problems == [] and met.error is not None
    assert met.error.detail["log"] == "last words\n"


@simulated
def test_unexpected_outcome_is_a_problem(place: Arena) -> None:
    for stranger, problem in (
        (Stranger("", "", "trap", "", "mid leave 7"), "it ended with ControllerFailed"),
        (Stranger("", "", "failed", "status 8", "mid leave 7"), "status 7"),
        (Stranger("", "", "trap", "", ""), "it goes on instead of ending with trap"),
        (Stranger("", "", GOES_ON, "", "mid stop"), "it stops instead of ending with goes on"),
    ):
        (found,) = place.meet(stranger).problems
        assert problem in found


@simulated
def test_witness_with_different_answers_is_a_problem(place: Arena) -> None:
    good = place.witness.start()
    for _ in range(3):
        place.engine.step([good])
    assert place.witness.difference(good) is None
    for branch in good.live.values():
        branch.tokens = [65 if branch.tokens != [65] else 66]
    for _ in range(3):
        place.engine.step([good])
    assert "the masks of branch 0 differ" in (place.witness.difference(good) or "")
    good.free()


@simulated
def test_witness_runs_for_as_many_steps_as_strangers_need(place: Arena) -> None:
    """The witness writes 16 of its 16384 cells in each step."""
    good = place.witness.start()
    for _ in range(1100):
        place.engine.step([good])
    assert place.witness.difference(good) is None
    assert len(good.live) == 2
    good.free()


@simulated
def test_campaign_writes_failed_cases_to_files(
    place: Arena, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = Stranger("wrong", "does nothing", "trap")
    monkeypatch.setattr(
        hostile, "STRANGERS", (Stranger("right", "exits", "failed", "7", "mid leave 7"), wrong)
    )
    monkeypatch.setattr(hostile, "arena", lambda: nullcontext(place))
    report = Report("hostile")
    campaign = Campaign(report, 1, None, None, tmp_path)
    hostile.run(campaign)
    assert (campaign.done, campaign.failures) == (2, 1)
    assert "wrong (does nothing): it goes on" in (tmp_path / "hostile-1-1.failure").read_text()
    figures = {figure.name: figure.value for figure in report.figures}
    assert figures["hostile.kinds"] == 2


# the last ones, so that no simulated arena follows
@real
@pytest.mark.parametrize("stranger", REAL, ids=name_of)
def test_hostile_controller_affects_no_other_in_a_real_daemon(place: Arena, stranger: Stranger) -> None:
    assert place.meet(stranger).problems == []
