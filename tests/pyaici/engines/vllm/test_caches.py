"""Splices and backtracks with models whose caches cannot be shortened like those of full attention."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pyaici.engines.vllm.cache_models import KINDS
from tests.pyaici.engines.vllm.configurations import Models
from tests.pyaici.engines.vllm.requests import generate, parameters
from tests.thorough import also

pytestmark = [pytest.mark.slow, pytest.mark.real_worker]

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


def on_transformers(folder: Path, texts: list[tuple[list[int], list[int]]]) -> list[list[int]]:
    """Returns the most likely token at each place of some texts, each after a prompt."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        return [
            model(torch.tensor([prompt + text])).logits[0, len(prompt) - 1 : -1].argmax(-1).tolist()
            for prompt, text in texts
        ]


#: those of two kinds of layers have the caches of the others
CONFIGURATIONS = [
    *(f"{kind}-async" for kind in KINDS if kind.endswith("full attention")),
    *also(*(f"{kind}-async" for kind in KINDS if not kind.endswith("full attention"))),
    *also(*(f"{kind}-sync" for kind in KINDS)),
]


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_moves_change_no_later_token(
    llm: Any, guests: Callable[..., None], models: Models, configuration: str
) -> None:
    """After a move, the tokens are those of a new request with the earlier ones as its prompt."""
    guests("thoughts")
    model = models(configuration.rpartition("-")[0])
    requests = []
    for prompt, arg in CASES:
        extra = {"aici_controller": "thoughts", "aici_arg": arg, "aici_hold": True}
        requests.append((prompt, parameters(max_tokens=TOKENS, ignore_eos=True, extra_args=extra)))
    written = [list(choice.token_ids) for choice in generate(llm, requests)]
    tokenizer = llm.get_tokenizer()
    texts, forced, after = [], [], []
    for (prompt, arg), tokens in zip(CASES, written, strict=True):
        step, back, text = arg.split(" ", 2)
        first = int(step) - 1 - int(back)
        kept = first + len(tokenizer.encode(text))
        assert len(tokens) == TOKENS and tokens[first:kept] == tokenizer.encode(text)
        texts.append((tokenizer.encode(prompt), tokens))
        forced.append(slice(first, kept))
        after.append(([*tokenizer.encode(prompt), *tokens[:kept]], TOKENS - kept))
    fresh = generate(
        llm,
        [
            ({"prompt_token_ids": tokens}, parameters(max_tokens=count, ignore_eos=True))
            for tokens, count in after
        ],
    )
    rests = [tokens[TOKENS - count :] for tokens, (_, count) in zip(written, after, strict=True)]
    assert rests == [list(choice.token_ids) for choice in fresh]
    likely = on_transformers(model, texts)
    for chosen, tokens, place in zip(likely, written, forced, strict=True):
        chosen[place] = tokens[place]
    assert likely == written
