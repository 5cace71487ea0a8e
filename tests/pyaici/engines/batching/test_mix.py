"""Sequences that follow another one and take part in sampling its tokens, with real models."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aicirt.contract.abi import Verb
from aicirt.contract.errors import ResultError
from pyaici.client.results import Follow
from pyaici.client.runtime import Runtime
from pyaici.engines.batching.engine import BatchingEngine
from pyaici.engines.engine import FinishReason, Request, Sampling
from pyaici.tokens import Vocabulary
from tests.pyaici.engines.batching.scripted import Script, ScriptedRuntime, anything
from tests.pyaici.engines.batching.support import BOS, CountingPasses, make_engine, script

PROMPT = [BOS, 72, 101, 108]
MATE = [BOS, 1, 2, 3, 4, 5, 6]
KNOWN = 258
#: what others write before they follow, and their weights
ONE = {b"xyz": -0.5}
TWO = {b"xyz": 0.75, b"": -0.25}
#: prints each distribution before it samples
SHOWING = {
    "python": """
for i in range(6):
    print(list((await distribution()).logits)[:258])
    await sample(temperature=0)
stop()
""",
    "javascript": """
  for (let i = 0; i < 6; i++) {
    console.log(JSON.stringify([...(await distribution()).logits].slice(0, 258)));
    await sample(undefined, { temperature: 0 });
  }
  stop();
""",
}


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime(workers=1, num_dense=8) as runtime:
        yield runtime


@pytest.fixture
def engine(runtime: Runtime, model: Any, vocabulary: Vocabulary) -> Iterator[BatchingEngine]:
    with make_engine(model, runtime=runtime, vocabulary=vocabulary) as engine:
        yield engine


def mixing(others: dict[bytes, float], then: str, language: str = "python") -> dict[str, Any]:
    """Returns a script that mixes the logits after these texts into its own, and goes on."""
    lines = []
    for number, (text, weight) in enumerate(others.items()):
        said = json.dumps(text.decode())
        if language == "python":
            lines += [
                f"async def other{number}():",
                f"    await force({said})",
                f"await mix(other{number}, {weight})",
            ]
        else:
            lines.append(f"await mix(async () => force({said}), {weight});")
    if language == "python":
        return script("\n".join([*lines, *then.splitlines()]))
    return script("".join(lines) + then, language)


def mixed(engine: BatchingEngine, others: dict[bytes, float], tokens: Sequence[int]) -> NDArray[np.float64]:
    """Returns the mixed logits after some tokens, float64 [KNOWN], from the model's own."""
    texts = [PROMPT, *([*PROMPT, *text] for text in others)]
    lines = engine.next_logits([[*text, *tokens] for text in texts])[:, :KNOWN].astype(np.float64)
    weights = np.array([1 - sum(others.values()), *others.values()])
    return weights @ lines


@pytest.mark.parametrize("language", ["python", "javascript"])
@pytest.mark.parametrize("others", [ONE, TWO], ids=["one", "two"])
def test_tokens_are_sampled_from_the_weighted_sum(
    engine: BatchingEngine, generate: Callable[..., list[int]], others: dict[bytes, float], language: str
) -> None:
    """Looks show the sum as well. A sequence beside them is not affected."""
    leader, *rest = engine.run(
        [
            Request(PROMPT, **mixing(others, SHOWING[language], language), max_tokens=40),
            Request(MATE, max_tokens=12),
        ]
    )
    *followers, mate = rest
    assert mate.new_tokens == generate(MATE, 12)
    assert leader.error is None and len(leader.new_tokens) == 6
    for at, line in enumerate(leader.log.splitlines()):
        expected = mixed(engine, others, leader.new_tokens[:at])
        np.testing.assert_allclose(json.loads(line), expected, atol=1e-3)
        assert int(expected.argmax()) == leader.new_tokens[at]
    for text, follower in zip(others, followers, strict=True):
        assert follower.new_tokens == [*text, *leader.new_tokens]
        assert (follower.finish_reason, follower.error) == (FinishReason.STOP, None)


def test_forced_and_removed_tokens_are_followed(engine: BatchingEngine) -> None:
    then = """
here = label()
await force('abc')
await sample(temperature=0)
await backtrack(here)
await force('d')
await sample(temperature=0)
stop()
"""
    leader, follower = engine.run([Request(PROMPT, **mixing(ONE, then))])
    assert leader.new_tokens[0] == ord("d") and leader.backtracked == 4
    assert leader.new_tokens[1] == int(mixed(engine, ONE, b"d").argmax())
    assert follower.new_tokens == [*b"xyz", *leader.new_tokens]


def test_each_step_has_a_token_for_both(engine: BatchingEngine) -> None:
    """A follower costs what any sequence costs: as many passes as two sequences that go on freely."""
    passes = []
    for body in (mixing(ONE, "await gen(max_tokens=20)"), script("await fork(2)\nawait gen(max_tokens=20)")):
        engine._prefixes.clear()
        with CountingPasses(engine) as counting:
            results = engine.run([Request(PROMPT, **body, sampling=Sampling(logit_bias=((257, -100.0),)))])
        assert len(results) == 2 and all(len(result.new_tokens) >= 20 for result in results)
        passes.append(len(counting.passes))
    assert passes[0] <= passes[1] + 4  # until the other one follows


def test_a_follower_at_its_limit_ends_its_leader(engine: BatchingEngine) -> None:
    results = engine.run([Request(PROMPT, **mixing(ONE, "await gen()"), max_tokens=10)])
    leader, follower = results
    assert leader.finish_reason in (FinishReason.LENGTH, FinishReason.EOS) and len(leader.new_tokens) <= 7
    assert follower.new_tokens == [*b"xyz", *leader.new_tokens]


@pytest.mark.parametrize("leader", ["12345", "_aici.fork_group()[1]"], ids=["unknown", "itself"])
def test_what_cannot_be_followed(engine: BatchingEngine, leader: str) -> None:
    """The library follows only sequences that it has forked from."""
    body = f"""
        import _aici
        from aici import _Action
        if await fork(2) == 1:
            leader = {leader}
            await _Action("mix", lambda: _aici.begin_follow(leader, 1.0, ""), lambda: None)
        await sample()
    """
    first, second = engine.run([Request(PROMPT, **script(textwrap.dedent(body)))])
    assert first.error is None
    assert isinstance(second.error, ResultError) and "cannot be followed" in second.error.message


def test_forks_that_are_followed(engine: BatchingEngine) -> None:
    """Each branch of a request has others of its own."""
    before = "    mine = await fork(2)\n    await force(str(mine))\n"
    body = mixing(ONE, "for i in range(3): await sample(temperature=0)\nstop()")
    arg = json.loads(body["arg"])
    begin = "async def main():\n"
    arg["script"] = arg["script"].replace(begin, begin + before)
    results = engine.run([Request(PROMPT, controller="pyctrl", arg=json.dumps(arg))])
    assert [len(result.new_tokens) for result in results] == [4, 4, 7, 7]
    for number, result in enumerate(results[:2]):
        tokens = [*str(number).encode()]
        for token in result.new_tokens[1:]:
            texts = [[*PROMPT, *tokens], [*PROMPT, tokens[0], *b"xyz", *tokens[1:]]]
            own, other = engine.next_logits(texts)[:, :KNOWN].astype(np.float64)
            assert token == int((1.5 * own - 0.5 * other).argmax())
            tokens.append(token)


def test_all_that_wait_while_one_follows_end(engine: BatchingEngine) -> None:
    """A follower writes no variable."""
    leader, _ = engine.run([Request(PROMPT, **mixing(ONE, "await wait('never')"))])
    assert leader.error is not None and leader.error.code == "deadlock"


def test_a_broken_worker_mixes_no_sequences_of_others(model: Any, vocabulary: Vocabulary) -> None:
    """Nor does it keep one for ever, which would follow itself."""

    def begin(arg: str, prompt: list[int]) -> Script:
        return Script(Follow(Verb.FOLLOW, leader=int(arg), weight=0.5) if arg else anything())

    runtime: Any = ScriptedRuntime(any=begin)
    with make_engine(model, runtime=runtime, vocabulary=vocabulary) as engine:
        number = engine.add(Request(PROMPT, controller="any", arg="", max_tokens=4))
        (other,) = runtime.live
        wrong = [
            engine.add(Request(PROMPT, controller="any", arg=str(other + n), max_tokens=4)) for n in (0, 2)
        ]
        engine.run()
        assert engine.results(number)[0].error is None and other + 2 in runtime.ever
        for each in wrong:
            (result,) = engine.results(each)
            assert isinstance(result.error, ResultError) and result.new_tokens == []
