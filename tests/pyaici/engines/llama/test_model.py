"""GGUF models: their vocabulary, prompts and chats, and files that are refused."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import pytest
from transformers import AutoTokenizer

from pyaici.engines.llama import LlamaModel, load_library
from pyaici.engines.llama.chat_template import render_chat
from pyaici.models import default_gguf_path, default_model_path
from pyaici.tokens import load_vocabulary

pytestmark = pytest.mark.slow
CHAT = [{"role": "user", "content": "Was it 1879 <|im_end|> or\n\n 12345?"}]


@pytest.fixture(scope="module")
def smollm() -> Iterator[LlamaModel]:
    with LlamaModel(load_library(), default_gguf_path()) as model:
        yield model


def test_vocabulary_is_the_same_as_that_of_the_library_and_of_transformers(smollm: LlamaModel) -> None:
    vocabulary = load_vocabulary(smollm.path)
    for token in range(smollm.num_tokens):
        name = vocabulary.special_names.get(token)
        expected = vocabulary.tokens[token] if name is None else name.encode()
        assert smollm.piece(token) == expected, token
    theirs = load_vocabulary(default_model_path())
    assert vocabulary.tokens == theirs.tokens and vocabulary.special_names == theirs.special_names
    assert (vocabulary.eos, vocabulary.bos, vocabulary.pad) == (theirs.eos, theirs.bos, theirs.pad)


@pytest.mark.parametrize("text", ["", "Hello", "naïve 😀 שלום\x00\n\n\tx", "In 1879, 12345!", "  a  b "])
def test_controllers_tokenize_as_the_model_does(smollm: LlamaModel, text: str) -> None:
    from tokenizers import Tokenizer

    spec = load_vocabulary(smollm.path).tokenizer_json
    assert spec is not None
    assert Tokenizer.from_str(spec).encode(text).ids == smollm.tokenize(text, add_special=False)


@pytest.mark.parametrize("more", [{}, {"tools": []}, {"add_generation_prompt": False}], ids=str)
def test_chats_are_rendered_as_by_transformers(smollm: LlamaModel, more: dict[str, Any]) -> None:
    theirs = AutoTokenizer.from_pretrained(default_model_path())
    options = {"add_generation_prompt": True, "tokenize": False, **more}
    for chat in (CHAT, [{"role": "system", "content": "Be brief."}, *CHAT]):
        assert smollm.tokenizer.apply_chat_template(chat, **options) == theirs.apply_chat_template(
            chat, **options
        )


def test_chat_templates_run_in_a_sandbox_with_their_usual_functions() -> None:
    template = (
        "{% for m in messages %}{% generation %}{{ m.content | tojson }}{% endgeneration %}{% break %}"
        "{% endfor %}\n{{ x }}"
    )
    assert render_chat(template, [{"content": "<é>"}, {}], {"x": 1}) == '"<é>"1'
    assert len(render_chat("{{ strftime_now('%Y') }}", [], {})) == 4
    with pytest.raises(jinja2.TemplateError, match="no system role"):
        render_chat("{{ raise_exception('no system role') }}", [], {})
    with pytest.raises(jinja2.exceptions.SecurityError):
        render_chat("{{ messages.__class__.__mro__ }}{{ ''.__class__.mro() }}", [], {})


def _changed(path: Path, folder: Path, at: int, new: bytes) -> Path:
    data = bytearray(path.read_bytes()[: 1 << 22])
    data[at : at + len(new)] = new
    (folder / "changed.gguf").write_bytes(data)
    return folder / "changed.gguf"


def test_truncated_foreign_and_contradictory_files_are_refused(tmp_path: Path) -> None:
    good, library = default_gguf_path(), load_library()
    short = tmp_path / "short.gguf"
    for size, words in (
        (0, "is not a GGUF file"),
        (3, "is not a GGUF file"),
        (20, "is not a complete GGUF file"),
        (5000, "in the middle of its header"),
        (10_000_000, "llama.cpp cannot load .*(incomplete|corrupted|bounds)"),
    ):
        with good.open("rb") as file:
            short.write_bytes(file.read(size))
        with pytest.raises(ValueError, match=words):
            LlamaModel(library, short)
    short.write_bytes(b"\x7fELF" + bytes(1000))
    with pytest.raises(ValueError, match="does not begin with GGUF"):
        LlamaModel(library, short)
    for at, new, words in (
        (4, struct.pack("<I", 99), "its version is 99"),
        (8, struct.pack("<Q", 1 << 60), "it declares .* tensors"),
        (16, struct.pack("<Q", 1 << 60), "it declares .* keys"),
        (24, struct.pack("<Q", 1 << 60), "in the middle of its header"),
    ):
        with pytest.raises(ValueError, match=words):
            LlamaModel(library, _changed(good, tmp_path, at, new))


def test_vocabulary_without_weights_is_refused(tmp_path: Path) -> None:
    import gguf

    path = tmp_path / "vocabulary.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ValueError, match="it is a vocabulary; give the file of a whole model"):
        LlamaModel(load_library(), path)
