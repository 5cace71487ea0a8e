"""A tiny random model whose tokens are bytes, in each engine, and counts of its passes and slots."""

from __future__ import annotations

import functools
import json
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import tokenizers
import torch
import transformers

from pyaici import HfEngine, LlamaEngine, LlamaModel, load_library
from pyaici.engines.batching.engine import BatchingEngine
from pyaici.engines.llama.library import ContextParams
from pyaici.engines.llama.runner import LlamaRunner
from pyaici.tokens import Vocabulary

BOS, EOS = 256, 257
#: tokens of the longest text of the fixture `long_model`
LONG_CONTEXT = 4096
#: the model has more logits than there are tokens
WIDTH = 288
SIZES = {
    "vocab_size": WIDTH,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "initializer_range": 0.4,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "pad_token_id": None,
}


def make_model(config_class: str = "LlamaConfig", **settings: Any) -> Any:
    """Returns a model whose weights depend only on its configuration."""
    torch.manual_seed(7)
    config = getattr(transformers, config_class)(**(SIZES | settings))
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def script(body: str, language: str = "python") -> dict[str, Any]:
    """Returns the controller of a request: a script whose `main` has these lines."""
    if language == "javascript":
        names = "distribution, force, gen, mix, receive, sample, send, stop"
        source = f'import {{ {names} }} from "aici";\nexport async function main() {{{body}}}'
        return {"controller": "jsctrl", "arg": json.dumps({"script": source, "name": "script.js"})}
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    source = f"from aici import *\nasync def main():\n{lines}"
    return {"controller": "pyctrl", "arg": json.dumps({"script": source, "name": "script.py"})}


class CountingCalls:
    """Records the shape of the input of each forward pass of a model."""

    def __init__(self, model: Any) -> None:
        self.shapes: list[tuple[int, ...]] = []
        self._handle = model.register_forward_pre_hook(self._note, with_kwargs=True)

    def _note(self, module: Any, args: Any, kwargs: Any) -> None:
        self.shapes.append(tuple(kwargs["input_ids"].shape))

    def __enter__(self) -> CountingCalls:
        return self

    def __exit__(self, *exc: object) -> None:
        self._handle.remove()


class CountingPasses:
    """Records how many tokens of each sequence a forward pass of an engine's model has, without padding."""

    def __init__(self, engine: BatchingEngine) -> None:
        self.passes: list[list[int]] = []
        self._runner: Any = engine._runner
        self._method = "_decode" if isinstance(self._runner, LlamaRunner) else "_pass"

    def _count(self, *args: Any) -> list[int]:
        if self._method == "_pass":
            _, parts, _ = args
            return [len(part) for part in parts]
        _, _, sequences, _ = args
        return list(Counter(sequences).values())

    def __enter__(self) -> CountingPasses:
        method = getattr(self._runner, self._method)

        def counted(*args: Any) -> Any:
            self.passes.append(self._count(*args))
            return method(*args)

        setattr(self._runner, self._method, counted)
        return self

    def __exit__(self, *exc: object) -> None:
        delattr(self._runner, self._method)


@contextmanager
def failing_passes(engine: BatchingEngine) -> Iterator[None]:
    """Makes the forward passes of an engine's model raise RuntimeError."""
    runner: Any = engine._runner
    if isinstance(runner, LlamaRunner):
        with patch.object(runner._library, "decode", lambda context, batch: -3, create=True):
            yield
    else:
        with patch.object(runner._model, "forward", side_effect=RuntimeError("no pass")):
            yield


def count_slots(engine: BatchingEngine) -> int:
    """Returns how many slots the cache has: of running sequences and kept ones."""
    cache: Any = engine._runner.cache
    return len(cache.slots) + len(getattr(cache, "parked", ()))


class ExactLibrary:
    """llama.cpp with caches of float32 and without flash attention, which rounds to 16 bits.

    So logits equal those of Transformers within 1e-4, and texts do not depend on what else is in a pass.
    """

    def __init__(self) -> None:
        self._library = load_library()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def context_default_params(self) -> ContextParams:
        params: ContextParams = self._library.context_default_params()
        params.type_k = params.type_v = 0  # GGML_TYPE_F32
        params.flash_attn_type = 0
        return params


def make_engine(model: Any, **options: Any) -> BatchingEngine:
    """Returns an engine with the model: LlamaEngine for a LlamaModel, else HfEngine."""
    if not isinstance(model, LlamaModel):
        return HfEngine(model, **options)
    engine = LlamaEngine(model, **options)
    # a test that drops the engine frees its cache, but not after the model at the end of the process
    weakref.finalize(engine, engine._llama.close).atexit = False
    return engine


def byte_vocabulary() -> Vocabulary:
    """A token for each byte, and two special tokens. The other ids are no tokens."""
    names = {BOS: "<s>", EOS: "</s>"}
    return Vocabulary(
        [bytes([i]) for i in range(256)] + [b"", b""], names, eos=(EOS,), bos=BOS, vocab_size=WIDTH
    )


def generate_greedily(model: Any) -> Callable[..., list[int]]:
    """Returns a function that generates with the library. Ids that are no tokens are never chosen."""

    @functools.cache  # the tests of all engines compare with the same texts
    def generate(prompt: tuple[int, ...], max_tokens: int, eos: int | None) -> tuple[int, ...]:
        out = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            do_sample=False,
            max_new_tokens=max_tokens,
            eos_token_id=eos,
            pad_token_id=0,
            suppress_tokens=list(range(258, WIDTH)),
        )
        return tuple(out[0, len(prompt) :].tolist())

    def run(prompt: list[int], max_tokens: int, eos: int | None = EOS) -> list[int]:
        return list(generate(tuple(prompt), max_tokens, eos))

    return run


def write_tokenizer(folder: Path) -> Path:
    """Writes a folder of Transformers without weights."""
    folder.mkdir()
    letters = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    bpe = tokenizers.models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[])
    tokenizer = tokenizers.Tokenizer(bpe)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text('{"model_type": "llama", "vocab_size": 256, "eos_token_id": 0}')
    return folder
