"""Character-prefix completion: draws texts that begin with given bytes from the model's distribution.

`Session.tree` returns the covers of a prefix. The samplers `sample_exact`, `sample_enumerated`, `sample_pcas`
and `sample_healed` each draw a cover from a tree, and return a `Cover` and a `Certificate`. After the cover,
generation continues with ordinary sampling. docs/cpc.md has the definitions.
"""

from __future__ import annotations

from pyaici.cpc.samplers import (
    Certificate,
    enumerate_covers,
    most_likely,
    sample_enumerated,
    sample_exact,
    sample_healed,
    sample_pcas,
)
from pyaici.cpc.session import Session, heal_context
from pyaici.cpc.tree import Compatible, Cover, CoverTree, DeadPrefixError, Distributions, Model, TokenTrie

__all__ = [
    "Certificate",
    "Compatible",
    "Cover",
    "CoverTree",
    "DeadPrefixError",
    "Distributions",
    "Model",
    "Session",
    "TokenTrie",
    "enumerate_covers",
    "heal_context",
    "most_likely",
    "sample_enumerated",
    "sample_exact",
    "sample_healed",
    "sample_pcas",
]
