"""The options of `aici run` and harness/run_hf.py."""

from __future__ import annotations

import argparse

from pyaici.engines.options import add_prompt_options, add_sampling_options
from pyaici.engines.recording_option import add_record_option


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds what `read_request` reads, --model, --device, --socket and --record; all but the controller."""
    add_prompt_options(parser, "Transformers")
    parser.add_argument(
        "--device", help="where the model runs, e.g. cpu or cuda:1 (default: cuda if there is one)"
    )
    parser.add_argument("--beams", type=int, default=1, help="search with so many beams instead of sampling")
    add_record_option(parser)
    add_sampling_options(parser)
