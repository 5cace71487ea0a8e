"""The logits processor for vLLM under its model runner V1, with the real runtime."""

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
from tests.pyaici.engines.hf.support import EOS, WIDTH
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
    assert has_live(runtime, 0), "a processor that goes frees its controllers"


def test_rows_follow_their_tokens(v1: V1) -> None:
    assert v1.step(changes(added=[v1.add(0, params()), v1.add(1, params("ok"))]), 2) == [None, masks(0)]
    assert v1.step(None, 2) == [None, masks(0)], "a part of a prompt: the token was thrown away"
    v1.outputs[1].append(20)
    assert v1.step(None, 2) == [None, masks(1)]
    v1.outputs[1].append(masks(1)[0])
    assert v1.step(None, 2) == [None, masks(2)]


def test_engines_without_controlled_requests_pay_nothing(v1: V1) -> None:
    assert (
        v1.step(changes(added=[v1.add(0, params()), v1.add(1, params(extra_args={"x": 1}))]), 2) == [None] * 2
    )
    assert v1.processor._shared is None, "neither a runtime nor a thing to look through"


def test_requests_move_swap_leave_and_are_replaced(v1: V1) -> None:
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
    assert v1.step(changes(added=replacing), 3) == [[50], [42], [44]], "one that has an output already"
    assert v1.step(changes(added=[v1.add(2, params())]), 3) == [[50], [42], None]
    assert has_live(v1.runtime, 2)
    assert v1.step(changes(moved=[(2, 1, SWAP)]), 3) == [[50], None, [42]]
    assert v1.step(changes(removed=[2, 1, 0]), 1) == [None]
    assert has_live(v1.runtime, 0)


def test_a_request_comes_back_after_a_preemption(v1: V1) -> None:
    for cut in range(4):
        text = [20, masks(1)[0], 20, 20]
        v1.step(changes(added=[v1.add(0, params("ok"), *text[:cut])]))
        assert v1.step(None) == [masks(cut)]
        v1.outputs[0].append(text[cut])
        assert v1.step(changes(removed=[0]), 1) == [None] and has_live(v1.runtime, 0)
        v1.step(changes(added=[v1.add(0, params("ok"), *text[: cut + 1])]))
        assert v1.step(None) == [masks(cut + 1)]


def test_a_request_that_comes_back_with_another_text_ends(v1: V1, caplog: Any) -> None:
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


def test_tokens_that_are_known_late(v1: V1) -> None:
    """Async scheduling: the list holds -1 until shortly before `apply`."""
    v1.step(changes(added=[v1.add(0, params("ok"))]))
    v1.outputs[0].append(-1)
    v1.processor.update_state(None)
    v1.outputs[0][-1] = 20
    assert allowed(v1.processor, 1) == [masks(1)]


def test_tokens_that_are_never_known_end_the_request(v1: V1, caplog: Any) -> None:
    v1.step(changes(added=[v1.add(0, params("ok"))]))
    v1.outputs[0].append(-1)
    assert v1.step() == [[EOS]] and "does not tell which tokens" in caplog.text
    v1.outputs[0][-1] = EOS
    assert v1.step() == [[EOS]]


def test_tokens_that_vllm_drops_are_forgotten(v1: V1) -> None:
    v1.step(changes(added=[v1.add(0, params("ok"))]))
    for _ in range(3):
        v1.outputs[0].append(20)
        v1.step()
    del v1.outputs[0][1:]
    assert v1.step() == [masks(1)] and has_live(v1.runtime, 1)


def test_failures_end_their_request_only(v1: V1, caplog: Any) -> None:
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


def test_the_end_token_is_one_that_ends_the_request(v1: V1) -> None:
    added = [v1.add(0, params("mid_return_stop", eos_token_id=None, stop_token_ids=[9, 5]))]
    v1.step(changes(added=added))
    v1.outputs[0].append(20)
    assert v1.step() == [[5]]


def test_biases(v1: V1) -> None:
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


def test_a_processor_that_is_there_twice_works_once(runtime: Runtime) -> None:
    one = config()
    first, second = (AiciLogitsProcessor(one, "cpu", False) for _ in range(2))
    for processor in (first, second):
        processor.update_state(changes(added=[(0, params("ok"), PROMPT, [])]))
    assert allowed(first, 1) == [masks(0)] and allowed(second, 1) == [None]
    assert has_live(runtime, 1)


def test_a_daemon_that_dies_ends_its_requests_and_is_replaced(
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


def test_a_daemon_that_is_not_there(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: Any
) -> None:
    monkeypatch.setenv("AICI_SOCKET", str(tmp_path / "none.sock"))
    runner = AiciLogitsProcessor(config(), "cpu", False)
    runner.update_state(changes(added=[(0, params("ok"), PROMPT, []), (1, params(), PROMPT, [])]))
    assert allowed(runner, 2) == [[EOS], None] and "none.sock" in caplog.text
