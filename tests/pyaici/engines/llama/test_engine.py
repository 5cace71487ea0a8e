"""The engine for GGUF models: its texts are those of a client that applies the same masks by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from aicirt.contract.messages import StepInput
from pyaici import LlamaEngine, LlamaModel, load_library
from pyaici.bundled import DESCRIPTIONS
from pyaici.client.results import PreResult
from pyaici.client.runtime import Runtime
from pyaici.engines.batching.model import Feed
from pyaici.engines.batching.scheduler import PROMPT_TOKENS
from pyaici.engines.engine import FinishReason, GenerationResult, Request, Sampling
from pyaici.engines.llama.runner import LlamaRunner
from pyaici.engines.prompts import chat_text
from pyaici.engines.record import shared_length
from pyaici.models import default_gguf_path
from pyaici.testing.playground import PATIENT
from tests.pyaici.engines.batching.by_hand import generate_by_hand
from tests.pyaici.engines.batching.scripted import (
    CONTINUE,
    SUSPEND,
    Script,
    ScriptedRuntime,
    anything,
    splice,
)
from tests.pyaici.engines.batching.support import BOS, byte_vocabulary, make_model
from tests.pyaici.engines.llama.tiny_gguf import WINDOWED, write_gguf
from tests.thorough import thorough

pytestmark = pytest.mark.slow
PROMPT = [{"role": "user", "content": "Say something about numbers, in JSON if you can."}]
TOKENS = 24


@pytest.fixture(scope="module")
def smollm() -> Iterator[LlamaModel]:
    with LlamaModel(load_library(), default_gguf_path()) as model:
        yield model


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime(workers=1, limits=PATIENT) as runtime:
        yield runtime


@pytest.fixture(scope="module")
def engine(smollm: LlamaModel, runtime: Runtime) -> Iterator[LlamaEngine]:
    with LlamaEngine(smollm, runtime) as engine:
        yield engine


#: masks, backtracking and forks, and an interpreter; batching/test_bundled.py has all with a small model
_SHORT = {"json_schema", "pyctrl", "showcase"}


# beam compares sums of log-probabilities. Those of a quantized model change by some hundredths with the order
# of the cells in the cache, which forks and freed cells determine. batching/test_bundled.py has it.
@pytest.mark.parametrize("name", sorted(DESCRIPTIONS.keys() - {"beam"} if thorough() else _SHORT))
def test_greedy_texts_equal_those_of_a_client_by_hand(
    engine: LlamaEngine, smollm: LlamaModel, runtime: Runtime, name: str
) -> None:
    """The client has one sequence of the library, and shortens it to what the texts share."""
    arg = DESCRIPTIONS[name][1] or ""
    prompt = smollm.tokenize(chat_text(smollm.tokenizer, PROMPT), add_special=False)
    request = Request(prompt, name, arg, sampling=Sampling(0.0, seed=3), max_tokens=TOKENS)
    results = engine.run([request])
    assert [result.error for result in results] == [None] * len(results)
    runner = LlamaRunner(smollm, 1024)
    slot, held = runner.cache.new_slot(), list[int]()

    def logits(tokens: list[int]) -> NDArray[np.float32]:
        slot.length = shared_length(tokens[:-1], held)
        while slot.length < len(tokens):  # as the engine does: the sums depend on how a prompt is cut
            (line,) = runner.run([Feed(slot, tokens[slot.length : slot.length + PROMPT_TOKENS])])
        held[:] = tokens
        return line

    try:
        wanted = generate_by_hand(
            logits, runtime, name, arg, prompt, max_tokens=TOKENS, ends=engine.vocabulary.eos, seed=3
        )
    finally:
        runner.close()
    assert sorted(result.new_tokens for result in results) == wanted
    assert any(wanted)


def test_forks_and_choices_share_the_prompt(engine: LlamaEngine) -> None:
    cache = engine._llama.cache
    prompt = [1] * 500
    number = engine.add(Request(prompt, n=8, max_tokens=4, sampling=Sampling(1.0, seed=3)))
    engine.step()
    assert cache.num_cells - cache.free_cells <= 500 + 8 * 2
    while engine.busy:
        engine.step()
    assert len(engine.results(number)) == 8 and cache.free_cells == cache.num_cells and not cache.slots


def test_texts_beyond_the_trained_context_end(tiny: LlamaModel) -> None:
    with LlamaEngine(tiny) as engine:
        assert engine.max_context == tiny.trained_context == 256
        (result,) = engine.run([Request([BOS, 1, 2], max_tokens=1000, sampling=Sampling(1.0, seed=1))])
        assert result.finish_reason in (FinishReason.LENGTH, FinishReason.EOS) and len(result.tokens) <= 256
        with pytest.raises(ValueError, match="the model takes 256, prompt and answer together"):
            engine.add(Request([1] * 300))


def test_too_many_sequences_and_too_little_room_are_refused(tiny: LlamaModel) -> None:
    with LlamaEngine(tiny, cache_tokens=1024) as engine:
        with pytest.raises(ValueError, match=r"needs 300 sequences .*at most 256"):
            engine.add(Request([BOS], n=300, max_tokens=1))
        with pytest.raises(ValueError, match="cannot fit into the key-value cache"):
            engine.add(Request([BOS], n=100, max_tokens=200))
        results = engine.run([Request([BOS, i], max_tokens=200) for i in range(12)])
        assert len(results) == 12 and all(result.error is None for result in results)
    with pytest.raises(ValueError, match="at least 1024"):
        LlamaEngine(tiny, cache_tokens=100)


def test_a_cache_without_memory_is_refused(smollm: LlamaModel) -> None:
    with pytest.raises(ValueError, match=r"cannot make a context of .* lower --kv-cache-tokens"):
        LlamaRunner(smollm, 1 << 31)


def test_logits_are_the_same_for_numpy_and_for_a_kept_prefix(tiny: LlamaModel) -> None:
    with LlamaEngine(tiny, keep=4) as engine:
        whole = engine.next_logits([[BOS, *b"hello world"]])
        engine.run([Request([BOS, *b"hello"], max_tokens=3)])
        again = engine.next_logits([[BOS, *b"hello world"], [BOS, *b"hello"]])
        assert whole.dtype == np.float32 and np.abs(whole[0, :256] - again[0, :256]).max() < 0.1
        assert engine.stats.reused >= 5


def test_program_names_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pyaici.engines.llama.program import main

    for arguments, words in (
        (["--model", str(tmp_path / "no.gguf")], "there is no file"),
        (["--model", str(tmp_path)], "has no GGUF file; for a Transformers model, choose the engine hf"),
        (["--threads", "0"], "--threads is 0"),
        (["--llama-library", str(tmp_path / "lib.so")], "there is no llama.cpp library"),
    ):
        assert main([*arguments, "--prompt", "x"]) == 1
        assert words in capsys.readouterr().err


def test_closed_engine_refuses_work_and_calls_the_library_no_more(tiny: LlamaModel) -> None:
    engine = LlamaEngine(tiny)
    pieces = engine.logits_in_pieces([[BOS, number] for number in range(40)])
    next(pieces)
    engine.close()
    pieces.close()
    with pytest.raises(RuntimeError, match="the engine is closed"):
        engine.next_logits([[BOS, 1]])
    engine.close()


class SuspendsFirst(Script):
    """The first of all controllers suspends its sequence in its first step."""

    seen: ClassVar[list[int]] = []

    def pre(self, report: StepInput) -> PreResult:
        self.seen.append(report.seq)
        return SUSPEND if len(self.seen) == 1 else CONTINUE


def test_a_copy_gets_room_if_the_sequence_that_had_it_is_suspended(tiny: LlamaModel) -> None:
    """Kept prompts give way, and other requests go on."""
    runtime = ScriptedRuntime(script=lambda arg, prompt: SuspendsFirst(anything()))
    with LlamaEngine(tiny, runtime, vocabulary=byte_vocabulary(), keep=8, cache_tokens=1024) as engine:  # type: ignore[arg-type]
        for number in range(4):  # the cache is full of kept prompts
            engine.run([Request([number] * 250, max_tokens=3)])
        SuspendsFirst.seen.clear()
        assert engine._llama.cache.free_cells < 100
        other = engine.add(Request([BOS, 1, 2], max_tokens=8))
        copied = engine.add(Request([9] * 240, controller="script", n=2, max_tokens=4))
        for _ in range(40):
            engine.step()
        engine.cancel(copied)
        engine.step()
        assert all(result.error is None for result in [*engine.results(other), *engine.results(copied)])


def test_layers_with_a_window_see_what_they_need_after_backtracking(tmp_path: Path) -> None:
    """Kept prefixes, samples, backtracking: tokens are those of Transformers, which computes all anew."""
    reference = make_model("Gemma3TextConfig", **WINDOWED)
    long = [BOS, *((11 * i + 3) % 256 for i in range(90))]
    runtime = ScriptedRuntime(
        back=lambda arg, prompt: Script(*[anything()] * 30, splice([65], backtrack=25), *[anything()] * 50)
    )

    def worst(result: GenerationResult, forced: int | None = None) -> float:
        """Returns how much less likely than the best token a sampled one is at most, in logits."""
        prompt, new = len(result.tokens) - len(result.new_tokens), result.new_tokens
        with torch.no_grad():
            logits = reference(torch.tensor([result.tokens])).logits[0, prompt - 1 : -1, :258]
        lost = logits.max(dim=1).values - logits[torch.arange(len(new)), torch.tensor(new)]
        return max(float(value) for place, value in enumerate(lost) if place != forced)

    with LlamaModel(load_library(), write_gguf(reference, tmp_path / "tiny.gguf")) as model:
        engine = LlamaEngine(
            model,
            runtime,
            vocabulary=byte_vocabulary(),
            keep=3,
            cache_tokens=1024,  # type: ignore[arg-type]
        )
        fill = [Request([i, *long], max_tokens=120) for i in range(4)]
        (kept, back) = engine.run(
            [Request(long, max_tokens=60), Request(long, controller="back", max_tokens=40)]
        )
        assert back.new_tokens[5] == 65 and len(back.new_tokens) == 40
        results = [kept, *engine.run(fill)]  # they reuse cells
        for length in (70, 40):
            prompt = [*kept.tokens[: len(long) + 20 - length], 1]
            results += engine.run([Request(prompt, max_tokens=20)])
        # the cache has half precision
        assert max(map(worst, results)) < 0.02 and worst(back, forced=5) < 0.02
        engine.close()
