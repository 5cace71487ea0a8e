"""The option --record of the programs that run a controller: writes down what model and controller do."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyaici.testing.recorder import RecordingRuntime


def add_record_option(parser: argparse.ArgumentParser) -> None:
    """Adds --record."""
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="write down what model and controller do, for aici test to replay it without the model",
    )


def check_record(arguments: argparse.Namespace) -> None:
    """Raises ValueError for what cannot be recorded."""
    if arguments.record is None:
        return
    if arguments.controller == "none":
        raise ValueError("--record is of what a controller does, but there is no controller")
    if arguments.n > 1 or getattr(arguments, "beams", 1) > 1:
        beams = ", no --beams" if hasattr(arguments, "beams") else ""
        raise ValueError(f"--record is of one sequence and the forks of its controller: no --n{beams}")
    if arguments.record.is_dir() or not arguments.record.absolute().parent.is_dir():
        raise ValueError(f"--record: {arguments.record} is no file that can be written")


def keep_recording(runtime: RecordingRuntime, arguments: argparse.Namespace) -> None:
    """Writes the file, and prints how it is replayed. Raises OSError; RuntimeFailure without a request."""
    from pyaici.testing.recording_file import write_recording

    write_recording(runtime.take(), arguments.record)
    print(f"recorded: aici test {arguments.controller} --transcript {arguments.record}")
