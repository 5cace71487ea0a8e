"""The default model with four of its thirty layers, a third of the weights, for tests that compare engines.

The first two and the last two layers write random text, but it depends on every earlier token. If an engine
mixes up positions or blocks of its cache, the texts differ from that token on. Under a pattern the model ends
words and sentences as the whole model does.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file

from pyaici.models import default_model_path

_LAYERS = (0, 1, 28, 29)
_PREFIX = "model.layers."


def make_shallow_model(folder: Path) -> Path:
    """Writes the model in float32, with the default tokenizer and chat template. Returns `folder`."""
    whole = default_model_path("float32")
    weights = {}
    with safe_open(whole / "model.safetensors", framework="pt") as file:
        for name in file.keys():  # noqa: SIM118, it is no dictionary
            if not name.startswith(_PREFIX):
                weights[name] = file.get_tensor(name)
                continue
            layer, part = name.removeprefix(_PREFIX).split(".", 1)
            if int(layer) in _LAYERS:
                weights[f"{_PREFIX}{_LAYERS.index(int(layer))}.{part}"] = file.get_tensor(name)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((whole / "config.json").read_text("utf-8"))
    config["num_hidden_layers"] = len(_LAYERS)
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    for file_name in (
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
        "generation_config.json",
    ):
        shutil.copy(whole / file_name, folder)
    return folder
