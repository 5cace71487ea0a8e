"""Controllers that expect tokens: the texts are the same, with fewer passes, on real models."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aicirt.contract.abi import RowKind, Verb
from aicirt.contract.errors import ResultError
from aicirt.contract.messages import StepInput
from pyaici.client.results import DraftedSample, MidResult, Row
from pyaici.client.runtime import Runtime
from pyaici.engines.batching.engine import BatchingEngine
from pyaici.engines.engine import Request, Sampling, TokensAppended
from pyaici.testing.playground import PATIENT
from pyaici.tokens import Vocabulary
from pyaici.toolchain import build_controller
from tests.pyaici.engines.batching.scripted import Script, ScriptedRuntime
from tests.pyaici.engines.batching.support import BOS, EOS, CountingPasses, make_engine, script
from tests.thorough import also

GUEST = Path(__file__).resolve().parents[3] / "guests" / "lookup.cpp"
MATE = [BOS, 1, 2, 3, 4, 5, 6]
LENGTH = 60


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with Runtime(workers=1, limits=PATIENT) as runtime:
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
    return Request(prompt, controller="lookup", arg=arg, max_tokens=LENGTH, sampling=options)


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


#: scripts that generate a text of LENGTH tokens, which they expect
SCRIPTS = {
    "gen": ("python", f"await gen(prediction=EXPECTED, max_tokens={LENGTH})"),
    "gen.js": ("javascript", f"await gen({{ prediction: EXPECTED, maxTokens: {LENGTH} }})"),
    "sample": (
        "python",
        f"expected = EXPECTED\nfor i in range({LENGTH}): await sample(prediction=expected[i:i + 20])",
    ),
    "sample.js": (
        "javascript",
        f"for (let i = 0; i < {LENGTH}; i++) await sample(undefined, {{ prediction: EXPECTED.slice(i) }})",
    ),
}


class Predicting:
    """Runs scripts that expect a text; each has the same seed."""

    def __init__(self, engine: BatchingEngine, temperature: float) -> None:
        self._engine = engine
        self._sampling = Sampling(temperature=temperature, seed=5, logit_bias=((EOS, -100.0),))

    def __call__(self, name: str, expected: list[int]) -> tuple[list[int], int]:
        """Returns the text, and the number of passes."""
        language, source = SCRIPTS[name]
        call = script(source.replace("EXPECTED", str(expected)), language)
        request = Request([BOS, 72, 101, 108], **call, sampling=self._sampling, max_tokens=LENGTH)
        self._engine._prefixes.clear()
        with CountingPasses(self._engine) as counting:
            (result,) = self._engine.run([request])
        assert result.error is None and len(result.new_tokens) == LENGTH
        return result.new_tokens, len(counting.passes)


@pytest.mark.parametrize("name", ["gen", "sample.js", *also("sample", "gen.js")])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_predictions_of_scripts(engine: BatchingEngine, name: str, temperature: float) -> None:
    """Right and wrong ones give the same text; right ones are verified many at once."""
    run = Predicting(engine, temperature)
    text, passes = run(name, [])
    again, fewer = run(name, text)
    assert again == text and fewer <= passes // 8
    assert run(name, [token + 1 for token in text])[0] == text


def test_a_prediction_is_found_again_where_the_text_differs(engine: BatchingEngine) -> None:
    run = Predicting(engine, 0.8)
    text, passes = run("gen", [])
    again, fewer = run("gen", [*text[:20], 33, *text[22:40], *text[42:]])
    assert again == text and fewer <= passes // 3


@pytest.mark.parametrize(
    ("body", "language", "message"),
    [
        ("await gen(prediction=[1 << 20])", "python", "there is no token"),
        ("await sample(prediction=[-1])", "python", "there is no token"),
        ("await gen(prediction=3)", "python", "TypeError"),
        ("await gen({ prediction: [1 << 20] })", "javascript", "there is no token"),
    ],
)
def test_invalid_predictions(engine: BatchingEngine, body: str, language: str, message: str) -> None:
    (result,) = engine.run([Request([BOS, 72], **script(body, language), max_tokens=5)])
    assert result.error is not None and message in result.error.message


@pytest.mark.parametrize("others", [0, 1])
def test_others_wait_for_the_controllers_of_drafts_as_long_as_for_a_step(
    model: Any, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """By a clock that the controller moves."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    class Slow(Script):
        def mid(self, report: StepInput) -> MidResult:
            now[0] += 1
            return DraftedSample(Verb.SAMPLE, Row(RowKind.TOKEN, token=65), drafts=[65] * 15)

    runtime: Any = ScriptedRuntime(slow=lambda arg, prompt: Slow())
    with make_engine(model, runtime=runtime, vocabulary=vocabulary) as engine:
        slow = engine.add(Request([BOS, 72], controller="slow", max_tokens=LENGTH))
        for _ in range(others):
            engine.add(Request(MATE, max_tokens=LENGTH, sampling=Sampling(logit_bias=((EOS, -100.0),))))
        appended = [
            sum(isinstance(event, TokensAppended) and event.request == slow for event in engine.step())
            for _ in range(4)
        ]
        assert max(appended) == (3 if others else 16), appended
