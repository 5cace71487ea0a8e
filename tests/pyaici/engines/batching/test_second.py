"""Second models, whose logits take part in sampling the tokens of a sequence."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aicirt.contract.abi import MAX_MODEL_NAME
from aicirt.contract.errors import AiciError, ResultError, VocabularyError
from pyaici.client.runtime import Runtime
from pyaici.engines.batching.engine import BatchingEngine
from pyaici.engines.batching.model import MAX_SECOND
from pyaici.engines.engine import FinishReason, GenerationResult, Request
from pyaici.tokens import Vocabulary
from tests.pyaici.engines.batching.support import BOS, make_engine, make_model, script

PROMPT = [BOS, 72, 101, 108]
KNOWN = 258
#: the second model has fewer logits beyond the tokens, and reads shorter texts
SMALL = {"vocab_size": 272, "hidden_size": 16, "head_dim": 4, "num_hidden_layers": 1}
LONGEST = 64
#: prints the mixed distribution and that of the engine's own model before it samples
SHOWING = {
    "python": """
await mix(None, -0.5, model="small")
for i in range(6):
    print(list((await distribution()).logits)[:258])
    print(list((await distribution(own=True)).logits)[:258])
    await sample(temperature=0)
stop()
""",
    "javascript": """
  await mix(null, -0.5, { model: "small" });
  for (let i = 0; i < 6; i++) {
    console.log(JSON.stringify([...(await distribution()).logits].slice(0, 258)));
    console.log(JSON.stringify([...(await distribution({ own: true })).logits].slice(0, 258)));
    await sample(undefined, { temperature: 0 });
  }
  stop();
""",
}


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime(workers=1, num_dense=8) as runtime:
        yield runtime


@pytest.fixture(scope="module")
def small(convert: Callable[[Any], Any]) -> Any:
    return convert(make_model(**SMALL, max_position_embeddings=LONGEST))


@pytest.fixture(scope="module")
def alone(small: Any, vocabulary: Vocabulary) -> Iterator[BatchingEngine]:
    """The second model as the own one of an engine."""
    with make_engine(small, vocabulary=vocabulary) as engine:
        yield engine


@pytest.fixture(scope="module")
def engine(runtime: Runtime, model: Any, small: Any, vocabulary: Vocabulary) -> Iterator[BatchingEngine]:
    second = {"small": (small, vocabulary)}
    with make_engine(model, runtime=runtime, vocabulary=vocabulary, keep=2, second=second) as engine:
        engine.steady = True  # so that passes do not depend on how busy the machine is
        yield engine


def run(engine: BatchingEngine, body: str, **options: Any) -> list[GenerationResult]:
    return engine.run([Request(PROMPT, **{**script(body), "max_tokens": 40, **options})])


def lines_after(
    engine: BatchingEngine, alone: BatchingEngine, tokens: list[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the logits of the engine's own model and of the second one, each float64 [KNOWN]."""
    own, second = (each.next_logits([[*PROMPT, *tokens]])[0, :KNOWN] for each in (engine, alone))
    return own.astype(np.float64), second.astype(np.float64)


class FedTokens:
    """Records the tokens that each pass of the second model reads."""

    def __init__(self, engine: BatchingEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passes: list[list[int]] = []
        runner: Any = engine._second["small"].runner
        run = runner.run

        def counted(feeds: Any) -> Any:
            self.passes.append([len(feed.tokens) for feed in feeds])
            return run(feeds)

        monkeypatch.setattr(runner, "run", counted)


@pytest.mark.parametrize("language", ["python", "javascript"])
def test_tokens_are_sampled_from_the_sum_of_both_models(
    engine: BatchingEngine, alone: BatchingEngine, language: str
) -> None:
    (leader, follower) = engine.run([Request(PROMPT, **script(SHOWING[language], language), max_tokens=40)])
    assert leader.error is None and len(leader.new_tokens) == 6
    shown = [json.loads(line) for line in leader.log.splitlines()]
    for at, token in enumerate(leader.new_tokens):
        own, second = lines_after(engine, alone, leader.new_tokens[:at])
        expected = 1.5 * own - 0.5 * second
        np.testing.assert_allclose(shown[2 * at], expected, atol=1e-3)
        np.testing.assert_allclose(shown[2 * at + 1], own, atol=1e-3)
        assert token == int(expected.argmax())
    assert follower.new_tokens == leader.new_tokens
    assert (follower.finish_reason, follower.error) == (FinishReason.STOP, None)


def test_each_step_is_one_pass_of_each_model(engine: BatchingEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that do not use the second model, and those before, cost no pass of it."""
    fed = FedTokens(engine, monkeypatch)
    run(engine, "await gen(max_tokens=4)")
    assert fed.passes == []
    body = (
        'await force("ab")\nawait mix(None, -0.5, model="small")\nfor i in range(5): await sample()\nstop()'
    )
    one, two, *_ = engine.run([Request(PROMPT, **script(body), max_tokens=40) for _ in range(2)])
    assert one.error is None and two.error is None
    # both prompts first, or what the cache lacks of the second; then a token of each sequence in each pass
    assert sum(map(sum, fed.passes[:1])) <= 2 * (len(PROMPT) + 2)
    assert fed.passes[1:5] == [[1, 1]] * 4


def test_splices_are_followed(engine: BatchingEngine, alone: BatchingEngine) -> None:
    body = """
await mix(None, 2.0, model="small")
here = label()
await force('abc')
await sample(temperature=0)
await backtrack(here)
await force('d')
await sample(temperature=0)
await sample(temperature=0)
stop()
"""
    leader, follower = run(engine, body)
    assert leader.new_tokens[0] == ord("d") and leader.backtracked == 4
    for at in (1, 2):
        own, second = lines_after(engine, alone, leader.new_tokens[:at])
        assert leader.new_tokens[at] == int((2 * second - own).argmax())
    assert follower.new_tokens == leader.new_tokens


def test_a_fork_finds_its_text_in_the_cache_of_the_second_model(
    engine: BatchingEngine, alone: BatchingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = FedTokens(engine, monkeypatch)
    body = """
await force("once upon a time there was")
await mix(None, -1.0, model="small")
await sample(temperature=0)
if await fork(2) == 1:
    await mix(None, -1.0, model="small")
for i in range(3): await sample(temperature=0)
stop()
"""
    leader, _, child, *_ = run(engine, body)
    assert leader.new_tokens == child.new_tokens
    text = len(PROMPT) + len("once upon a time there was")
    assert text < sum(map(sum, fed.passes)) < text + 12, "the fork reads no prompt"


def test_another_text_for_the_second_model(engine: BatchingEngine, alone: BatchingEngine) -> None:
    body = """
async def other():
    await force("xyz")
await mix(other, -0.5, model="small")
for i in range(3): await sample(temperature=0)
stop()
"""
    leader, _ = run(engine, body)
    for at, token in enumerate(leader.new_tokens):
        own, _ = lines_after(engine, alone, leader.new_tokens[:at])
        _, second = lines_after(engine, alone, [*b"xyz", *leader.new_tokens[:at]])
        assert token == int((1.5 * own - 0.5 * second).argmax())


def test_an_unknown_name_ends_the_sequence_that_asks_for_it(engine: BatchingEngine) -> None:
    mate = Request([BOS, 1, 2], max_tokens=3)
    body = 'await mix(None, -0.5, model="large")\nawait gen()'
    leader, follower, other = engine.run([Request(PROMPT, **script(body), max_tokens=40), mate])
    assert other.error is None and len(other.new_tokens) == 3
    for result in (leader, follower):
        assert isinstance(result.error, ResultError)
        assert result.error.message == "there is no second model 'large'; this engine has 'small'"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("mix(None, float('inf'), model='small')", "a weight is a finite number"),
        (f"mix(None, 1.0, model='x' * {MAX_MODEL_NAME + 1})", f"at most {MAX_MODEL_NAME}"),
    ],
)
def test_invalid_mixes(engine: BatchingEngine, call: str, message: str) -> None:
    results = run(engine, f"await {call}\nawait gen()")
    errors = [result.error for result in results if result.error is not None]
    assert any(message in error.message for error in errors)


def test_texts_longer_than_the_second_model_reads(engine: BatchingEngine) -> None:
    begin = f"await force('x' * {LONGEST})\n"
    leader, _ = run(engine, begin + 'await mix(None, 1.0, model="small")\nawait gen()', max_tokens=100)
    assert isinstance(leader.error, ResultError)
    assert f"reads at most {LONGEST} tokens" in leader.error.message
    body = f"await mix(None, 1.0, model='small')\nawait force('x' * {LONGEST})\nawait gen()"
    leader, _ = run(engine, body, max_tokens=100)
    assert (leader.finish_reason, leader.error) == (FinishReason.LENGTH, None)


def test_the_first_other_token_is_named(model: Any, small: Any, vocabulary: Vocabulary) -> None:
    tokens = vocabulary.tokens.copy()
    tokens[65], tokens[70] = b"F", b"A"
    second = {"small": (small, replace(vocabulary, tokens=tokens))}
    with pytest.raises(
        VocabularyError, match=r"'small' has other tokens: token 65 is b'F' there, and b'A' in"
    ):
        make_engine(model, vocabulary=vocabulary, second=second)
    names = {**vocabulary.special_names, BOS: "<begin>"}
    second = {"small": (small, replace(vocabulary, special_names=names))}
    with pytest.raises(VocabularyError, match="token 256 is '<begin>' there, and '<s>' in"):
        make_engine(model, vocabulary=vocabulary, second=second)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([str(n) for n in range(MAX_SECOND + 1)], f"takes at most {MAX_SECOND}"),
        ([""], "has 1 to 64 bytes"),
        (["x" * 65], "has 1 to 64 bytes"),
    ],
)
def test_invalid_second_models(
    model: Any, small: Any, vocabulary: Vocabulary, names: list[str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make_engine(model, vocabulary=vocabulary, second=dict.fromkeys(names, (small, vocabulary)))


def test_an_error_of_the_second_model_ends_the_sequences(
    engine: BatchingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(feeds: Any) -> Any:
        raise RuntimeError("no pass")

    with monkeypatch.context() as patched:
        patched.setattr(engine._second["small"].runner, "run", broken)
        number = engine.add(
            Request(PROMPT, **script('await mix(None, 0.5, model="small")\nawait gen()'), max_tokens=20)
        )
        with pytest.raises(RuntimeError, match="no pass"):
            engine.run()
    assert isinstance(engine.results(number)[0].error, AiciError)
    leader, _ = run(engine, 'await mix(None, 0.5, model="small")\nawait sample()\nstop()')
    assert leader.error is None
