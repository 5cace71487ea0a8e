"""Splices and backtracks with models whose caches cannot be shortened like those of full attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyaici.client.daemon import Daemon
from pyaici.client.runtime import Runtime
from tests.pyaici.engines.vllm.cache_models import KINDS, make_cache_model
from tests.pyaici.engines.vllm.engines import Engines
from tests.pyaici.engines.vllm.guests import second_thoughts
from tests.pyaici.engines.vllm.requests import generate, parameters

pytestmark = pytest.mark.slow

LONG = "One day a mouse met a lion who had lost his way in the wood, and the mouse said to him: "
#: prompt, argument of the controller: in a step it removes tokens and appends a text. It removes few tokens,
#: more than a window has, or whole blocks, and none in the last two cases
CASES = [
    ("One two three", "9 3 four five"),
    (LONG, "70 2 red apples"),
    (LONG, "61 30 "),
    (LONG * 2, "50 44 a b c"),
    ("One two three", "9 0 four five six seven"),
    (LONG, "40 0 "),
]
TOKENS = 90


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("thoughts")
    wasm = second_thoughts(folder)
    with Daemon(workers=1, store=folder / "store") as daemon, Runtime(daemon.socket_path) as runtime:
        runtime.tag(runtime.upload(wasm).id, "thoughts")
        yield daemon


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def find(kind: str) -> Path:
        if kind not in made:
            made[kind] = make_cache_model(kind, tmp_path_factory.mktemp("model"))
        return made[kind]

    return find


def on_transformers(folder: Path, prompts: list[tuple[list[int], int]]) -> list[list[int]]:
    """Returns the continuations of prompts, each with a number of tokens."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return [
        model.generate(torch.tensor([tokens]), max_new_tokens=count, min_new_tokens=count, do_sample=False)[
            0, len(tokens) :
        ].tolist()
        for tokens, count in prompts
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"async_scheduling": True}], ids=["sync", "async"])
def test_moves_change_no_later_token(
    engines: Engines,
    daemon: Daemon,
    models: Callable[[str], Path],
    kind: str,
    options: dict[str, Any],
) -> None:
    """After a move, the tokens are those of a new request with the earlier ones as its prompt."""
    if kind == "states and full attention":
        options = options | {"enable_prefix_caching": False}  # vLLM's CPU build fails with it
    llm = engines(model=models(kind), env={"AICI_SOCKET": str(daemon.socket_path)}, **options)
    requests = []
    for prompt, arg in CASES:
        extra = {"aici_controller": "thoughts", "aici_arg": arg, "aici_hold": True}
        requests.append((prompt, parameters(max_tokens=TOKENS, ignore_eos=True, extra_args=extra)))
    written = [list(choice.token_ids) for choice in generate(llm, requests)]
    tokenizer = llm.get_tokenizer()
    before, after = [], []
    for (prompt, arg), tokens in zip(CASES, written, strict=True):
        step, back, text = arg.split(" ", 2)
        first = int(step) - 1 - int(back)
        kept = first + len(tokenizer.encode(text))
        assert len(tokens) == TOKENS and tokens[first:kept] == tokenizer.encode(text)
        before.append((tokenizer.encode(prompt), first))
        after.append(([*tokenizer.encode(prompt), *tokens[:kept]], TOKENS - kept))
    starts = [tokens[:count] for tokens, (_, count) in zip(written, before, strict=True)]
    rests = [tokens[TOKENS - count :] for tokens, (_, count) in zip(written, after, strict=True)]
    fresh = generate(
        llm,
        [
            ({"prompt_token_ids": tokens}, parameters(max_tokens=count, ignore_eos=True))
            for tokens, count in after
        ],
    )
    assert rests == [list(choice.token_ids) for choice in fresh]
    assert starts == on_transformers(models(kind), before)
    assert rests == on_transformers(models(kind), after)
