"""Distributions of the next token from vLLM are those of the engine on Transformers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyaici import VllmEngine
from pyaici.cpc import Session, TokenTrie, sample_exact
from pyaici.engines.batching.histories import EngineModel, log_softmax
from pyaici.engines.engine import FinishReason, Request, run_to_end
from tests.pyaici.engines.vllm.requests import FRANCE

pytestmark = [pytest.mark.slow, pytest.mark.any_worker]


def test_distributions_equal_those_on_transformers(llm: Any, hf: Any) -> None:
    """Requests with and without a controller run beside them and have their own results."""
    engine = VllmEngine(llm)
    requests = [Request(FRANCE, "regex", " [a-z]{4,}", max_tokens=9), Request(FRANCE, max_tokens=9)]
    alone = [result.new_tokens for result in engine.run(requests)]
    numbers = [engine.add(request) for request in requests]
    tokenizer = llm.get_tokenizer()
    histories = [tokenizer.encode(text) for text in (FRANCE, "Once upon a time", "def f(x):")]
    found, expected = engine.next_logits(histories), log_softmax(hf.next_logits(histories))
    assert found.shape == (3, engine.num_tokens)
    assert np.exp(found).sum(axis=1) == pytest.approx(1, abs=1e-4)
    assert np.abs(found - expected).max() < 5e-3
    engine.run()
    results = [engine.results(number)[0] for number in numbers]
    assert [result.new_tokens for result in results] == alone
    assert {result.finish_reason for result in results} == {FinishReason.LENGTH}


def test_a_prefix_has_the_same_certificate_as_on_transformers(llm: Any, hf: Any) -> None:
    engine = VllmEngine(llm)
    context = tuple(hf.tokenizer.encode(FRANCE))
    drawn = []
    for each in (engine, hf):
        tree = Session(EngineModel(each), TokenTrie(each.vocabulary)).tree(context, b" Par")
        drawn.append(sample_exact(tree, np.random.default_rng(0)))
    (cover, certificate), (same, expected) = drawn
    assert cover == same and cover.text.startswith(b" Par")
    assert certificate.model_evals == expected.model_evals and not certificate.approximate
    assert certificate.log_z_upper == pytest.approx(expected.log_z_upper, abs=1e-3)


def test_scores_equal_those_on_transformers(llm: Any, hf: Any) -> None:
    engine = VllmEngine(llm)
    tokens = hf.tokenizer.encode(FRANCE)
    (beside,) = engine.run([Request(FRANCE, "regex", " [a-z]{4,}", max_tokens=9)])
    found, expected = (run_to_end(each.scores_in_pieces(tokens, 3)) for each in (engine, hf))
    assert len(found) == len(expected) == len(tokens) - 1
    for (logprob, top), (wanted, best) in zip(found, expected, strict=True):
        assert logprob == pytest.approx(wanted, abs=5e-3)
        assert [value for _, value in top] == pytest.approx([value for _, value in best], abs=5e-3)
    pieces = engine.scores_in_pieces(tokens, 0)
    next(pieces)
    pieces.close()
    assert not engine._engine.has_unfinished_requests()
    with pytest.raises(ValueError, match="512"):
        run_to_end(engine.scores_in_pieces([5] * 600, 0))
    (again,) = engine.run([Request(FRANCE, "regex", " [a-z]{4,}", max_tokens=9)])
    assert again.new_tokens == beside.new_tokens


def test_an_abandoned_distribution_ends(llm: Any) -> None:
    pieces = VllmEngine(llm).logits_in_pieces([[5, 6, 7]])
    next(pieces)
    pieces.close()
    assert not llm.llm_engine.has_unfinished_requests()


def test_errors_say_what_is_wrong(llm: Any) -> None:
    engine = VllmEngine(llm)
    with pytest.raises(ValueError, match="512"):
        engine.next_logits([[5], [5] * 600])
    assert not engine._engine.has_unfinished_requests()


@pytest.mark.configuration("sync")
def test_an_engine_without_all_log_probabilities_says_how_to_get_them(llm: Any) -> None:
    with pytest.raises(ValueError, match="max_logprobs=-1"):
        VllmEngine(llm).next_logits([[5]])
