"""Vocabularies in a worker."""

from __future__ import annotations

from lab.measurement.local_worker import load_for_guests
from lab.system.processes import open_files
from tests.pyaici.client.conftest import VOCABULARY


def test_a_forgotten_vocabulary_leaves_no_file_open() -> None:
    """Regression: its image stayed open; after a thousand vocabularies a worker could open no more files."""
    load_for_guests(VOCABULARY)  # what the first one opens for ever
    before = open_files()
    vocabulary = load_for_guests(VOCABULARY)
    assert open_files() > before
    del vocabulary
    assert open_files() == before
