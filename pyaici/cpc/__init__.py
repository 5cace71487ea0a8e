"""Character-prefix completion: texts that begin with given bytes, drawn as the model would have written them.

`Session.tree` has the covers of a prefix; the samplers `exact`, `enumeration`, `pcas` and `heal` each
draw one with ``sample(tree, rng)``, which returns a `Cover` and a `Certificate`. After the cover,
everything is ordinary sampling. docs/cpc.md has the definitions.
"""

from __future__ import annotations

from pyaici.cpc import enumeration, exact, heal, pcas
from pyaici.cpc.best import most_likely
from pyaici.cpc.context import heal_context
from pyaici.cpc.cover import Certificate, Cover, DeadPrefixError
from pyaici.cpc.model import Model
from pyaici.cpc.session import Session
from pyaici.cpc.tree import CoverTree
from pyaici.cpc.trie import Compatible, TokenTrie

__all__ = [
    "Certificate",
    "Compatible",
    "Cover",
    "CoverTree",
    "DeadPrefixError",
    "Model",
    "Session",
    "TokenTrie",
    "enumeration",
    "exact",
    "heal",
    "heal_context",
    "most_likely",
    "pcas",
]
