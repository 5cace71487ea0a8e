"""Parameters of vLLM beside a controller that appends and removes tokens: the table of docs/vllm.md."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.pyaici.engines.vllm.requests import FRANCE, generate, parameters
from tests.thorough import also, cases, thorough

pytestmark = pytest.mark.slow

#: the end token of the default model
END = 2


@pytest.fixture(autouse=True)
def uploaded(guests: Callable[..., None]) -> None:
    guests("thoughts", "flags")


def controlled(controller: str, arg: Any, *, hold: bool = True, **options: Any) -> Any:
    extra = {"aici_controller": controller, "aici_arg": arg, "aici_hold": hold}
    return parameters(**{"extra_args": extra, **options})


#: penalties, and the argument of the controller: its step, how many tokens it removes, and what it appends
PENALTIES = [
    ({"presence_penalty": 1.9}, "7 0  red red blue"),
    ({"frequency_penalty": 1.5}, "7 0  red red blue"),
    ({"frequency_penalty": -0.4, "presence_penalty": 0.7}, "9 3  red blue red"),
    ({"repetition_penalty": 1.4}, "7 2  red red blue"),
    ({"repetition_penalty": 1.2, "frequency_penalty": 1.1}, "12 0  red"),
]


def write_penalized(llm: Any, count: int = 40) -> list[list[int]]:
    requests = [
        (FRANCE, controlled("thoughts", arg, max_tokens=count, **options)) for options, arg in PENALTIES
    ]
    return [list(choice.token_ids) for choice in generate(llm, requests)]


@pytest.fixture(scope="session")
def check_penalties(model_path: Path) -> Callable[[list[list[int]]], None]:
    """Checks texts of `write_penalized` against the logits of Transformers."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(model_path)
    prompt = tokenizer.encode(FRANCE)

    def check(texts: list[list[int]]) -> None:
        for (options, arg), tokens in zip(PENALTIES, texts, strict=True):
            step, back, appended = arg.split(" ", 2)
            first = int(step) - 1 - int(back)
            forced = range(first, first + len(tokenizer.encode(appended)))
            assert tokens[forced.start : forced.stop] == tokenizer.encode(appended)
            with torch.inference_mode():
                logits = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 :]
            for at, token in enumerate(tokens):
                if at not in forced:
                    best = int(_penalize(logits[at].clone(), prompt, tokens[:at], **options).argmax())
                    assert token == best, (options, at)

    return check


def _penalize(
    logits: torch.Tensor,
    prompt: list[int],
    output: list[int],
    presence_penalty: float = 0,
    frequency_penalty: float = 0,
    repetition_penalty: float = 1,
) -> torch.Tensor:
    for token in {*prompt, *output}:
        logits[token] *= 1 / repetition_penalty if logits[token] > 0 else repetition_penalty
    for token in set(output):
        logits[token] -= presence_penalty + frequency_penalty * output.count(token)
    return logits


#: parameters, controller, argument, and the expected text, number of tokens, finish reason and stop reason.
#: None as a text or number: it is not compared
ROWS: dict[str, tuple[dict[str, Any], str, str, tuple[str | None, int | None, str, Any]]] = {
    "min_tokens": (
        {"min_tokens": 20, "logit_bias": {END: 100}},
        "thoughts",
        "7 2  red blue",
        (None, 21, "stop", None),
    ),
    "a stop before min_tokens": (
        {"min_tokens": 20},
        "choice",
        '["red"]',
        ("red", None, "stop", "controller"),
    ),
    "max_tokens": ({"max_tokens": 9}, "thoughts", "7 3  red blue", (None, 9, "length", None)),
    "stop in a splice": (
        {"stop": ["apples"]},
        "thoughts",
        "1 0  red apples and pears",
        (" red ", None, "stop", "apples"),
    ),
    "stop_token_ids": (
        {"stop_token_ids": [28], "logit_bias": {28: 100}},
        "thoughts",
        "1 0  red blue",
        (" red blue", 3, "stop", 28),
    ),
    "ignore_eos": (
        {"ignore_eos": True, "logit_bias": {END: 100}, "max_tokens": 12},
        "thoughts",
        "7 2  red blue",
        (None, 12, "length", None),
    ),
    "logit_bias": (
        {"logit_bias": {9298: 100}},
        "choice",
        '["red apples", "green pears"]',
        ("green pears", None, "stop", "controller"),
    ),
    "allowed_token_ids": (
        {"allowed_token_ids": [9298, 41684]},
        "choice",
        '["red apples", "green pears"]',
        ("green pears", None, "stop", "controller"),
    ),
}


Row = tuple[str, int, str, Any]


#: those that a model runner applies; the scheduler applies the others
SAMPLED = ("min_tokens", "logit_bias", "allowed_token_ids")


def write_rows(llm: Any, names: Iterable[str] = ROWS, *, drafts: bool = False) -> dict[str, Row]:
    """Generates rows. vLLM refuses `logit_bias` for engines with `drafts`."""
    names = [name for name in names if not drafts or "logit_bias" not in ROWS[name][0]]
    requests = [
        (FRANCE, controlled(controller, arg, **options))
        for options, controller, arg, _ in map(ROWS.__getitem__, names)
    ]
    return {
        name: (choice.text, len(choice.token_ids), choice.finish_reason, choice.stop_reason)
        for name, choice in zip(names, generate(llm, requests), strict=True)
    }


def check_rows(results: dict[str, Row]) -> None:
    for name, result in results.items():
        *_, expected = ROWS[name]
        got = tuple(None if want is None else one for want, one in zip(expected[:2], result, strict=False))
        assert (*got, *result[2:]) == expected, (name, result)


scheduling = pytest.mark.parametrize("configuration", ["async", "drafts", "sync"])


@scheduling
def test_rows_of_the_table(llm: Any, configuration: str) -> None:
    check_rows(write_rows(llm, drafts=configuration == "drafts"))


@pytest.mark.real_worker
@scheduling
def test_penalties_count_all_output(llm: Any, check_penalties: Callable[[list[list[int]]], None]) -> None:
    """Counts sampled and appended tokens, and no removed ones."""
    check_penalties(write_penalized(llm))


@scheduling
def test_bad_words_match_appended_tokens(llm: Any) -> None:
    """The last token of a bad word is forbidden after an appended token that begins it."""
    tokenizer = llm.get_tokenizer()
    arg, at = "7 0  red blue", 8
    (plain,) = generate(llm, [(FRANCE, controlled("thoughts", arg))])
    word = tokenizer.decode(plain.token_ids[at - 1 : at + 1])
    assert word.startswith(" blue") and tokenizer.encode(word) == plain.token_ids[at - 1 : at + 1]
    (choice,) = generate(llm, [(FRANCE, controlled("thoughts", arg, bad_words=[word.strip()]))])
    assert choice.token_ids[:at] == plain.token_ids[:at]
    assert choice.token_ids[at] != plain.token_ids[at]


@scheduling
def test_removed_text_stops_nothing(llm: Any) -> None:
    """With aici_hold, stop strings are compared with the final text."""
    (free,) = generate(llm, [(FRANCE, parameters(max_tokens=6))])
    tokenizer = llm.get_tokenizer()
    stop = tokenizer.decode(free.token_ids[3:6])
    (choice,) = generate(llm, [(FRANCE, controlled("thoughts", "7 4  red blue", max_tokens=9, stop=[stop]))])
    assert (len(choice.token_ids), choice.finish_reason) == (9, "length")
    assert choice.text.startswith(tokenizer.decode(free.token_ids[:2]) + " red blue")


@pytest.mark.parametrize("configuration", ["async", "sync"])
def test_forks_count_their_min_tokens_from_the_prompt(llm: Any) -> None:
    """Without drafts, because vLLM's sampler for them fails with `top_k` if a pass has none."""
    extra = {"aici_controller": "flags", "aici_arg": "a0a0f0a0", "aici_fork": True}
    options = {"n": 2, "temperature": 1, "top_k": 1, "min_tokens": 12, "logit_bias": {END: 100}}
    (output,) = llm.generate([FRANCE], [parameters(extra_args=extra, **options)], use_tqdm=False)
    assert [len(choice.token_ids) for choice in output.outputs] == [13, 13]


@pytest.mark.parametrize(
    ("options", "extra", "reason"),
    [
        ({"prompt_logprobs": 1}, {}, "prompt_logprobs exclude each other"),
        *(
            (
                {name: value, "n": 2, "temperature": 1},
                {"aici_fork": True},
                f"aici_fork and {name} exclude each other",
            )
            for name, value in (
                ("presence_penalty", 0.5),
                ("frequency_penalty", 0.5),
                ("bad_words", ["no"]),
            )
        ),
    ],
)
def test_refused_parameters_are_named(
    llm: Any, options: dict[str, Any], extra: dict[str, Any], reason: str
) -> None:
    from vllm.exceptions import VLLMValidationError

    request = parameters(extra_args={"aici_controller": "yesno", **extra}, **options)
    with pytest.raises(VLLMValidationError, match=reason):
        generate(llm, [(FRANCE, request)])


@pytest.mark.configuration("drafts")
def test_top_k_with_drafts_is_refused(llm: Any) -> None:
    """vLLM's model runner V1 would end the engine on a CPU. A greedy request has no top_k for vLLM."""
    asked = parameters("yesno", max_tokens=3, top_k=5, temperature=1.0)
    greedy = parameters("yesno", max_tokens=3, top_k=5)
    refused, good = generate(llm, [(FRANCE, asked), (FRANCE, greedy)])
    assert refused.finish_reason == "error" and "leave top_k out" in str(refused.stop_reason)
    assert good.finish_reason != "error"


@pytest.mark.parametrize("configuration", ["v2-async", *also("v2-sync")])
def test_the_v2_runner_keeps_the_table(
    on_v2: Callable[..., Any], check_penalties: Callable[[list[list[int]]], None]
) -> None:
    """With fewer rows and tokens: an interpreter runs the kernels of this model runner."""
    check_rows(on_v2(write_rows, list(ROWS) if thorough() else SAMPLED))
    check_penalties(on_v2(write_penalized, cases(14, 40)))


@pytest.fixture
def adapter(model_path: Path, tmp_path: Path) -> Path:
    """A LoRA adapter with random weights."""
    from safetensors.torch import save_file

    model = json.loads((model_path / "config.json").read_text("utf-8"))
    size = model["hidden_size"]
    generator = torch.Generator().manual_seed(1)
    weights = {}
    for layer in range(model["num_hidden_layers"]):
        name = f"base_model.model.model.layers.{layer}.self_attn.o_proj.lora"
        weights[f"{name}_A.weight"] = torch.randn(8, size, generator=generator) / 10
        weights[f"{name}_B.weight"] = torch.randn(size, 8, generator=generator) / 10
    save_file(weights, tmp_path / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 8, "lora_alpha": 8, "target_modules": ["o_proj"], "bias": "none"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config), "utf-8")
    return tmp_path


@pytest.mark.any_worker
@pytest.mark.configuration("adapter")
def test_an_adapter_computes_appended_tokens(llm: Any, adapter: Path) -> None:
    """After a move, the tokens are those of a new request with the earlier ones as its prompt."""
    from vllm.lora.request import LoRARequest

    lora = LoRARequest("adapter", 1, str(adapter))
    request = controlled("thoughts", "40 34  there was a mouse", max_tokens=60)
    tokens = generate(llm, [(FRANCE, request)], lora_request=lora)[0].token_ids
    tokenizer = llm.get_tokenizer()
    kept = 5 + len(tokenizer.encode(" there was a mouse"))
    start = {"prompt_token_ids": [*tokenizer.encode(FRANCE), *tokens[:kept]]}
    (fresh,) = generate(llm, [(start, parameters(max_tokens=60 - kept))], lora_request=lora)
    (without,) = generate(llm, [(start, parameters(max_tokens=60 - kept))])
    assert tokens[kept:] == fresh.token_ids != without.token_ids


@pytest.mark.any_worker
@pytest.mark.configuration("adapter")
def test_forks_use_the_adapter(llm: Any, adapter: Path) -> None:
    """Each fork writes what a new request with the adapter writes after its first tokens."""
    from vllm.lora.request import LoRARequest

    lora = LoRARequest("adapter", 1, str(adapter))
    extra = {"aici_controller": "flags", "aici_arg": "a0a0f0a0", "aici_fork": True}
    request = parameters(extra_args=extra, n=2, temperature=1, top_k=1, max_tokens=24)
    (output,) = llm.generate([FRANCE], [request], use_tqdm=False, lora_request=lora)
    prompt = llm.get_tokenizer().encode(FRANCE)
    for choice in output.outputs:
        tokens = list(choice.token_ids)
        start = {"prompt_token_ids": [*prompt, *tokens[:4]]}
        left = parameters(max_tokens=len(tokens) - 4)
        (fresh,) = generate(llm, [(start, left)], lora_request=lora)
        (without,) = generate(llm, [(start, left)])
        assert len(tokens) > 8 and tokens[4:] == list(fresh.token_ids) != list(without.token_ids)
