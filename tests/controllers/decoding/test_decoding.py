"""The decoding scripts compute what references in numpy compute from the same logits."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicirt.contract.abi import RowKind
from pyaici import LlamaEngine, LlamaModel, load_library
from pyaici.client.runtime import Runtime
from pyaici.engines.batching.engine import BatchingEngine
from pyaici.engines.engine import GenerationResult, Request, Sampling
from pyaici.models import default_gguf_path
from pyaici.testing import Playground, Transcript
from pyaici.toolchain import build_controller
from tests.pyaici.engines.batching.support import EOS, byte_vocabulary, make_engine, make_model
from tests.thorough import thorough

FOLDER = Path(__file__).resolve().parents[3] / "controllers" / "decoding"
MODULES = {".py": "pyctrl", ".js": "jsctrl"}
SCRIPTS = sorted(path for path in FOLDER.iterdir() if path.suffix in MODULES)
PROMPT = list(b"Tell")


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime(workers=1, num_dense=48) as runtime:
        yield runtime


@pytest.fixture(scope="module")
def engine(runtime: Runtime) -> Iterator[BatchingEngine]:
    """A tiny model whose tokens are bytes, with logits in float32."""
    with make_engine(
        make_model(initializer_range=0.1), runtime=runtime, vocabulary=byte_vocabulary()
    ) as engine:
        yield engine


def run(engine: BatchingEngine, name: str, *, seed: int = 1, **arg: Any) -> list[GenerationResult]:
    path = FOLDER / name
    script = {"script": path.read_text(), "name": name, "arg": arg}
    request = Request(
        PROMPT, MODULES[path.suffix], json.dumps(script), sampling=Sampling(seed=seed), max_tokens=200
    )
    results = engine.run([request])
    assert [result.error for result in results] == [None] * len(results)
    return results


def variable(results: list[GenerationResult], name: str) -> str:
    return results[0].variables[name].decode()


def texts_of(engine: BatchingEngine, pattern: str, alphabet: str, length: int) -> dict[str, float]:
    """Returns the probability of each text of the pattern, with its end, of at most `length` characters."""
    found, beginnings = dict[str, float](), {"": 0.0}
    for _ in range(length + 1):
        logits = engine.next_logits([[*PROMPT, *text.encode()] for text in beginnings]).astype(np.float64)
        logprobs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        longer = {}
        for (text, before), line in zip(beginnings.items(), logprobs, strict=True):
            if re.fullmatch(pattern, text):
                found[text] = math.exp(before + line[EOS])
            longer |= {text + one: before + line[ord(one)] for one in alphabet}
        beginnings = longer if len(next(iter(longer))) <= length else {"": 0.0}
    return found


def test_scripts_are_short_and_name_their_paper() -> None:
    for path in FOLDER.iterdir():
        source = path.read_text()
        assert source.count("\n") <= 80 and max(map(len, source.splitlines())) <= 120, path.name
        if path.suffix == ".py":
            assert re.search(r"\(20\d\d, arXiv\s\d{4}\.\d{5}\)", source), path.name


# -- patterns: sequential Monte Carlo, and ASAp ------------------------------------------------------------


#: a mask takes "a" too seldom, after which the model has eight ways to go on
PATTERN, ALPHABET = "a[a-h]|[bc]a", "abcdefgh"


def test_the_estimate_of_monte_carlo_is_unbiased(engine: BatchingEngine) -> None:
    exact = texts_of(engine, PATTERN, ALPHABET, 2)
    runs = [run(engine, "smc.py", seed=seed, pattern=PATTERN, particles=6, tokens=5) for seed in range(40)]
    estimates = np.array([float(variable(results, "probability")) for results in runs])
    error = estimates.std(ddof=1) / math.sqrt(len(estimates))
    assert abs(estimates.mean() - sum(exact.values())) < 4 * error
    assert error < 0.2 * sum(exact.values()), "the estimates say little"
    # weighted by the estimates, the texts are samples of the model given the pattern
    found = Counter[str]()
    for results, estimate in zip(runs, estimates, strict=True):
        for place in range(6):
            found[variable(results, f"text{place}")] += float(estimate) / estimates.sum() / 6
    assert found.keys() <= exact.keys()
    shares = {text: probability / sum(exact.values()) for text, probability in exact.items()}
    assert sum(abs(shares[text] - found[text]) for text in shares) / 2 < 0.15
    assert results[0].text == variable(results, "text0")


def test_a_mask_alone_has_another_distribution_than_the_model(engine: BatchingEngine) -> None:
    """Else the tests of this file would show nothing."""
    exact = texts_of(engine, PATTERN, ALPHABET, 2)
    request = Request(PROMPT, "regex", PATTERN, sampling=Sampling(1.0, seed=1), max_tokens=9, n=400)
    found = Counter(result.text for result in engine.run([request]))
    total = sum(exact.values())
    assert sum(abs(exact[text] / total - found[text] / 400) for text in exact) / 2 > 0.2


def test_asap_learns_the_probability_of_the_pattern(engine: BatchingEngine) -> None:
    exact = texts_of(engine, PATTERN, ALPHABET, 2)
    total = sum(exact.values())
    few = run(engine, "asap.py", pattern=PATTERN, samples=3, tokens=5)
    many = run(engine, "asap.py", pattern=PATTERN, samples=200, tokens=5)
    bounds = [float(variable(results, "bound")) for results in (few, many)]
    assert bounds[0] > 2 * total
    found = variable(many, "texts").split("\n")
    assert set(found) == exact.keys() and many[0].text == found[-1]
    assert bounds[1] == pytest.approx(total, rel=1e-3), "all texts are known"
    late = Counter(found[50:])
    assert sum(abs(exact[text] / total - late[text] / 150) for text in exact) / 2 < 0.12


# -- watermarks ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def playground() -> Iterator[Playground]:
    with Playground() as playground:
        yield playground


def mixed(x: int) -> int:
    x = (x ^ x >> 16) * 0x7FEB352D % 2**32
    x = (x ^ x >> 15) * 0x846CA68B % 2**32
    return x ^ x >> 16


def green_tokens(size: int, key: int, share: float, last: int) -> set[int]:
    ring = sorted(range(size), key=lambda token: mixed(token ^ mixed(key)))
    start = mixed((last + mixed(key + 1)) % 2**32) % size
    return {ring[(start + place) % size] for place in range(int(size * share))}


def biases(answer: Any, size: int) -> np.ndarray:
    """Returns what a row adds to each logit: float64 [size]."""
    assert answer.row.kind == RowKind.DENSE
    return np.array(answer.row.bias[:size], np.float64)


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_three_languages_make_the_same_watermark(
    playground: Playground, tmp_path: Path, share: float
) -> None:
    wish = "How vexingly quick daft zebras jump! The five boxing wizards do so, too. " * 3
    key, bias, tokens = 7, 3.5, 24
    options: dict[str, Any] = {"prompt": "Mark:", "temperature": 1.0, "seed": 5}
    arg = {"key": key, "share": share, "bias": bias, "tokens": tokens}
    built = build_controller(FOLDER / "kirchenbauer.cpp", tmp_path / "kirchenbauer.wasm").path
    played: list[Transcript] = [
        playground.play(FOLDER / "kirchenbauer.py", wish, arg=arg, **options),
        playground.play(FOLDER / "kirchenbauer.js", wish, arg=arg, **options),
        playground.play(built, wish, arg=f"{key} {share} {bias} {tokens}", **options),
    ]
    for transcript in played:
        assert transcript.error is None and len(transcript.tokens) == tokens
        assert transcript.tokens == played[0].tokens
    size = playground.vocabulary.vocab_size
    before = [playground.tokenize(b"Mark:")[-1], *played[0].tokens]
    for transcript in played:
        for last, answer in zip(before, transcript.answers[:tokens], strict=False):
            found = biases(answer, size)
            expected = green_tokens(size, key, share, last)
            assert set(np.flatnonzero(np.isclose(found, bias)).tolist()) <= expected
            assert {token for token in expected if np.isfinite(found[token])} == set(
                np.flatnonzero(np.isclose(found, bias)).tolist()
            )
    pairs = set(zip(played[0].tokens, played[0].tokens[1:], strict=False))
    hits = sum(token in green_tokens(size, key, share, last) for last, token in pairs)
    z = (hits - share * len(pairs)) / math.sqrt(len(pairs) * share * (1 - share))
    for transcript in played[:2]:
        assert float(transcript.variables["z"]) == pytest.approx(z, abs=0.006)


TOPICS = (
    *("the sea", "a town", "bread", "a walk", "trains", "winter", "a key", "the moon", "music", "tea"),
    *("a garden", "rivers", "a book", "cats", "a desert", "a bridge", "stars", "school", "rain", "maps"),
)


@pytest.fixture(scope="module")
def smollm(runtime: Runtime) -> Iterator[LlamaEngine]:
    with LlamaModel(load_library(), default_gguf_path()) as model, LlamaEngine(model, runtime) as engine:
        yield engine


@pytest.mark.slow
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_work_with_the_prompt_and_the_argument_that_they_propose(
    smollm: LlamaEngine, path: Path
) -> None:
    source = path.read_text()
    (prompt,) = re.findall(r"^(?: \* )?Prompt: (.*)$", source, re.MULTILINE)
    (argument,) = re.findall(r"^(?: \* )?Argument: (.*)$", source, re.MULTILINE)
    script = {"script": source, "name": path.name, "arg": json.loads(argument)}
    chat = [{"role": "user", "content": prompt}]
    results = smollm.run([Request(chat, MODULES[path.suffix], json.dumps(script), max_tokens=250)])
    assert [result.error for result in results] == [None] * len(results)
    assert results[0].text and results[0].variables


@pytest.mark.slow
def test_the_watermark_is_found_in_200_tokens_of_a_real_model(smollm: LlamaEngine) -> None:
    name = "kirchenbauer.py"

    def marks(prompts: list[Any], **arg: Any) -> list[GenerationResult]:
        script = json.dumps({"script": (FOLDER / name).read_text(), "name": name, "arg": arg})
        return smollm.run(
            Request(prompt, "pyctrl", script, sampling=Sampling(1.0, seed=seed), max_tokens=201)
            for seed, prompt in enumerate(prompts)
        )

    prompts = [
        [{"role": "user", "content": f"Write about {topic}."}]
        for topic in (TOPICS if thorough() else TOPICS[:4])
    ]
    marked = marks(prompts, key=42, share=0.5, bias=2, tokens=200)
    assert all(result.error is None for result in marked)
    assert min(float(result.variables["z"]) for result in marked) > 4
    texts: list[Any] = [result.text for result in marked]
    found, others = (
        [float(result.variables["z"]) for result in marks(texts, key=key, detect=True)] for key in (42, 43)
    )
    assert min(found) > 4, "the text alone has the mark"
    assert max(others) < 4, "another key finds nothing"
