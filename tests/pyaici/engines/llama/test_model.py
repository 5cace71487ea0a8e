"""GGUF models: their vocabulary, prompts and chats, and files that are refused."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from pyaici import LlamaModel, load_library
from pyaici.engines.prompts import chat_text, render_chat
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


@pytest.fixture(scope="module")
def theirs() -> Any:
    """The tokenizer of the same model in Transformers."""
    return AutoTokenizer.from_pretrained(default_model_path())


@pytest.mark.parametrize("text", ["", "Hello", "naïve 😀 שלום\x00\n\n\tx", "In 1879, 12345!", "  a  b "])
def test_controllers_tokenize_as_the_model_does(smollm: LlamaModel, text: str) -> None:
    from tokenizers import Tokenizer

    spec = load_vocabulary(smollm.path).tokenizer_json
    assert spec is not None
    assert Tokenizer.from_str(spec).encode(text).ids == smollm.tokenize(text, add_special=False)


_TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
_CALL = {"type": "function", "function": {"name": "f", "arguments": {"a": "é<"}}}
#: shows all that a template can read of messages, and the order of their fields
_DUMP = (
    "{{ bos_token }}{% for m in messages %}{{ m | tojson }}{{ m.content is defined }}{% endfor %}"
    "{{ tools | tojson }}{{ documents }}{{ add_generation_prompt }}{{ own }}"
)


@pytest.mark.parametrize(
    "template", [None, _DUMP, {"default": "{{ messages }}", "tool_use": _DUMP}], ids=type
)
@pytest.mark.parametrize("tools", [None, [_TOOL]], ids=["plain", "tools"])
@pytest.mark.parametrize("answer", [True, False])
def test_chats_are_rendered_as_by_transformers(
    smollm: LlamaModel,
    theirs: Any,
    monkeypatch: pytest.MonkeyPatch,
    template: str | dict[str, str] | None,
    tools: list[dict[str, Any]] | None,
    answer: bool,
) -> None:
    if template is not None:
        monkeypatch.setattr(theirs, "chat_template", template)
        monkeypatch.setattr(smollm.tokenizer, "chat_template", template)
    for chat in (
        CHAT,
        [{"role": "system", "content": "Be brief."}, *CHAT],
        [*CHAT, {"role": "assistant", "content": None, "tool_calls": [_CALL]}],
        [*CHAT, {"role": "assistant", "reasoning": "Hm.", "content": "A"}, *CHAT],
        [*CHAT, {"role": "assistant", "thinking": "Hm.", "reasoning_content": None, "content": "A"}],
    ):
        if template is None and chat[-1].get("content") is None:
            continue  # this model's template adds texts
        expected = theirs.apply_chat_template(
            chat, tools=tools, add_generation_prompt=answer, tokenize=False, own="x"
        )
        for tokenizer in (smollm.tokenizer, theirs):
            found = chat_text(tokenizer, chat, tools=tools, answer=answer, variables={"own": "x"})
            assert found == expected
        assert theirs.encode(expected, add_special_tokens=False) == theirs.apply_chat_template(
            chat, tools=tools, add_generation_prompt=answer, return_dict=False, own="x"
        )


def test_chat_templates_run_in_a_sandbox_with_their_usual_functions() -> None:
    template = (
        "{% for m in messages %}{% generation %}{{ m.content | tojson }}{% endgeneration %}{% break %}"
        "{% endfor %}\n{{ x }}"
    )
    assert render_chat(template, [{"content": "<é>"}, {}], {"x": 1}) == '"<é>"1'
    assert len(render_chat("{{ strftime_now('%Y') }}", [], {})) == 4
    with pytest.raises(ValueError, match="no system role"):
        render_chat("{{ raise_exception('no system role') }}", [], {})
    with pytest.raises(ValueError, match="unsafe"):
        render_chat("{{ messages.__class__.__mro__ }}{{ ''.__class__.mro() }}", [], {})


def _beginning(path: Path, size: int) -> bytearray:
    with path.open("rb") as file:
        return bytearray(file.read(size))


def _changed(path: Path, folder: Path, at: int, new: bytes) -> Path:
    data = _beginning(path, 1 << 22)
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
        short.write_bytes(_beginning(good, size))
        with pytest.raises(ValueError, match=words):
            LlamaModel(library, short)
    short.write_bytes(b"\x7fELF" + bytes(1000))
    with pytest.raises(ValueError, match="does not begin with GGUF"):
        LlamaModel(library, short)
    for at, new, words in (
        (4, struct.pack("<I", 99), "its version is 99"),
        (8, struct.pack("<Q", 1 << 60), "it declares .* tensors"),
        (16, struct.pack("<Q", 1 << 60), "it declares .* keys"),
        (24, struct.pack("<Q", 1 << 60), "a text has .* bytes"),
    ):
        with pytest.raises(ValueError, match=words):
            LlamaModel(library, _changed(good, tmp_path, at, new))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", 0),
        ("block_count", 1 << 31),
        ("context_length", 0),
        ("context_length", 4_000_000_000),
        ("embedding_length", 0),
    ],
)
def test_impossible_numbers_are_refused(tmp_path: Path, key: str, value: int) -> None:
    """The library would abort the process, or take them for negative numbers."""
    name = f"llama.{key}".encode()
    data = _beginning(default_gguf_path(), 1 << 16)
    at = data.index(name) + len(name) + 4  # behind the type, which is u32
    with pytest.raises(ValueError, match=rf"its llama\.{key} is {value}; it must be 1 to"):
        LlamaModel(load_library(), _changed(default_gguf_path(), tmp_path, at, struct.pack("<I", value)))


@pytest.mark.parametrize(
    ("tokens", "scores", "words"),
    [
        (["a", "b"], [0.0, 0.0], "it is a vocabulary; give the file of a whole model"),
        (["a", "a"], [0.0, 0.0], "lists a token twice"),
        (["a", "b"], [0.0], "no valid tokenizer.ggml.scores"),
        (["a", "b"], [1, 2], "no valid tokenizer.ggml.scores"),
    ],
)
def test_files_that_the_library_would_misread_are_refused(
    tmp_path: Path, tokens: list[str], scores: list[float], words: str
) -> None:
    import gguf

    path = tmp_path / "vocabulary.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ValueError, match=words):
        LlamaModel(load_library(), path)


@pytest.mark.parametrize(
    ("function", "answer", "words"),
    [
        ("model_is_recurrent", True, "recurrent"),
        ("model_is_hybrid", True, "hybrid"),
        ("model_is_diffusion", True, "diffusion"),
        ("model_has_encoder", True, "encoder"),
        ("model_rope_type", 8, "several positions"),
    ],
)
def test_models_that_forks_would_break_are_refused(
    tiny: LlamaModel, monkeypatch: pytest.MonkeyPatch, function: str, answer: object, words: str
) -> None:
    """No such model is at hand, so the library's answer about another one is replaced."""
    library = load_library()
    monkeypatch.setattr(library, function, lambda model: answer)
    with pytest.raises(ValueError, match=words):
        LlamaModel(library, tiny.path)


def test_template_that_fails_is_named(smollm: LlamaModel, monkeypatch: pytest.MonkeyPatch) -> None:
    for template, words in (
        ("{{ 1 / 0 }}", "division"),
        ("{% if %}", "Expected"),
        ("{{ x.y.z }}", "undefined"),
    ):
        monkeypatch.setattr(smollm.tokenizer, "chat_template", template)
        with pytest.raises(ValueError, match=f"the model's chat template refuses the chat: .*{words}"):
            chat_text(smollm.tokenizer, CHAT)


def test_long_runs_of_a_character_are_tokenized(smollm: LlamaModel) -> None:
    assert len(smollm.tokenize("Z" * 300_000, add_special=False)) > 1000
