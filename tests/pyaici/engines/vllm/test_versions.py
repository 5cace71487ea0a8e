"""Differences between the versions of vLLM."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import vllm
from packaging.version import Version

from lab.vllm.engines import Engines
from tests.pyaici.engines.vllm.requests import FRANCE, generate, parameters, scheduler_of

#: vLLM 0.32 has none of them
NEW = Version(vllm.__version__) >= Version("0.33")


@pytest.fixture
def ahead(
    model_path: Path, sockets: dict[str, str], guests: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> Any:
    """An engine whose hashes cover a token after each block, as with drafts by EAGLE."""
    from vllm.config import VllmConfig

    if NEW:
        monkeypatch.setattr(VllmConfig, "num_hash_lookahead_tokens", property(lambda config: 1))
    guests("thoughts")
    engines = Engines(model_path)
    yield engines(env={"AICI_SOCKET": sockets["shared"]})
    engines.close()


def test_hashes_of_blocks_follow_every_change_of_a_text(ahead: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each step, the hashes of a request are those of a new request with the same tokens."""
    scheduler = scheduler_of(ahead)
    assert getattr(scheduler, "num_hash_lookahead_tokens", 0) == int(NEW)
    checked: set[int] = set()
    step = ahead.llm_engine.step

    def step_and_check() -> Any:
        outputs = step()
        for request in scheduler.requests.values():
            had = list(request.block_hashes)
            del request.block_hashes[:]
            request.update_block_hashes()
            assert had == request.block_hashes, request.request_id
            checked.add(len(had))
        return outputs

    monkeypatch.setattr(ahead.llm_engine, "step", step_and_check)
    requests = []
    for left in range(1, 5):  # before, at and after the end of a block of 32
        settings = parameters("thoughts", f"7 {7 - left}  red blue", max_tokens=12)
        settings.extra_args["aici_hold"] = True
        requests.append((FRANCE * 6, settings))
    choices = generate(ahead, requests)
    assert [choice.finish_reason for choice in choices] == ["length"] * len(requests)
    assert checked >= {0, 1}
