"""Tests of controllers without a model: the real runtime and generation loop, with a simulated model."""

from __future__ import annotations

from pyaici.recording.recording import Recording, read_recording, write_recording
from pyaici.recording.vocabulary import small_vocabulary
from pyaici.testing.cases import Case, CaseResult, read_cases, run_case
from pyaici.testing.playground import Playground, Transcript, Wish
from pyaici.testing.replay import Replay, replay

__all__ = [
    "Case",
    "CaseResult",
    "Playground",
    "Recording",
    "Replay",
    "Transcript",
    "Wish",
    "read_cases",
    "read_recording",
    "replay",
    "run_case",
    "small_vocabulary",
    "write_recording",
]
