"""Tokenizer objects of the Transformers library, fast and slow."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import AddedToken, AutoTokenizer, PreTrainedTokenizer
from transformers.tokenization_utils_sentencepiece import SentencePieceBackend

from aicirt.contract.errors import VocabularyError
from aicirt.vocab.tokenizer import load_tokenizer
from pyaici.tokens import load_vocabulary
from tests.pyaici.tokens.published import tokenizer_json, vocabulary
from tests.pyaici.tokens.test_ranks import encoding, tekken
from tests.pyaici.tokens.test_sentencepiece import MISTRAL, mistral
from tests.pyaici.tokens.texts import LOOKALIKES, PLAIN, RAW
from tests.thorough import also


@pytest.mark.parametrize("name", ["llama2", "smollm2", *also("llama3", "qwen3", "deepseek_v3")])
def test_fast_tokenizer_gives_the_same_vocabulary_as_its_files(name: str) -> None:
    folder = tokenizer_json(name).parent
    tokenizer = AutoTokenizer.from_pretrained(folder)
    known, expected = load_vocabulary(tokenizer), vocabulary(name)
    assert known.tokens == expected.tokens
    assert known.special_names == expected.special_names
    assert (known.eos, known.bos, known.pad) == (expected.eos, expected.bos, expected.pad)
    for text in PLAIN[:6]:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        # Llama 2 puts a space before a text, unless there is one
        prefixed = f" {text}" if name == "llama2" else text
        assert known.decode(ids) in (text.encode(), prefixed.encode())


def test_tokens_added_to_the_tokenizer_object(tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_json("smollm2").parent)
    size = len(tokenizer)
    tokenizer.add_tokens(["<tool>"])
    tokenizer.add_special_tokens({"pad_token": "<pad>"})
    known = load_vocabulary(tokenizer, vocab_size=size + 64, eos=[0, 2], name="mine")
    assert known.tokens[size:] == [b"<tool>", b""]
    assert known.special_names[size + 1] == "<pad>"
    assert (known.pad, known.eos, known.vocab_size, known.name) == (size + 1, (2, 0), size + 64, "mine")
    worker = load_tokenizer(known.tokenizer.kind, known.tokenizer.data, known.tokens)
    assert size in worker(b"a<tool>b<pad>")


def test_marks_of_tool_calls_are_text() -> None:
    """A grammar can ask for them only if they have bytes; half of a set is something else."""
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_json("smollm2").parent)
    size = len(tokenizer)
    names = ["[TOOL_CALLS]", "[ARGS]", "<|tool_call|>", "<｜tool▁sep｜>"]
    tokenizer.add_special_tokens({"additional_special_tokens": names})
    known = load_vocabulary(tokenizer, vocab_size=size + 64)
    assert known.tokens[size : size + 2] == [b"[TOOL_CALLS]", b"[ARGS]"]
    assert {known.special_names.get(token) for token in range(size, size + 4)} == {None, *names[2:]}
    worker = load_tokenizer(known.tokenizer.kind, known.tokenizer.data, known.tokens)
    tokens = worker(b"a[TOOL_CALLS]now[ARGS]{}<|tool_call|>")
    assert {size, size + 1} < set(tokens) and max(tokens) == size + 1


def test_a_tokenizer_that_is_a_python_file_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is there a question on the terminal."""
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked on the terminal"))
    (tmp_path / "own.py").write_text("raise SystemExit('has run')")
    (tmp_path / "config.json").write_text('{"model_type": "own"}')
    named = {"auto_map": {"AutoTokenizer": ["own.OwnTokenizer", None]}, "tokenizer_class": "OwnTokenizer"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(named))
    with pytest.raises(VocabularyError, match="is a Python file: if you trust it, load it with"):
        load_vocabulary(tmp_path)


def test_folder_without_a_tokenizer_json(tmp_path: Path) -> None:
    """Reads vocab.json and merges.txt, which only the Transformers library can load."""
    spec = json.loads(tokenizer_json("smollm2").read_text("utf-8"))
    (tmp_path / "vocab.json").write_text(json.dumps(spec["model"]["vocab"]))
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in spec["model"]["merges"]]
    (tmp_path / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "vocab_size": 49152}))
    known = load_vocabulary(tmp_path)
    expected = vocabulary("smollm2")
    texts = [token for token in range(49152) if known.tokens[token]]
    assert len(texts) > 49100
    assert all(known.tokens[token] == expected.tokens[token] for token in texts if token > 16)


def test_slow_sentencepiece_tokenizer() -> None:
    tokenizer = SentencePieceBackend(
        vocab_file=str(mistral(MISTRAL[0])), bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    known, expected = load_vocabulary(tokenizer), load_vocabulary(mistral(MISTRAL[0]))
    assert known.tokens == expected.tokens
    assert known.special_names == expected.special_names
    assert (known.eos, known.bos, known.unk) == ((2,), 1, 0)
    worker = load_tokenizer(known.tokenizer.kind, known.tokenizer.data, known.tokens)
    reference = load_tokenizer(expected.tokenizer.kind, expected.tokenizer.data, expected.tokens)
    assert worker.exact
    for data in [text.encode() for text in PLAIN + LOOKALIKES] + RAW:
        assert worker(data) == reference(data)


class Renumbered(SentencePieceBackend):
    """Puts four special tokens before the pieces of the model, as fairseq's tokenizers do."""

    def _convert_id_to_token(self, index: int) -> Any:
        return ["<s>", "<pad>", "</s>", "<unk>"][index] if index < 4 else self.sp_model.IdToPiece(index - 1)

    def _convert_token_to_id(self, token: str) -> int:
        own = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
        return own[token] if token in own else self.sp_model.PieceToId(token) + 1

    @property
    def vocab_size(self) -> int:
        return int(self.sp_model.GetPieceSize()) + 1


def test_slow_sentencepiece_tokenizer_with_shifted_ids() -> None:
    tokenizer = Renumbered(
        vocab_file=str(mistral(MISTRAL[0])),
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        added_tokens_decoder={
            token: AddedToken(text, special=True, normalized=False)
            for token, text in enumerate(["<s>", "<pad>", "</s>", "<unk>"])
        },
    )
    known, plain = load_vocabulary(tokenizer), load_vocabulary(mistral(MISTRAL[0]))
    assert known.tokens[4:] == plain.tokens[3:]
    assert known.special_names == {0: "<s>", 1: "<pad>", 2: "</s>", 3: "<unk>"}
    worker = load_tokenizer(known.tokenizer.kind, known.tokenizer.data, known.tokens)
    reference = load_tokenizer(plain.tokenizer.kind, plain.tokenizer.data, plain.tokens)
    for text in PLAIN:
        assert worker(text.encode()) == [token + 1 for token in reference(text.encode())]


class AroundTiktoken(PreTrainedTokenizer):
    """A tokenizer like those that Qwen and Kimi published with their first models."""

    def __init__(self, **options: Any) -> None:
        self.ranks = encoding("cl100k_base")
        super().__init__(**options)

    @property
    def vocab_size(self) -> int:
        return self.ranks.n_vocab

    def get_vocab(self) -> dict[str, int]:
        return {str(token): token for token in range(self.vocab_size)}

    def _convert_token_to_id(self, token: str) -> int:
        return int(token) if token.isdigit() else 0

    def _convert_id_to_token(self, index: int) -> str:
        return str(index)


def test_slow_tokenizer_that_wraps_tiktoken() -> None:
    tokenizer = AroundTiktoken(eos_token="<|endoftext|>")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_end|>"]})
    known = load_vocabulary(tokenizer)
    assert known.tokens[:100256] == load_vocabulary(encoding("cl100k_base")).tokens[:100256]
    assert "<|im_end|>" in known.special_names.values()
    worker = load_tokenizer(known.tokenizer.kind, known.tokenizer.data, known.tokens)
    for text in PLAIN:
        assert worker(text.encode()) == encoding("cl100k_base").encode_ordinary(text)


def test_tokenizer_that_wraps_mistral_common() -> None:
    """Only the file that the mistral-common objects were loaded from matters."""
    inner = SimpleNamespace(tokenizer=SimpleNamespace(file_path=tekken()))
    source = SimpleNamespace(
        tokenizer=SimpleNamespace(instruct_tokenizer=inner),
        convert_ids_to_tokens=None,
        all_special_tokens=[],
        name_or_path="",
    )
    assert load_vocabulary(source).tokens == load_vocabulary(tekken()).tokens


def test_unknown_slow_tokenizer_is_refused() -> None:
    class Letters(PreTrainedTokenizer):
        vocab_size = 26

        def get_vocab(self) -> dict[str, int]:
            return {chr(97 + token): token for token in range(26)}

    with pytest.raises(VocabularyError, match="bytes of the tokens of Letters are unknown"):
        load_vocabulary(Letters())
