"""The simulated worker: it notices what a scheduler does wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.vllm.engines import Engines
from lab.vllm.simulated.model import TinyModel
from pyaici.engines.vllm.scheduling import requests as controlled_requests
from tests.pyaici.engines.vllm.requests import FRANCE, generate, parameters

pytestmark = [pytest.mark.slow, pytest.mark.simulated_worker]


def test_every_token_of_a_text_matters() -> None:
    model, text = TinyModel(), list(range(100, 140))
    plain = model.logits(text)
    assert (model.logits(text) == plain).all()
    for at in range(len(text)):
        assert (model.logits([*text[:at], 7, *text[at + 1 :]]) != plain).any()
    assert (model.logits([text[1], text[0], *text[2:]]) != plain).any()
    assert (model.logits(text, adapter=1) != plain).any()


@pytest.fixture
def own(model_path: Path, sockets: dict[str, str]) -> Any:
    """An engine that may fail."""
    engines = Engines(model_path)
    yield engines(env={"AICI_SOCKET": sockets["shared"]}, max_num_seqs=7)
    engines.close()


def test_a_token_that_was_not_read_is_noticed(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A splice whose tokens count as computed would leave other tokens in the cache."""
    move = controlled_requests.move

    def count_too_many(scheduler: Any, request: Any, backtrack: int, tokens: Any) -> None:
        move(scheduler, request, backtrack, tokens)
        request.num_computed_tokens = len(request._all_token_ids) - 1

    monkeypatch.setattr(controlled_requests, "move", count_too_many)
    script = "from aici import force\nasync def main():\n    await force(' one two three four five')\n"
    request = parameters(max_tokens=20)
    request.extra_args = {"aici_script": {"language": "python", "source": script}}
    with pytest.raises(AssertionError, match=r"but slot [0-9]+ has token"):
        generate(own, [(FRANCE, request)])
