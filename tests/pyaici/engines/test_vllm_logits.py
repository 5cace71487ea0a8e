"""The logits processor for vLLM with its model runner V1 (simulated) and the real runtime."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pyaici.client.runtime import Runtime
from pyaici.engines.vllm.logits import constraints
from pyaici.engines.vllm.logits.processor import AiciLogitsProcessor
from tests.pyaici.engines.batching.support import EOS, WIDTH
from tests.pyaici.engines.model_runners import (
    PROMPT,
    SWAP,
    UNIDIRECTIONAL,
    V1,
    allowed,
    changes,
    config,
    has_live,
    masks,
    params,
)


@pytest.fixture
def v1(runtime: Runtime) -> Iterator[V1]:
    runner = V1(runtime)
    yield runner
    del runner.processor
    gc.collect()
    assert has_live(runtime, 0), "a deleted processor must free its controllers"


def test_rows_follow_their_tokens(v1: V1) -> None:
    assert v1.step(changes(added=[v1.add(0, params()), v1.add(1, params("ok"))]), 2) == [None, masks(0)]
    assert v1.step(None, 2) == [None, masks(0)], "after a part of a prompt vLLM drops the token"
    v1.outputs[1].append(20)
    assert v1.step(None, 2) == [None, masks(1)]
    v1.outputs[1].append(masks(1)[0])
    assert v1.step(None, 2) == [None, masks(2)]


def test_engines_without_controlled_requests_start_no_runtime(v1: V1) -> None:
    assert (
        v1.step(changes(added=[v1.add(0, params()), v1.add(1, params(extra_args={"x": 1}))]), 2) == [None] * 2
    )
    assert v1.processor._shared is None, "there must be no runtime and no state"


def test_requests_can_move_swap_leave_and_be_replaced(v1: V1) -> None:
    arguments = ["token 42", "token 43", "token 44", "token 45"]
    added = [v1.add(i, params(argument)) for i, argument in enumerate(arguments)]
    v1.step(changes(added=added), 4)
    for outputs in v1.outputs.values():
        outputs.append(20)
    assert v1.step(None, 4) == [[42], [43], [44], [45]]
    assert v1.step(changes(moved=[(0, 3, SWAP)]), 4) == [[45], [43], [44], [42]]
    assert has_live(v1.runtime, 4)
    assert v1.step(changes(removed=[1], moved=[(3, 1, UNIDIRECTIONAL)]), 3) == [[45], [42], [44]]
    assert has_live(v1.runtime, 3)
    replacing = [v1.add(0, params("token 50"), 20)]
    assert v1.step(changes(added=replacing), 3) == [[50], [42], [44]], "the new request has an output already"
    assert v1.step(changes(added=[v1.add(2, params())]), 3) == [[50], [42], None]
    assert has_live(v1.runtime, 2)
    assert v1.step(changes(moved=[(2, 1, SWAP)]), 3) == [[50], None, [42]]
    assert v1.step(changes(removed=[2, 1, 0]), 1) == [None]
    assert has_live(v1.runtime, 0)


def test_a_preempted_request_is_resumed(v1: V1) -> None:
    for cut in range(4):
        text = [20, masks(1)[0], 20, 20]
        v1.step(changes(added=[v1.add(0, params("ok"), *text[:cut])]))
        assert v1.step(None) == [masks(cut)]
        v1.outputs[0].append(text[cut])
        assert v1.step(changes(removed=[0]), 1) == [None] and has_live(v1.runtime, 0)
        v1.step(changes(added=[v1.add(0, params("ok"), *text[: cut + 1])]))
        assert v1.step(None) == [masks(cut + 1)]


def test_a_resumed_request_with_a_different_text_ends(v1: V1, caplog: Any) -> None:
    with caplog.at_level(logging.ERROR, "vllm.aici"):
        assert v1.step(changes(added=[v1.add(0, params("ok"), 20, 99)])) == [[EOS]]
    assert "token 99 was sampled, which the controller forbade" in caplog.text


def test_forced_text_survives_a_preemption(v1: V1) -> None:
    v1.step(changes(added=[v1.add(0, params("splice 0"))]))
    for token, then in ((20, [7]), (7, [8]), (8, [7]), (7, [8])):
        v1.outputs[0].append(token)
        assert v1.step() == [then]
    v1.step(changes(removed=[0]))
    assert v1.step(changes(added=[v1.add(0, params("splice 0"), 20, 7, 8, 7)])) == [[8]]


def test_tokens_may_be_unknown_until_apply(v1: V1) -> None:
    """With async scheduling, the list holds -1 until shortly before `apply`."""
    v1.step(changes(added=[v1.add(0, params("ok"))]))
    v1.outputs[0].append(-1)
    v1.processor.update_state(None)
    v1.outputs[0][-1] = 20
    assert allowed(v1.processor, 1) == [masks(1)]


def test_tokens_that_stay_unknown_end_the_request(v1: V1, caplog: Any) -> None:
    v1.step(changes(added=[v1.add(0, params("ok"))]))
    v1.outputs[0].append(-1)
    assert v1.step() == [[EOS]] and "does not report the sampled tokens" in caplog.text
    v1.outputs[0][-1] = EOS
    assert v1.step() == [[EOS]]


def test_tokens_dropped_by_vllm_are_removed(v1: V1) -> None:
    v1.step(changes(added=[v1.add(0, params("ok"))]))
    for _ in range(3):
        v1.outputs[0].append(20)
        v1.step()
    del v1.outputs[0][1:]
    assert v1.step() == [masks(1)] and has_live(v1.runtime, 1)


def test_failures_end_only_their_own_request(v1: V1, caplog: Any) -> None:
    arguments = ["mid_trap", "mid_return_stop", "ok", "init_refuse", "mid_loop"]
    added = [v1.add(i, params(argument)) for i, argument in enumerate(arguments)]
    added += [v1.add(5, params("x", controller="nonesuch")), (6, params("ok"), None, [])]
    added += [v1.add(7, params("ok", eos_token_id=None, stop_token_ids=[9, 5]))]
    added += [v1.add(8, params(extra_args={"aici_controler": "x"}))]
    first = v1.step(changes(added=added), 9)
    assert first == [masks(0)] * 3 + [[EOS], masks(0), [EOS], [EOS], masks(0), [EOS]]
    for index in range(9):
        v1.outputs.setdefault(index, []).append(20)
    second = v1.step(None, 9)
    assert second == [[EOS], [EOS], masks(1), [EOS], [EOS], [EOS], [EOS], masks(1), [EOS]]
    for words in (
        "'guest' of a request has failed",
        "'nonesuch'",
        "unreachable",
        "embeddings",
        "aici_controler",
    ):
        assert words in caplog.text
    assert has_live(v1.runtime, 2)


def test_without_eos_the_lowest_stop_token_is_forced(v1: V1) -> None:
    added = [v1.add(0, params("mid_return_stop", eos_token_id=None, stop_token_ids=[9, 5]))]
    v1.step(changes(added=added))
    v1.outputs[0].append(20)
    assert v1.step() == [[5]]


def test_biases_are_added_to_the_logits(v1: V1) -> None:
    added = [v1.add(0, params("dense")), v1.add(1, params("sparse 9")), v1.add(2, params())]
    v1.step(changes(added=added), 3)
    for outputs in v1.outputs.values():
        outputs.append(20)
    v1.processor.update_state(None)
    logits = torch.ones(3, WIDTH)
    v1.processor.apply(logits)
    assert logits[0, :200].tolist() == [1.0 + t for t in range(200)]
    assert logits[1].isfinite().nonzero().flatten().tolist() == [3, 9] and logits[1, 3] == 1.5
    assert logits[2].eq(1).all()


def test_of_two_processors_in_an_engine_only_one_acts(runtime: Runtime) -> None:
    one = config()
    first, second = (AiciLogitsProcessor(one, "cpu", False) for _ in range(2))
    for processor in (first, second):
        processor.update_state(changes(added=[(0, params("ok"), PROMPT, [])]))
    assert allowed(first, 1) == [masks(0)] and allowed(second, 1) == [None]
    assert has_live(runtime, 1)


def test_requests_end_when_their_daemon_dies_and_a_new_one_starts(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(constraints, "RETRY_SECONDS", 0.0)
    runner = AiciLogitsProcessor(config(), "cpu", False)
    monkeypatch.delenv("AICI_SOCKET")
    outputs: dict[int, list[int]] = {0: [], 1: []}
    runner.update_state(changes(added=[(0, params("[0-9]+", "regex"), PROMPT, outputs[0])]))
    assert allowed(runner, 1) == [list(b"0123456789")]
    own = runner._shared._constraints._runtime  # type: ignore[union-attr]
    own._daemon._process.kill()
    own._daemon._process.wait()
    outputs[0].append(ord("5"))
    runner.update_state(changes(added=[(1, params("[a-c]", "regex"), PROMPT, outputs[1])]))
    assert allowed(runner, 2) == [[EOS], list(b"abc")]
    assert "'regex' of a request has failed" in caplog.text


def test_a_missing_daemon_ends_only_controlled_requests(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: Any
) -> None:
    monkeypatch.setenv("AICI_SOCKET", str(tmp_path / "none.sock"))
    runner = AiciLogitsProcessor(config(), "cpu", False)
    runner.update_state(changes(added=[(0, params("ok"), PROMPT, []), (1, params(), PROMPT, [])]))
    assert allowed(runner, 2) == [[EOS], None] and "none.sock" in caplog.text
