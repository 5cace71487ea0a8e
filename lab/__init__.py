"""The laboratory: benchmarks, campaigns, fuzzing, oracles, and what these share with the tests.

``python -m lab SUITE`` runs a benchmark, ``python -m lab.campaigns NAME`` a campaign, and
``python -m lab.fuzz TARGET`` a fuzz target.
"""

from __future__ import annotations

from pathlib import Path

#: the checkout
ROOT = Path(__file__).resolve().parents[1]
