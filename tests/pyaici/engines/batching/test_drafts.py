"""Controllers that expect tokens: the texts are the same, with fewer passes, on real models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aicirt.contract.errors import ResultError
from pyaici.client.runtime import Runtime
from pyaici.engines.batching.engine import BatchingEngine
from pyaici.engines.engine import Request, Sampling
from pyaici.tokens import Vocabulary
from pyaici.toolchain import build_controller
from tests.pyaici.engines.batching.support import BOS, EOS, CountingPasses, make_engine

GUEST = Path(__file__).resolve().parents[3] / "guests" / "lookup.cpp"
MATE = [BOS, 1, 2, 3, 4, 5, 6]
LENGTH = 60


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with Runtime(workers=1) as runtime:
        wasm = build_controller(GUEST, tmp_path_factory.mktemp("guests") / "lookup.wasm").path
        runtime.tag(runtime.upload(wasm).id, "lookup")
        yield runtime


@pytest.fixture
def engine(runtime: Runtime, model: Any, vocabulary: Vocabulary) -> Iterator[BatchingEngine]:
    with make_engine(model, runtime=runtime, vocabulary=vocabulary) as engine:
        yield engine


def drafting(prompt: list[int], arg: str = "", repeated: float = 0.0, **sampling: Any) -> Request:
    """Returns a request whose text has as many of a token as its bias wants."""
    options = Sampling(logit_bias=((EOS, -100.0), (65, repeated)), **sampling)
    return Request(prompt, module="lookup", arg=arg, max_tokens=LENGTH, sampling=options)


@pytest.mark.parametrize("arg", ["", "wrong"])
def test_texts_are_those_without_drafts(engine: BatchingEngine, arg: str) -> None:
    """Also at a temperature, and beside others, some of which have drafts as well."""
    prompts = [[BOS, 72, 101, 108], MATE]
    sampling: list[dict[str, Any]] = [{}, {"temperature": 0.4, "seed": 3, "repeated": 2.0}]
    for options in sampling:
        plain = [Request(p, max_tokens=LENGTH, sampling=drafting(p, **options).sampling) for p in prompts]
        expected = [result.new_tokens for result in engine.run(plain)]
        drafted = [drafting(prompt, arg, **options) for prompt in prompts]
        first, second, beside = engine.run([*drafted, plain[0]])
        assert [first.new_tokens, second.new_tokens, beside.new_tokens] == [*expected, expected[0]]


def test_accepted_drafts_need_fewer_passes(engine: BatchingEngine) -> None:
    passes = []
    for arg in ("", "wrong"):
        engine._prefixes.clear()
        with CountingPasses(engine) as counting:
            (result,) = engine.run([drafting([BOS, 72, 101, 108], arg, 100.0)])
        assert len(result.new_tokens) == LENGTH
        passes.append(len(counting.passes))
    assert passes[0] < 0.2 * passes[1] and passes[1] == LENGTH, passes


def test_more_drafts_than_allowed(engine: BatchingEngine, generate: Callable[..., list[int]]) -> None:
    failed, mate = engine.run([drafting([BOS, 72], "many"), Request(MATE, max_tokens=5)])
    assert isinstance(failed.error, ResultError) and "16 drafts; at most 15 fit" in failed.error.message
    assert mate.new_tokens == generate(MATE, 5)
