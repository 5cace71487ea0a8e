"""Lets vLLM's CPU build use Ray, which its CPU platform does not name a device for.

Ray counts devices without looking for them, so the workers are told that they have GPUs.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from vllm.platforms.cpu import CpuPlatform

from lab import ROOT
from lab.system.fetch import pypi_unpacked

_PLATFORM = "aici_tests_ray_on_cpu"


class RayCpuPlatform(CpuPlatform):  # type: ignore[misc,unused-ignore]
    """vLLM's CPU platform, for which Ray schedules GPUs."""

    ray_device_key = "GPU"


def platform() -> str:
    """Returns the name of the platform, for vLLM's entry points."""
    return f"{__name__}.{RayCpuPlatform.__name__}"


def ray_environment(folder: Path, devices: int) -> dict[str, str]:
    """Returns variables for a process with vLLM, which then starts Ray with this number of devices.

    `folder`: an empty folder; vLLM finds the platform in it, and Ray keeps its files there. Its path must be
    short, because Ray creates sockets below it.
    """
    installed = folder / "platform" / f"{_PLATFORM}-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {_PLATFORM}\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(
        f"[vllm.platform_plugins]\n{_PLATFORM} = {__name__}:{platform.__name__}\n"
    )
    paths = [str(ROOT), str(installed.parent), str(pypi_unpacked("ray")), os.environ.get("PYTHONPATH", "")]
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "RAY_OVERRIDE_RESOURCES": json.dumps(
            # by default the object store takes almost a third of the memory
            {"CPU": devices, "GPU": devices, "object_store_memory": 100 << 20}
        ),
        "RAY_TMPDIR": str(folder),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
