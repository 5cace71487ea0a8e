"""The logits processor for vLLM with its model runner V2 (simulated), and the requests that it refuses."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from pyaici.client.runtime import Runtime
from pyaici.engines.vllm.frontend import refusals
from pyaici.engines.vllm.logits.batches import ABSENT_STEPS
from pyaici.engines.vllm.logits.processor import AiciLogitsProcessor
from tests.pyaici.engines.batching.support import EOS
from tests.pyaici.engines.model_runners import (
    PROMPT,
    V2,
    allowed,
    changes,
    config,
    has_live,
    masks,
    params,
)


def test_slots_follow_their_tokens(runtime: Runtime) -> None:
    v2 = V2()
    assert v2.add(3, params()) is False and v2.processor._slots is None
    assert v2.add(5, params("ok")) is True and v2.add(2, params("token 42")) is True
    assert v2.step(5, 3, 2) == [masks(0), None, masks(0)]
    for slot in (2, 3, 5):
        v2.append(slot, 20)
    assert v2.step(2, 5, 3) == [[42], masks(1), None]
    assert v2.step(2, 5, 3) == [[42], masks(1), None], "without a new token the rows must stay the same"
    v2.append(5, 20)
    assert v2.step(5) == [masks(2)]
    assert v2.add(5, params()) is False, "another request has the slot now"
    assert v2.step(5, 2) == [None, [42]] and has_live(runtime, 1)


def test_a_partial_prompt_has_no_constrained_row(runtime: Runtime) -> None:
    v2 = V2()
    v2.add(0, params("ok"))
    assert v2.step(0, partial=(0,)) == [None] and has_live(runtime, 0)
    assert v2.step(0) == [masks(0)]


def test_a_slot_may_start_with_an_earlier_text(runtime: Runtime) -> None:
    v2 = V2()
    v2.add(0, params("ok"), 20, 20)
    assert v2.step(0) == [masks(2)]
    v2.append(0, 20)
    v2.append(0, 20)
    assert v2.step(0) == [masks(4)], "two tokens arrive at once"
    v2.total[0] -= 2
    assert v2.step(0) == [masks(2)], "two tokens were dropped"


def test_slots_that_stay_absent_free_their_controllers(runtime: Runtime) -> None:
    v2 = V2()
    v2.add(0, params("ok"))
    v2.add(1, params("ok"))
    v2.step(0, 1)
    for _ in range(ABSENT_STEPS):
        assert has_live(runtime, 2)
        assert v2.step(1) == [masks(0)]
    assert has_live(runtime, 1)
    v2.append(0, 20)
    assert v2.step(0, 1) == [masks(1), masks(0)], "an absent slot may come back"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"world_size": 2}, "leave aici_path out"),
        ({"speculative_config": object()}, "without speculative decoding"),
        ({"async_scheduling": True}, "--no-async-scheduling"),
    ],
)
def test_engines_that_cannot_constrain_end_the_request(
    settings: dict[str, Any], words: str, caplog: Any
) -> None:
    refusal = refusals.engine_refusal(config(**settings))
    assert refusal is not None and words in refusal
    processor = AiciLogitsProcessor(config(**settings), "cpu", False)
    processor.update_state(changes(added=[(0, params("ok"), PROMPT, []), (1, params(), PROMPT, [])]))
    assert allowed(processor, 2) == [[EOS], None] and words in caplog.text


def test_supported_engines_are_not_refused(runtime: Runtime) -> None:
    for settings in (
        {},
        {"async_scheduling": True, "logits_processors": ["x"]},
        {"async_scheduling": True, "v2": True},
    ):
        assert refusals.engine_refusal(config(**settings)) is None
    drafts = V2(speculative_config=object())
    drafts.add(0, params("ok"))
    assert drafts.step(0, drafts=2) == [[EOS]] * 3


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"extra_args": {"aici_controler": "x"}}, "did you mean aici_controller"),
        ({"arg": "x", "bad_words": ["y"]}, "aici_path logits and bad_words"),
        ({"arg": "x", "allowed_token_ids": [1]}, "aici_path logits and allowed_token_ids"),
        ({"arg": "x", "structured_outputs": object()}, "aici_path logits and structured_outputs"),
        ({"arg": "x", "min_tokens": 1}, "aici_path logits and min_tokens"),
        ({"arg": "x", "ignore_eos": True}, "set stop_token_ids"),
    ],
)
def test_invalid_requests_are_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        AiciLogitsProcessor.validate_params(params(**changed))


def test_valid_requests_are_accepted_if_the_plugin_is_enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    for good in (
        params(min_tokens=3),
        params("x"),
        params("x", ignore_eos=True, stop_token_ids=[5]),
        params(extra_args={"aici_controller": "x"}, bad_words=["y"]),
    ):
        AiciLogitsProcessor.validate_params(good)
    for plugins in ("aici", "other,aici"):
        monkeypatch.setenv("VLLM_PLUGINS", plugins)
        AiciLogitsProcessor.validate_params(params("x"))
    for plugins in ("", "other"):
        monkeypatch.setenv("VLLM_PLUGINS", plugins)
        with pytest.raises(ValueError, match=r"VLLM_PLUGINS .* leaves the AICI plugin out"):
            AiciLogitsProcessor.validate_params(params("x"))


def test_the_module_of_the_entry_point_imports_no_heavy_packages() -> None:
    program = (
        "import sys, pyaici.engines.vllm.logits.processor as m; assert m.AiciLogitsProcessor; "
        "heavy = {'torch', 'numpy', 'msgpack', 'posix_ipc', 'wasmtime', 'transformers'}; "
        "assert not heavy & set(sys.modules)"
    )
    block = "import sys; sys.modules['vllm'] = None; "
    subprocess.run([sys.executable, "-c", block + program], check=True)
