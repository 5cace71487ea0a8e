"""The runtime daemon: runs controllers in worker processes next to an inference engine."""

from __future__ import annotations

import sys

if sys.platform != "linux":
    # needs memfd_create, pidfd, futexes, timer_create and PAGEMAP_SCAN, which only Linux has
    raise ImportError(f"aici runs on Linux only, not on {sys.platform}: use Linux, a container or WSL 2")
