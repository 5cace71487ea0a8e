"""The default model under real controllers: results that a user sees, and requests without a controller."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from pyaici import AiciLogitsProcessor, FinishReason, HfEngine, Origin, Request, Sampling
from pyaici.client.runtime import Runtime
from pyaici.models import default_model_path
from pyaici.testing.playground import PATIENT
from pyaici.toolchain import build_controller

pytestmark = pytest.mark.slow

CONTROLLERS = Path(__file__).resolve().parents[4] / "controllers"
PROMPTS = [
    "The capital of France is",
    "Once upon a time there was a",
    "1 2 3 4 5 6",
    "def main():\n    print(",
]
CAPITALS = ["The capital is Paris.", "The capital is Berlin.", "The capital is Rome.", "I do not know."]
ARGUMENT = "\n".join(CAPITALS)
QUESTION = [{"role": "user", "content": "What is the capital of Italy?"}]


@pytest.fixture(scope="module")
def smollm() -> tuple[Any, Any]:
    folder = default_model_path()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def engine(smollm: tuple[Any, Any]) -> Iterator[HfEngine]:
    with Runtime(workers=1, limits=PATIENT) as runtime:
        yield HfEngine(*smollm, runtime)


def generate(smollm: tuple[Any, Any], prompt: str, count: int) -> list[int]:
    model, tokenizer = smollm
    ids = tokenizer(prompt, return_tensors="pt")
    out = model.generate(**ids, max_new_tokens=count, do_sample=False, pad_token_id=0)
    return list(out[0, ids.input_ids.shape[1] :].tolist())


def test_greedy_requests_in_a_batch_with_controllers_equal_generate(
    engine: HfEngine, smollm: tuple[Any, Any]
) -> None:
    free = [Request(prompt, max_tokens=6 + 2 * i) for i, prompt in enumerate(PROMPTS)]
    controlled = [
        Request(QUESTION, controller="choice", arg=ARGUMENT),
        Request("Say", controller="uppercase", max_tokens=8),
    ]
    results = engine.run([free[0], controlled[0], free[1], free[2], controlled[1], free[3]])
    for i, result in enumerate([results[0], results[2], results[3], results[5]]):
        assert result.new_tokens == generate(smollm, PROMPTS[i], 6 + 2 * i), result.text
    assert results[1].text in CAPITALS
    assert results[4].text and not any(character.islower() for character in results[4].text)


def test_forced_text_is_spliced(engine: HfEngine) -> None:
    (result,) = engine.run(
        [Request("Q: What is the capital of Italy?\nA: ", controller="choice", arg=ARGUMENT)]
    )
    assert result.text in CAPITALS and result.finish_reason in (FinishReason.STOP, FinishReason.EOS)
    assert result.forced >= 2 and Origin.FORCED in result.origins
    (only,) = engine.run([Request(QUESTION, controller="choice", arg="Rome, the eternal city.")])
    assert only.text == "Rome, the eternal city." and only.sampled <= 1


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("Question: What is the capital of the United Kingdom?\nAnswer:", [" London", " Paris", " Berlin"]),
        (
            [{"role": "user", "content": "What is the capital of Italy?"}],
            ["London", "Paris", "Berlin", "Rome"],
        ),
        ("Q: Which animal barks?\nA: The", [" caterpillar", " elephant", " dog"]),
        ('{"name": "Ada", "occupation": "', ["mathematician", "musician", "mechanic", "physicist"]),
    ],
)
def test_choices_are_written_with_the_tokens_of_the_tokenizer(
    engine: HfEngine, smollm: tuple[Any, Any], prompt: Any, texts: list[str]
) -> None:
    (result,) = engine.run([Request(prompt, controller="choice", arg=json.dumps(texts))])
    assert result.text in texts
    assert result.new_tokens == smollm[1](result.text, add_special_tokens=False).input_ids


def test_sampled_copies_and_beams_stay_within_the_choices(engine: HfEngine) -> None:
    sampling = Sampling(temperature=2.0, seed=9)
    copies = engine.run([Request(QUESTION, controller="choice", arg=ARGUMENT, n=6, sampling=sampling)])
    assert {r.text for r in copies} <= set(CAPITALS) and len({r.text for r in copies}) > 1
    beams = engine.run([Request(QUESTION, controller="choice", arg=ARGUMENT, beams=3, n=3)])
    assert {r.text for r in beams} <= set(CAPITALS)
    assert [r.score for r in beams] == sorted((r.score for r in beams), reverse=True)  # type: ignore[type-var]


def test_the_logits_processor_writes_the_same_text_as_the_engine(
    engine: HfEngine, smollm: tuple[Any, Any]
) -> None:
    model, tokenizer = smollm
    prompt = "Q: What is the capital of Italy?\nA: "
    (result,) = engine.run([Request(prompt, controller="choice", arg=ARGUMENT)])
    ids = tokenizer(prompt, return_tensors="pt")
    runtime = engine.runtime
    assert runtime is not None
    prompts = ids.input_ids.tolist()
    eos = model.generation_config.eos_token_id
    with AiciLogitsProcessor(runtime, "choice", ARGUMENT, prompts, eos=eos) as control:
        processors = transformers.LogitsProcessorList([control])
        out = model.generate(
            **ids, logits_processor=processors, max_new_tokens=30, do_sample=False, pad_token_id=0
        )
    text = tokenizer.decode(out[0, ids.input_ids.shape[1] :], skip_special_tokens=True)
    assert not control.errors and text == result.text


def test_a_model_in_half_precision_works(smollm: tuple[Any, Any]) -> None:
    _, tokenizer = smollm
    model = transformers.AutoModelForCausalLM.from_pretrained(default_model_path(), dtype=torch.bfloat16)
    results = HfEngine(model, tokenizer).run([Request(prompt, max_tokens=6) for prompt in PROMPTS])
    assert "Paris" in results[0].text and results[2].text.strip().startswith("7 8 9")


def test_beam_search_in_a_controller_finds_the_same_text_as_the_engine(
    smollm: tuple[Any, Any], tmp_path: Path
) -> None:
    """The controller uses forks, variables, backtracking, suspension, log-probabilities and top-k."""
    prompt = "The capital of France is"
    with Runtime(workers=1, limits=PATIENT) as runtime:
        beam = runtime.upload(build_controller(CONTROLLERS / "beam", tmp_path / "beam.wasm").path)
        engine = HfEngine(*smollm, runtime)
        branches = engine.run([Request(prompt, controller=beam.id, arg="4 12", max_tokens=40)])
    (want,) = HfEngine(*smollm).run([Request(prompt, beams=4, max_tokens=12)])
    assert all(branch.error is None for branch in branches)
    (best,) = [branch for branch in branches if branch.text == want.text]
    assert want.score is not None and f"{12 * want.score:.2f}" in best.log
