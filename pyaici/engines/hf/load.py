"""Loads a Transformers model from a folder; what can be known to be wrong is found before that takes time."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

_PACKAGES = ("torch", "transformers", "rich")


def check_packages() -> None:
    """Raises ValueError with the cure if a package of the extra `hf` is missing. Imports none of them."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(
            f'this needs the Transformers engine: pip install "aici[hf]" (there is no {", ".join(missing)})'
        )


def load_model(folder: Path, device: str | None = None) -> tuple[Any, Any]:
    """(model, tokenizer) of a folder, the weights in the folder's own dtype.

    `device` is as in torch; None means cuda if there is one, else cpu. Raises ValueError for one that
    cannot be used, OSError or ValueError for what the library cannot load.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"--device: cannot use {device!r}: {reason}; leave --device out") from None

    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call,unused-ignore]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    return model.to(device), tokenizer
