"""The client of aicirt, its command line, the engines, and the build of controllers."""

from __future__ import annotations

import aicirt  # noqa: F401 - it says so where the platform is not Linux
