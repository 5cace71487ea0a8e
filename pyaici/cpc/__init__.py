"""Character-prefix completion: draws texts that begin with given bytes from the model's distribution.

`Session.tree` returns the covers of a prefix. The samplers `exact`, `enumeration`, `pcas` and `heal` each
draw a cover with ``sample(tree, rng)`` (`heal` needs `tokenize` too), which returns a `Cover` and a
`Certificate`. After the cover, generation continues with ordinary sampling. docs/cpc.md has the definitions.
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
