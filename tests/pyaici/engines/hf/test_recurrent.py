"""Models whose layers have states: Mamba and RWKV."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from pyaici import HfEngine, Request, Sampling
from pyaici.client.runtime import Runtime
from pyaici.engines.batching.model import Feed
from pyaici.engines.hf.recurrent import RecurrentRunner
from pyaici.testing.playground import PATIENT
from pyaici.tokens import Vocabulary
from tests.pyaici.engines.batching.support import EOS, CountingPasses, make_model

MODELS: dict[str, dict[str, Any]] = {
    "MambaConfig": {},
    "Mamba2Config": {"num_heads": 8, "head_dim": 8, "n_groups": 1, "state_size": 16, "chunk_size": 8},
    "FalconMambaConfig": {},
    "RwkvConfig": {"context_length": 256},
}
PROMPTS = [[1, 2, 3], [10] * 20, [5, 6, 7, 8, 9, 10, 11]]


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> Any:
    return make_model(request.param, **MODELS[request.param])


@pytest.fixture
def engine(model: Any, vocabulary: Vocabulary) -> HfEngine:
    return HfEngine(model, vocabulary=vocabulary, keep=2)


def _greedily(model: Any, prompt: list[int], count: int) -> list[int]:
    """Generates by a pass over the whole text for each token."""
    ids = torch.tensor([prompt])
    for _ in range(count):
        logits = model(input_ids=ids, use_cache=False).logits[0, -1, :258]
        ids = torch.cat([ids, logits.argmax().view(1, 1)], dim=1)
        if ids[0, -1] == EOS:
            break
    return [int(token) for token in ids[0]]


def test_tokens_are_those_of_passes_over_the_whole_text(model: Any, engine: HfEngine) -> None:
    results = engine.run([Request(prompt, max_tokens=20) for prompt in PROMPTS])
    assert [result.tokens for result in results] == [_greedily(model, prompt, 20) for prompt in PROMPTS]


def test_logits_after_backtracking_forks_and_splices(model: Any) -> None:
    """Random histories of slots; each row of logits equals that of a pass over the slot's tokens."""
    runner = RecurrentRunner(model)
    generator = torch.Generator().manual_seed(5)

    def number(most: int) -> int:
        return int(torch.randint(most, (1,), generator=generator))

    histories: dict[Any, list[int]] = {runner.cache.new_slot(): []}
    passes = 0
    for _ in range(40):
        slot = list(histories)[number(len(histories))]
        match number(4):
            case 0 if histories[slot]:
                # backtracking: far behind, or by a few tokens
                slot.length = number(1 + slot.length) if number(2) else max(0, slot.length - number(4))
                del histories[slot][slot.length :]
            case 1 if len(histories) < 6:
                fork = runner.cache.fork(slot)
                # it may have fewer tokens, which the engine would feed again
                histories[fork] = histories[slot][: fork.length]
            case 2 if len(histories) > 3:
                runner.cache.free(slot)
                del histories[slot]
            case _:
                chosen = [one for one in histories if one is slot or number(2)]
                feeds = [
                    Feed(one, [number(256) for _ in range(1 + number(3))], number(2) > 0) for one in chosen
                ]
                for feed, line in zip(feeds, runner.run(feeds), strict=True):
                    histories[feed.slot] += feed.tokens
                    assert feed.slot.length == len(histories[feed.slot])
                    ids = torch.tensor([histories[feed.slot]])
                    with torch.no_grad():
                        logits = model(input_ids=ids, use_cache=False).logits[0]
                    lines = line if feed.every else [line]
                    expected = logits[-len(lines) :]
                    torch.testing.assert_close(
                        torch.as_tensor(np.stack(lines)), expected, atol=1e-3, rtol=1e-3
                    )
                    passes += 1
    assert passes > 20


def test_a_slot_keeps_few_states_and_rereads_little(model: Any) -> None:
    runner = RecurrentRunner(model)
    slot = runner.cache.new_slot()
    for token in range(150):
        runner.run([Feed(slot, [token])])
    assert len(slot.states) <= 16
    for back in (1, 5, 8, 20, 60):
        reread = slot.length - back - slot.latest(slot.length - back)
        assert reread <= (0 if back < 8 else back)


def test_forks_share_their_states(model: Any) -> None:
    runner = RecurrentRunner(model)
    slot = runner.cache.new_slot()
    runner.run([Feed(slot, [1, 2, 3])])
    fork = runner.cache.fork(slot)
    before = [tensor.clone() for tensor in fork.states[3]]
    assert all(one is other for one, other in zip(slot.states[3], fork.states[3], strict=True))
    runner.run([Feed(slot, [4]), Feed(fork, [5])])
    for one, other in zip(before, fork.states[3], strict=True):
        assert torch.equal(one, other)
    assert any(not torch.equal(*pair) for pair in zip(slot.states[4], fork.states[4], strict=True))


def test_same_prompt_is_not_read_again(engine: HfEngine) -> None:
    prompt = list(range(40))
    (first,) = engine.run([Request(prompt, max_tokens=4)])
    with CountingPasses(engine) as counting:
        (second,) = engine.run([Request(prompt, max_tokens=4)])
    assert second.tokens == first.tokens
    assert sum(map(sum, counting.passes)) == 4
    assert engine.stats.reused == 39


def test_samples_and_beams(model: Any, engine: HfEngine) -> None:
    samples = engine.run([Request([1, 2], n=3, sampling=Sampling(temperature=1.0, seed=3), max_tokens=6)])
    assert len({tuple(sample.tokens) for sample in samples}) > 1
    (best,) = engine.run([Request([1, 2], beams=2, max_tokens=6)])
    assert best.error is None and len(best.new_tokens) <= 6


def test_controllers_fork_and_backtrack(model: Any, vocabulary: Vocabulary) -> None:
    with Runtime(workers=1, limits=PATIENT) as runtime:
        engine = HfEngine(model, vocabulary=vocabulary, runtime=runtime)
        forks = engine.run([Request([72, 105], controller="showcase", max_tokens=200)])
        assert len(forks) == 3 and all(fork.error is None for fork in forks)
        assert sum(fork.backtracked for fork in forks) > 0
        answers = [" red", " green"]
        (answer,) = engine.run([Request([72], controller="choice", arg=answers, max_tokens=60)])
        assert answer.text in answers


def test_limits_of_the_cache(model: Any, vocabulary: Vocabulary) -> None:
    with pytest.raises(ValueError, match="no key-value cache"):
        HfEngine(model, vocabulary=vocabulary, cache_tokens=4096)
    engine = HfEngine(model, vocabulary=vocabulary, cache_tokens="auto")
    assert (engine._budget.most_sequences or 0) >= 1
    (result,) = engine.run([Request([1], max_tokens=3)])
    assert len(result.new_tokens) == 3
