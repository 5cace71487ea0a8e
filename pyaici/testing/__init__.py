"""Tests of controllers without a model: the real runtime, and a small engine with a pretended model."""

from __future__ import annotations

from pyaici.testing.playground import Playground
from pyaici.testing.transcript import Transcript
from pyaici.testing.vocabulary import small_vocabulary
from pyaici.testing.wish import Wish

__all__ = ["Playground", "Transcript", "Wish", "small_vocabulary"]
