"""Model folders as they are published."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyaici.tokens import Vocabulary, load_vocabulary
from tests.pyaici.tokens.published import tokenizer_json


@pytest.fixture
def llama3_folder(tmp_path: Path) -> Vocabulary:
    """Loads Llama 3's vocabulary, with the generation configuration of chat models and padded logits."""
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / file).symlink_to(tokenizer_json("llama3").with_name(file))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [128001, 128009]}))
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 128384, "eos_token_id": 128001}))
    return load_vocabulary(tmp_path)
