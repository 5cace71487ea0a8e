"""Program: converts a GGUF file to a folder that Transformers loads in a fraction of a second.

It runs in a separate process, since the de-quantized model and the libraries need a gigabyte of memory:

    python convert.py GGUF FOLDER DTYPE
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def convert(gguf: Path, folder: Path, dtype: str) -> None:
    """Writes weights (`dtype` is "float32" or "bfloat16"), configuration and tokenizer to `folder`."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    model: Any = AutoModelForCausalLM.from_pretrained(**source, dtype=getattr(torch, dtype))
    # The library regards a model loaded from GGUF as quantized and refuses to save it, although its
    # weights have been de-quantized by now.
    model.hf_quantizer = None
    model.is_quantized = False
    del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.model_max_length = model.config.max_position_embeddings
    tokenizer.save_pretrained(folder)
    _tidy(folder / "tokenizer_config.json")
    for path in folder.iterdir():
        path.chmod(0o644)


def _tidy(path: Path) -> None:
    """Removes the entries that describe only the GGUF file, and sets the class that all versions know."""
    config = json.loads(path.read_text("utf-8"))
    for key in ("backend", "is_local", "local_files_only"):
        config.pop(key, None)
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    path.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
