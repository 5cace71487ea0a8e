"""The runtime daemon: runs controllers in worker processes, beside an inference engine."""

from __future__ import annotations

import sys

if sys.platform != "linux":
    # memfd_create, pidfd, futexes, timer_create, PAGEMAP_SCAN: nothing here is portable
    raise ImportError(f"aici runs on Linux only, not on {sys.platform}: use Linux, a container or WSL 2")
