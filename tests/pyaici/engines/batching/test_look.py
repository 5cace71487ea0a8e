"""Scripts that look at the distribution before a token is sampled, with real models and the real runtime."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from aicirt.contract.errors import SpaceError
from pyaici.client.runtime import Runtime
from pyaici.engines.batching.engine import BatchingEngine
from pyaici.engines.batching.sampler import score
from pyaici.engines.engine import Request, Sampling
from pyaici.tokens import Vocabulary
from tests.pyaici.engines.batching.support import BOS, CountingPasses, make_engine, script

PROMPT = [BOS, 72, 101, 108]
MATE = [BOS, 1, 2, 3, 4, 5, 6]
#: tokens that have logits: the rest are ids without tokens
KNOWN = 258
MAIN = "from aici import *\nasync def main():\n"

#: prints what each look shows, and samples the most likely token
BOTH = {
    "pyctrl": """
import json
from aici import TokenSet, distribution, likely, sample

async def main():
    for _ in range(3):
        seen = await distribution()
        print(json.dumps({
            "logits": list(seen.logits)[:258], "top": seen.likely(4), "entropy": seen.entropy,
            "mass": seen.mass(TokenSet([1, 2, 3])), "one": seen.logprob(5), "likely": await likely(4),
        }))
        await sample(temperature=0)
""",
    "jsctrl": """
import { TokenSet, distribution, likely, sample } from "aici";

const pairs = (top) => top.map((one) => [one.token, one.logprob]);

export async function main() {
  for (let i = 0; i < 3; i++) {
    const seen = await distribution();
    console.log(JSON.stringify({
      logits: [...seen.logits].slice(0, 258), top: pairs(seen.likely(4)), entropy: seen.entropy,
      mass: seen.mass(new TokenSet([1, 2, 3])), one: seen.logprob(5), likely: pairs(await likely(4)),
    }));
    await sample(undefined, { temperature: 0 });
  }
}
""",
}


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime(workers=1, num_dense=3) as runtime:
        yield runtime


@pytest.fixture
def engine(runtime: Runtime, model: Any, vocabulary: Vocabulary) -> Iterator[BatchingEngine]:
    with make_engine(model, runtime=runtime, vocabulary=vocabulary) as engine:
        yield engine


def request(source: str, module: str = "pyctrl", **options: Any) -> Request:
    name = "script.py" if module == "pyctrl" else "script.js"
    return Request(PROMPT, controller=module, arg=json.dumps({"script": source, "name": name}), **options)


@pytest.mark.parametrize("module", BOTH)
def test_what_is_seen_is_the_models_distribution(
    engine: BatchingEngine, generate: Callable[..., list[int]], module: str
) -> None:
    """Beside a sequence that is not affected. A temperature and the request's biases do not change it."""
    sampling = Sampling(temperature=0.3, logit_bias=((70, 5.0),))
    looking, mate = engine.run(
        [request(BOTH[module], module, sampling=sampling), Request(MATE, max_tokens=8)]
    )
    assert mate.new_tokens == generate(MATE, 8)
    assert looking.error is None
    for at, line in enumerate(looking.log.splitlines()):
        seen = json.loads(line)
        (logits,) = engine.next_logits([PROMPT + looking.new_tokens[:at]])
        np.testing.assert_allclose(seen["logits"], logits[:KNOWN], atol=1e-3)
        shown = np.array(seen["logits"], np.float64)
        probabilities = np.exp(shown - shown.max())
        probabilities /= probabilities.sum()
        _, top, _ = score(np.array(seen["logits"], np.float32), 0, 4)
        for name in ("top", "likely"):
            assert [token for token, _ in seen[name]] == [token for token, _ in top]
            np.testing.assert_allclose([p for _, p in seen[name]], [p for _, p in top], atol=1e-4)
        assert seen["entropy"] == pytest.approx(-(probabilities * np.log(probabilities)).sum(), abs=1e-4)
        assert seen["mass"] == pytest.approx(probabilities[1:4].sum(), abs=1e-5)
        assert seen["one"] == pytest.approx(np.log(probabilities[5]), abs=1e-4)


def test_a_look_takes_no_pass(engine: BatchingEngine) -> None:
    """The tokens that the model reads are the same, and so is the text."""
    counted = []
    for look in ("", "await distribution(); await likely(2); "):
        source = (
            f"from aici import *\nasync def main():\n  for i in range(5): {look}await sample(temperature=0)"
        )
        engine._prefixes.clear()
        with CountingPasses(engine) as counting:
            (result,) = engine.run([request(source)])
        counted.append((sum(map(sum, counting.passes)), result.new_tokens))
    assert counted[0] == counted[1]


CALLBACKS = """
from aici import Look, Sample, Stop, TokenSet

def mid_process(step):
    if step.number > 7:
        return Stop()
    if step.looked and step.distribution is not None:
        return Sample(TokenSet([step.distribution.likely(2)[1][0]]))
    return Look(2) if not step.looked else Look()
"""


def test_callbacks_see_lists_and_then_all_logits(engine: BatchingEngine) -> None:
    """Each token is the second most likely one."""
    (result,) = engine.run([request(CALLBACKS)])
    assert result.error is None and len(result.new_tokens) == 2
    for at, token in enumerate(result.new_tokens):
        (logits,) = engine.next_logits([PROMPT + result.new_tokens[:at]])
        assert np.argsort(-logits)[1] == token


def test_more_that_look_than_rows(engine: BatchingEngine) -> None:
    """Sequences that find no row end with an error of their own; rows of others are free afterwards."""
    source = f"{MAIN}  for i in range(4):\n    await distribution()\n    await sample()"
    for _ in range(2):
        results = engine.run([request(source) for i in range(5)])
        failed = [result for result in results if result.error is not None]
        assert len(failed) == 2 and all(isinstance(result.error, SpaceError) for result in failed)
        assert [len(result.new_tokens) for result in results if result.error is None] == [4, 4, 4]


@pytest.mark.parametrize(
    ("takes", "needs"),
    [
        ('await gen(regex="[a-c]{2}")', 'await gen(regex="[d-f]{9}")'),
        (
            "await sample(favoured=TokenSet(range(200)), bias=9.0)",
            "for i in range(9):\n    await distribution()\n    await sample(temperature=0)",
        ),
    ],
    ids=["masks", "biases"],
)
def test_sequences_that_wait_leave_rows_to_other_owners(
    model: Any, vocabulary: Vocabulary, takes: str, needs: str
) -> None:
    with (
        Runtime(workers=1, num_rows=8, num_dense=8) as runtime,
        make_engine(model, runtime=runtime, vocabulary=vocabulary) as engine,
    ):
        for _ in range(17):
            engine.add(Request(PROMPT, **script(f"{takes}\nawait sleep(1000)"), owner="eve"))
            while any(seq.parked is None for seq in engine._pool.live.values()):
                engine.step()
        assert len(engine._pool.live) >= 7
        ann = engine.add(Request(PROMPT, **script(needs), owner="ann", max_tokens=20))
        while engine._pool.unfinished(ann):
            engine.step()
        (result,) = engine.results(ann)
        assert result.error is None and len(result.new_tokens) == 9
