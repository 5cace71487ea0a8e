"""Compares samples of a real model, by the sampler and the controller, with all covers of a prefix."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from lab.measurement.chi_square import p_value
from lab.suites.cpc import Replay, cover_probabilities
from pyaici import EngineModel, HfEngine, Request, Sampling
from pyaici.client.runtime import Runtime
from pyaici.cpc import Session, TokenTrie, enumerate_covers, sample_exact, sample_pcas
from pyaici.models import default_model_path
from pyaici.testing.playground import PATIENT
from pyaici.toolchain import build_controller
from tests.languages import compiler_or_skip
from tests.thorough import cases

CONTEXT, PREFIX = "To be or not to", " be, th"
#: number of samples of the controller, each a sequence of the engine, and how many run together
SEQUENCES, TOGETHER = cases(64, 256), 8
ALPHA = 1e-4


# test_exactness.py proves the same with small models, and server/cpc/test_routes.py asks the real one
@pytest.mark.slow
@pytest.mark.thorough
def test_samples_have_the_distribution_of_the_enumeration(tmp_path: Path) -> None:
    """There are 24 histories; the enumeration computes the softmax in float64."""
    torch.set_num_threads(1)
    path = default_model_path()
    model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    tokenizer: Any = AutoTokenizer.from_pretrained(path)
    with compiler_or_skip():
        wasm = build_controller(
            Path(__file__).parents[3] / "controllers/prefix", tmp_path / "prefix.wasm"
        ).path
    with Runtime(workers=1, limits=PATIENT) as runtime, HfEngine(model, tokenizer, runtime, keep=8) as engine:
        prompt = tuple(tokenizer.encode(CONTEXT))
        trie = TokenTrie(engine.vocabulary)
        tree = Session(EngineModel(engine), trie).tree(prompt, PREFIX.encode())
        enumerate_covers(tree)
        assert sum(1 for _ in tree.nodes()) == 24
        exactly = cover_probabilities(tree)
        assert sum(exactly.values()) == pytest.approx(1.0)

        rng = np.random.default_rng(5)
        drawn: dict[str, Counter[tuple[int, ...]]] = {"exact": Counter(), "pcas": Counter()}
        for _ in range(200):
            fresh = Session(Replay(tree.distributions), trie).tree(prompt, PREFIX.encode())
            for _ in range(10):
                drawn["exact"][sample_exact(fresh, rng)[0].tokens] += 1
                drawn["pcas"][sample_pcas(fresh, rng)[0].tokens] += 1
        assert p_value(drawn["exact"], exactly, most=50) > ALPHA > p_value(drawn["pcas"], exactly, most=50)

        module = runtime.upload(wasm).id
        arg = json.dumps({"prefix": PREFIX, "max_trials": 200})
        covers: Counter[tuple[int, ...]] = Counter()
        for start in range(0, SEQUENCES, TOGETHER**2):
            requests = [
                Request(
                    prompt,
                    controller=module,
                    arg=arg,
                    n=TOGETHER,
                    max_tokens=8,
                    sampling=Sampling(1.0, seed=(start + number + 1) << 20),
                )
                for number in range(TOGETHER)
            ]
            for result in engine.run(requests):
                assert result.error is None and '"approximate": false' in result.log, result
                tokens = tuple(result.new_tokens)
                ends = [n for n in range(len(tokens) + 1) if text_of(trie, tokens[:n]).startswith(PREFIX)]
                covers[tokens[: ends[0]]] += 1
        assert p_value(covers, exactly, most=50) > ALPHA


def text_of(trie: TokenTrie, tokens: tuple[int, ...]) -> str:
    return trie.vocabulary.decode(tokens).decode("utf-8", "replace")
