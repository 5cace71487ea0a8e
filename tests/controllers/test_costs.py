"""No start and no mask costs more than before, in fuel; better ones must be committed."""

from __future__ import annotations

from tests.controllers.costs import COSTS, measure


def test_costs_are_those_of_the_committed_file() -> None:
    COSTS.check(measure())
