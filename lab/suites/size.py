"""Sizes of the compiled controllers, and of the SDK's three layers together."""

from __future__ import annotations

import tempfile
from pathlib import Path

from lab.report import Report
from pyaici.toolchain import build_all
from pyaici.toolchain.controller import PROBE_NAME

#: kB (1000 bytes): interface, byte stack and functional recognizer
TARGET = 40.0


def run(report: Report) -> None:
    """Builds everything and reports the sizes of the files that the wheel contains."""
    with tempfile.TemporaryDirectory() as folder:
        for built in build_all(Path(folder)):
            layers = built.name == PROBE_NAME
            name = f"{PROBE_NAME}_kb" if layers else f"size.{built.name}_kb"
            report.figure(name, built.size / 1000, "kB", target=TARGET if layers else None)
