"""The logits-processor path in real engines writes the same tokens as Transformers, in float32."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyaici.build import build_controller
from pyaici.client.runtime import Runtime
from pyaici.engines.vllm.frontend.refusals import PROCESSOR, engine_refusal
from tests.pyaici.engines.model_runners import has_live
from tests.pyaici.engines.vllm.engines import OPTIONS, Engines
from tests.pyaici.engines.vllm.remote import V2Engines
from tests.pyaici.engines.vllm.test_free import PROMPTS, counter

pytestmark = pytest.mark.slow

NUDGE = Path(__file__).resolve().parents[3] / "guests" / "nudge.cpp"
SENTENCE = "[A-Z][a-z]{2,7} is [0-9]{1,3} years old"
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "age": {"type": "integer", "maximum": 99},
        },
        "required": ["name", "age"],
        "additionalProperties": False,
    }
)
#: (prompt, controller or None, its argument)
Call = tuple[str, str | None, str]
MIXED: list[Call] = [
    (PROMPTS[0], None, ""),
    (PROMPTS[1], "regex", SENTENCE),
    (PROMPTS[2], "json_schema", SCHEMA),
    (PROMPTS[3], None, ""),
    (PROMPTS[0], "nudge", "say  Berlin, the capital of Germany. The capital of France"),
    (PROMPTS[3], "yesno", ""),
    (PROMPTS[1], "nudge", "stop 6"),
]
#: with async scheduling, vLLM passes tokens only to processors that are named at its start
NAMED: dict[str, Any] = {"async_scheduling": True, "logits_processors": [PROCESSOR]}
DRAFTS = {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 2, "prompt_lookup_min": 1}


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """The daemon that processors connect to, with tagged modules."""
    nudge = build_controller(NUDGE, tmp_path_factory.mktemp("nudge") / "nudge.wasm").path
    with Runtime(workers=1) as runtime:
        runtime.tag(runtime.upload(nudge).id, "nudge")
        yield runtime


@pytest.fixture(scope="module", autouse=True)
def socket(runtime: Runtime) -> Iterator[str]:
    assert runtime._daemon is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AICI_SOCKET", str(runtime._daemon.socket_path))
        yield os.environ["AICI_SOCKET"]


@pytest.fixture(scope="module")
def expected(runtime: Runtime, model_path: Path) -> Callable[[list[Call], int], list[list[int]]]:
    """Generates greedily on Transformers under the same controllers, in one batch."""
    from pyaici.engines.hf import HfEngine, Request
    from pyaici.engines.hf.program import load_model

    engine = HfEngine(*load_model(model_path, "cpu"), runtime)

    def run(calls: list[Call], max_tokens: int) -> list[list[int]]:
        requests = [
            Request(prompt, module=controller, arg=arg, max_tokens=max_tokens)
            for prompt, controller, arg in calls
        ]
        return [result.new_tokens for result in engine.run(requests)]

    return run


def parameters(controller: str | None, arg: Any = "", max_tokens: int = 24, **options: Any) -> Any:
    from vllm import SamplingParams

    extra = {"aici_controller": controller, "aici_arg": arg, "aici_path": "logits"}
    settings = {"temperature": 0, "max_tokens": max_tokens, **options}
    return SamplingParams(extra_args=extra if controller else None, **settings)


def write(llm: Any, calls: list[Call], max_tokens: int) -> list[list[int]]:
    params = [parameters(controller, arg, max_tokens) for _, controller, arg in calls]
    outputs = llm.generate([prompt for prompt, _, _ in calls], params, use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


def without_end(texts: list[list[int]]) -> list[list[int]]:
    """Removes the end token, which a stopped text has in vLLM but not on Transformers."""
    return [text[:-1] if text[-1:] == [2] else text for text in texts]


def test_texts_equal_those_on_transformers(llm: Any, expected: Callable[..., list[list[int]]]) -> None:
    want = without_end(expected(MIXED, 40))
    assert without_end(write(llm, MIXED, 40)) == want
    assert len(want[6]) == 5, "this controller stops"
    for alone in (1, 4):
        assert without_end(write(llm, [MIXED[alone]], 40)) == [want[alone]]


def test_sampled_texts_match_their_pattern(llm: Any) -> None:
    params = [parameters("regex", SENTENCE, 60, temperature=1.5, seed=seed) for seed in range(6)]
    texts = [o.outputs[0].text for o in llm.generate([PROMPTS[1]] * 6, params, use_tqdm=False)]
    assert all(re.fullmatch(SENTENCE, text) for text in texts) and len(set(texts)) > 1, texts
    (several,) = llm.generate(
        [PROMPTS[1]], parameters("regex", SENTENCE, 60, temperature=1.5, n=3), use_tqdm=False
    )
    assert len(several.outputs) == 3
    assert all(re.fullmatch(SENTENCE, output.text) for output in several.outputs)


def test_aborted_requests_free_their_controllers(llm: Any, runtime: Runtime) -> None:
    engine = llm.llm_engine
    params = parameters("regex", "[a-z ]{200}", 60)
    names = [engine.add_request(f"abort-{i}", prompt, params) for i, prompt in enumerate(PROMPTS[:3])]
    for _ in range(5):
        engine.step()
    assert has_live(runtime, 3)
    engine.abort_request([names[1]], internal=True)
    engine.step()
    assert has_live(runtime, 2)
    engine.abort_request([names[0], names[2]], internal=True)
    assert not engine.has_unfinished_requests()
    ((token,),) = write(llm, [(PROMPTS[0], None, "")], 1)
    assert token and has_live(runtime, 0), "the next step of the engine must free the rest"


def test_controllers_that_fail_end_only_their_own_request(
    llm: Any, reference: Callable[..., list[list[int]]], caplog: Any
) -> None:
    calls: list[Call] = [
        (PROMPTS[0], "nudge", "trap 5"),
        (PROMPTS[0], "nudge", "loop 5"),
        (PROMPTS[1], None, ""),
        (PROMPTS[2], "nudge", "no-value"),
        (PROMPTS[3], "nonesuch", ""),
        (PROMPTS[1], "regex", SENTENCE),
    ]
    with caplog.at_level(logging.ERROR, "vllm.aici"):
        trapped, looping, free, refused, unknown, good = write(llm, calls, 24)
    assert trapped == looping == [*reference([PROMPTS[0]], 4)[0], 2] and refused == unknown == [2]
    assert [free] == reference([PROMPTS[1]], 24) and [good] == write(llm, [calls[-1]], 24)
    for words in (
        "'nudge' of a request has failed: aici_mid_process trapped",
        "a word and a value",
        "'nonesuch'",
    ):
        assert words in caplog.text


def test_invalid_requests_are_refused(llm: Any) -> None:
    from vllm import SamplingParams
    from vllm.exceptions import VLLMValidationError

    for params, words in (
        (SamplingParams(extra_args={"aici_controler": "regex"}), "did you mean aici_controller"),
        (parameters("regex", "x", min_tokens=2), "min_tokens cannot both"),
        (parameters("regex", "x", ignore_eos=True), "set stop_token_ids"),
    ):
        with pytest.raises(VLLMValidationError, match=words):
            llm.generate(PROMPTS[:1], params, use_tqdm=False)
    assert not llm.llm_engine.has_unfinished_requests()


@pytest.mark.parametrize("options", [{}, NAMED], ids=["installed", "named"])
def test_biases_have_the_same_effect_as_those_of_vllm(engines: Engines, options: dict[str, Any]) -> None:
    """Biases are added once even if vLLM has two of our processors: one installed and one named."""
    llm = engines(**options)
    ((first, *_),) = write(llm, [(PROMPTS[0], None, "")], 1)
    for bias in (-3.5, 2.0):
        native = parameters(None, logit_bias={first: bias}, max_tokens=30)
        (output,) = llm.generate([PROMPTS[0]], native, use_tqdm=False)
        want = list(output.outputs[0].token_ids)
        for kind in ("sparse", "dense"):
            assert write(llm, [(PROMPTS[0], "nudge", f"{kind} {first} {bias}")], 30) == [want]


def test_texts_with_asynchronous_scheduling_equal_transformers(
    engines: Engines, expected: Callable[..., list[list[int]]]
) -> None:
    llm = engines(**NAMED)
    assert without_end(write(llm, MIXED, 40)) == without_end(expected(MIXED, 40))


@pytest.mark.parametrize("options", [{}, NAMED], ids=["sync", "async"])
def test_preemption_changes_no_text(
    engines: Engines, options: dict[str, Any], expected: Callable[..., list[list[int]]]
) -> None:
    """Sixteen blocks of 32 tokens are too few for six sequences of eighty."""
    animals = ["small dog", "grey cat", "wise owl", "young fox", "shy mouse", "brown bear"]
    prompts = [f"Once upon a time there was a {animal} who" for animal in animals]
    nudge = "say  was not " + "at all very, very " * 8 + "sad, because"
    calls: list[Call] = [
        (prompt, *((None, ""), ("regex", "[a-z ,.]{700}"), ("nudge", nudge))[i % 3])  # type: ignore[misc]
        for i, prompt in enumerate(prompts)
    ]
    llm = engines(num_gpu_blocks_override=17, **options)
    assert without_end(write(llm, calls, 70)) == without_end(expected(calls, 70))
    assert counter(llm, "num_preemptions") > 0


def test_prompts_in_several_passes_equal_transformers(
    engines: Engines, expected: Callable[..., list[list[int]]]
) -> None:
    """vLLM samples in each pass of a prompt, and drops all tokens but the last."""
    long = "One two three four five six seven eight nine ten. " * 12
    calls: list[Call] = [(long + prompt, controller, arg) for prompt, controller, arg in MIXED[:3]]
    llm = engines(max_num_batched_tokens=64)
    assert without_end(write(llm, calls, 20)) == without_end(expected(calls, 20))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"async_scheduling": True}, f"start it with --logits-processors {PROCESSOR}"),
        ({"speculative_config": DRAFTS}, "without speculative decoding"),
    ],
    ids=["async", "drafts"],
)
def test_unsupported_engines_refuse_only_controlled_requests(
    engines: Engines, reference: Callable[..., list[list[int]]], options: dict[str, Any], words: str
) -> None:
    """AICI's part of the scheduler refuses: vLLM would silently leave out the processor or its tokens."""
    llm = engines(**options)
    params = [parameters("regex", SENTENCE), parameters(None, max_tokens=12)]
    refused, free = llm.generate([PROMPTS[0]] * 2, params, use_tqdm=False)
    assert refused.outputs[0].finish_reason == "error" and words in str(refused.outputs[0].stop_reason)
    assert [list(free.outputs[0].token_ids)] == reference([PROMPTS[0]], 12)


def test_engine_refusal_names_the_option_to_change(model_path: Path) -> None:
    from vllm.engine.arg_utils import EngineArgs

    for options, words in (
        ({}, None),
        ({"speculative_config": DRAFTS}, "without speculative decoding"),
        ({"tensor_parallel_size": 3}, "leave aici_path out"),
    ):
        config = EngineArgs(model=str(model_path), **(OPTIONS | options)).create_engine_config()
        refusal = engine_refusal(config)
        assert refusal is None if words is None else words in str(refusal), options


@pytest.mark.parametrize("asynchronous", [False, True])
def test_texts_of_runner_v2_equal_transformers(
    v2_engines: V2Engines, expected: Callable[..., list[list[int]]], socket: str, asynchronous: bool
) -> None:
    found = v2_engines.run(write_at, socket, MIXED, 12, async_scheduling=asynchronous)
    assert without_end(found) == without_end(expected(MIXED, 12))


def test_preemption_with_runner_v2_changes_no_text(
    v2_engines: V2Engines, expected: Callable[..., list[list[int]]], socket: str
) -> None:
    calls = [MIXED[1], (PROMPTS[1], "regex", "[a-z ,.]{300}"), MIXED[0]]
    found, preemptions = v2_engines.run(
        write_and_count, socket, calls, 30, max_model_len=96, num_gpu_blocks_override=4
    )
    assert without_end(found) == without_end(expected(calls, 30)) and preemptions > 0


def write_at(llm: Any, socket: str, calls: list[Call], max_tokens: int) -> list[list[int]]:
    os.environ["AICI_SOCKET"] = socket
    return write(llm, calls, max_tokens)


def write_and_count(llm: Any, socket: str, calls: list[Call], max_tokens: int) -> tuple[list[list[int]], int]:
    return write_at(llm, socket, calls, max_tokens), counter(llm, "num_preemptions")
