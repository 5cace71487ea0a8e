"""A model in a GGUF file: its weights, its tokenizer and its chat template."""

from __future__ import annotations

import ctypes
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aicirt.contract.errors import VocabularyError
from aicirt.system.files import Closing
from pyaici.tokens.gguf import read_gguf_header

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyaici.engines.llama.library import Library

#: some 320 bytes for each character of the longest prompts; the system provides it as it is used
_STACK_BYTES = 512 << 20
#: position encodings with several coordinates a token, which the engine does not compute
_MULTIPLE_POSITIONS = (8, 24, 40)


#: largest values of metadata. The library would abort the process, or take a number for a negative one
_MOST = {"block_count": 512, "context_length": (1 << 31) - 1, "embedding_length": 1 << 20}


class LlamaModel(Closing):
    """A model of llama.cpp. Close it after all engines that use it."""

    def __init__(
        self, library: Library, path: Path, *, gpu_layers: int = -1, vocab_only: bool = False
    ) -> None:
        """`gpu_layers`: how many layers to compute on a GPU if the library supports one; -1 = all.

        `vocab_only`: leaves the weights out, so that the model only has its tokenizer.

        Raises ValueError for a file that is no complete GGUF model, and for kinds of models that the engine
        cannot run; OSError if the file cannot be read.
        """
        self.library = library
        self.path = path
        self.header = _read_header(path)
        params = library.model_default_params()
        params.n_gpu_layers, params.vocab_only = gpu_layers, vocab_only
        with library.explained() as reasons:
            pointer = library.model_load_from_file(os.fsencode(path), params)
        if not pointer:
            raise ValueError(f"llama.cpp cannot load {path}: {_join(reasons)}")
        self._tokenizing = deep_thread()
        #: the library's model, until `close`
        self.pointer: int = pointer
        try:
            self._check_model()
        except ValueError:
            self.close()
            raise
        self._vocab = library.model_get_vocab(pointer)
        #: number of tokens, and columns of the logits
        self.num_tokens: int = library.vocab_n_tokens(self._vocab)
        #: tokens of the longest text that it was trained with
        self.trained_context: int = library.model_n_ctx_train(pointer)

    def _check_model(self) -> None:
        library = self.library
        architecture = self.header.text("general.architecture")
        causal = self.header.metadata.get(f"{architecture}.attention.causal")
        several = library.model_rope_type(self.pointer) in _MULTIPLE_POSITIONS
        for problem, found in (
            ("it is an encoder and decoder", library.model_has_encoder(self.pointer)),
            ("its state cannot be shortened (recurrent)", library.model_is_recurrent(self.pointer)),
            ("some of its layers cannot be shortened (hybrid)", library.model_is_hybrid(self.pointer)),
            ("it does not generate token by token (diffusion)", library.model_is_diffusion(self.pointer)),
            ("its tokens have several positions", several),
            ("it does not generate text (its attention is not causal)", causal is False),
        ):
            if found:
                raise ValueError(f"the engine cannot run {self.path}: {problem}; use another model")

    @property
    def token_bytes(self) -> int:
        """Bytes of a token in a key-value cache of 16-bit numbers."""
        library, metadata = self.library, self.header.metadata
        architecture = self.header.text("general.architecture")
        size = library.model_n_embd(self.pointer) // max(1, library.model_n_head(self.pointer))
        sides = (metadata.get(f"{architecture}.attention.{side}_length", size) for side in ("key", "value"))
        heads: int = library.model_n_head_kv(self.pointer)
        layers: int = library.model_n_layer(self.pointer)
        return 2 * layers * heads * sum(int(side) for side in sides)

    @cached_property
    def tokenizer(self) -> LlamaTokenizer:
        """The model's own tokenizer, which encodes prompts."""
        return LlamaTokenizer(self)

    def tokenize(self, text: str, *, add_special: bool) -> list[int]:
        """Returns the tokens of a text. Names of special tokens in it become these tokens.

        `add_special`: begin and end as the model's metadata asks for.
        """
        return self._tokenizing.submit(self._tokenize, text.encode(), add_special).result()

    def _tokenize(self, data: bytes, add_special: bool) -> list[int]:
        room = len(data) + 16
        while True:
            tokens = np.empty(room, np.int32)
            count = self.library.tokenize(
                self._vocab, data, len(data), tokens.ctypes.data, room, add_special, True
            )
            if count >= 0:
                return list(map(int, tokens[:count]))
            room = -count

    def piece(self, token: int) -> bytes:
        """Returns the bytes of a token, or the name of a special one, as the library has them."""
        buffer = ctypes.create_string_buffer(64)
        count = self.library.token_to_piece(self._vocab, token, buffer, len(buffer), 0, True)
        if count < 0:
            buffer = ctypes.create_string_buffer(-count)
            count = self.library.token_to_piece(self._vocab, token, buffer, len(buffer), 0, True)
        return buffer.raw[:count]

    def close(self) -> None:
        """Frees the model."""
        if self.pointer:
            self._tokenizing.shutdown()
            self.library.model_free(self.pointer)
            self.pointer = 0


#: loads the tokenizer of a model without its weights
load_tokenizer = partial(LlamaModel, vocab_only=True)


class LlamaTokenizer:
    """Encodes texts and chats for a model. Has the methods of a Transformers tokenizer that engines use."""

    def __init__(self, model: LlamaModel) -> None:
        self._model = model
        #: the model's Jinja template; None if it has none
        self.chat_template: str | None = model.header.text("tokenizer.chat_template") or None

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Returns the tokens of a text."""
        return self._model.tokenize(text, add_special=add_special_tokens)

    @property
    def special_tokens_map(self) -> dict[str, str]:
        """Texts of special tokens, which chat templates use, by name."""
        return {f"{role}_token": self._name(f"tokenizer.ggml.{role}_token_id") for role in ("bos", "eos")}

    def _name(self, key: str) -> str:
        token = self._model.header.number(key)
        known = token is not None and 0 <= token < self._model.num_tokens
        return self._model.piece(token).decode("utf-8", "replace") if known and token is not None else ""


def deep_thread() -> ThreadPoolExecutor:
    """Returns an executor whose one thread has a deep stack.

    For some tokenizers, the library matches regular expressions with a recursion for each character.
    """
    before = threading.stack_size(_STACK_BYTES)
    try:
        executor = ThreadPoolExecutor(1, "aici-tokenize")
        executor.submit(int).result()  # starts the thread
        return executor
    finally:
        threading.stack_size(before)


def _read_header(path: Path) -> Any:
    """Reads the header before the library does: it would abort the process on some broken files."""
    try:
        header = read_gguf_header(path)
    except VocabularyError as error:
        raise ValueError(error.message) from None
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, list) and len(set(tokens)) != len(tokens):
        raise ValueError(
            f"{path} lists a token twice, which llama.cpp does not support; convert the model again"
        )
    for key, kind in (("scores", "f"), ("token_type", "iu")):
        values = header.metadata.get(f"tokenizer.ggml.{key}")
        if values is None or not isinstance(tokens, list):
            continue
        fits = isinstance(values, np.ndarray) and values.dtype.kind in kind and values.dtype.itemsize == 4
        if not fits or len(values) < len(tokens):
            raise ValueError(f"{path} has no valid tokenizer.ggml.{key}; convert the model again")
    architecture = header.text("general.architecture")
    for key, most in _MOST.items():
        value = header.number(f"{architecture}.{key}")
        if value is not None and not 0 < value <= most:
            raise ValueError(
                f"{path} is not a valid model: its {architecture}.{key} is {value}; it must be 1 to {most}"
            )
    if not header.tensors and (header.number("split.count") or 0) < 2:
        raise ValueError(f"{path} has no weights: it is a vocabulary; give the file of a whole model")
    return header


def _join(messages: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(messages)) or "it gives no reason"
