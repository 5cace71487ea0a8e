"""The decoding scripts compute what references in numpy compute from the same logits."""

from __future__ import annotations

import contextlib
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
from pyaici.tokens import load_vocabulary
from pyaici.toolchain import build_controller
from tests.pyaici.engines.batching.support import EOS, byte_vocabulary, make_engine, make_model
from tests.thorough import also, cases, thorough

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
    """A tiny model whose tokens are bytes, with logits in float32, and two second models."""
    second = {name: (model, byte_vocabulary()) for name, model in small_models().items()}
    with make_engine(
        make_model(initializer_range=0.1), runtime=runtime, vocabulary=byte_vocabulary(), second=second
    ) as engine:
        yield engine


def small_models() -> dict[str, Any]:
    return {"good": make_model(num_hidden_layers=1), "bad": make_model(hidden_size=16, head_dim=4)}


@pytest.fixture(scope="module")
def small() -> Iterator[dict[str, BatchingEngine]]:
    """The second models of `engine`, each in an engine of its own."""
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(make_engine(model, vocabulary=byte_vocabulary()))
            for name, model in small_models().items()
        }


@pytest.fixture(scope="module")
def sharp(runtime: Runtime) -> Iterator[BatchingEngine]:
    """A model that is surer of some tokens than others."""
    with make_engine(make_model(), runtime=runtime, vocabulary=byte_vocabulary()) as engine:
        yield engine


def run(
    engine: BatchingEngine, name: str, *, seed: int = 1, prompt: list[int] = PROMPT, **arg: Any
) -> list[GenerationResult]:
    path = FOLDER / name
    script = {"script": path.read_text(), "name": name, "arg": arg}
    request = Request(
        prompt, MODULES[path.suffix], json.dumps(script), sampling=Sampling(seed=seed), max_tokens=200
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
            assert re.search(r"\(20\d\d, (arXiv\s\d{4}\.\d{5}|doi 10\.\S+)\)", source), path.name


# -- patterns: sequential Monte Carlo, and ASAp ------------------------------------------------------------


#: a mask takes "a" too seldom, after which the model has eight ways to go on
PATTERN, ALPHABET = "a[a-h]|[bc]a", "abcdefgh"


def test_the_estimate_of_monte_carlo_is_unbiased(engine: BatchingEngine) -> None:
    exact = texts_of(engine, PATTERN, ALPHABET, 2)
    runs = [
        run(engine, "smc.py", seed=seed, pattern=PATTERN, particles=6, tokens=5)
        for seed in range(cases(24, 40))
    ]
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


# -- truncation and temperature ----------------------------------------------------------------------------


def logprobs_along(engine: BatchingEngine, tokens: list[int]) -> np.ndarray:
    """Returns the log-probabilities of all tokens at each place of a text: float64 [places, vocabulary]."""
    beginnings = [[*PROMPT, *tokens[:place]] for place in range(len(tokens))]
    logits = engine.next_logits(beginnings).astype(np.float64)
    return np.asarray(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))


def entropies(lines: np.ndarray) -> np.ndarray:
    return np.asarray(-np.sum(np.exp(lines) * np.where(np.isfinite(lines), lines, 0), axis=1))


def test_the_temperature_follows_the_entropy(sharp: BatchingEngine) -> None:
    results = run(sharp, "edt.py", highest=1.2, theta=3.0, tokens=12)
    lines = logprobs_along(sharp, results[0].new_tokens)
    found = json.loads(variable(results, "temperatures"))
    assert found == pytest.approx(1.2 * 0.8 ** (3.0 / entropies(lines)), abs=2e-4)
    assert len(set(found)) > 6


def test_eta_keeps_the_tokens_that_the_paper_keeps(sharp: BatchingEngine) -> None:
    results = run(sharp, "eta.py", epsilon=0.003, tokens=12)
    lines = logprobs_along(sharp, results[0].new_tokens)
    least = np.minimum(0.003, math.sqrt(0.003) * np.exp(-entropies(lines)))
    kept = np.exp(lines) > least[:, None]
    assert json.loads(variable(results, "kept")) == kept.sum(axis=1).tolist()
    assert all(kept[place, token] for place, token in enumerate(results[0].new_tokens))
    assert 1 < kept.sum() < 258 * len(kept)


def test_mirostat_keeps_as_many_tokens_as_the_paper(sharp: BatchingEngine) -> None:
    results = run(sharp, "mirostat.py", target=4.0, rate=0.5, tokens=15)
    tokens, lines = results[0].new_tokens, logprobs_along(sharp, results[0].new_tokens)
    mu, counts, size = 8.0, [], sharp.vocabulary.vocab_size
    for token, line in zip(tokens, lines, strict=True):
        ranked = np.sort(line)[::-1][:100]
        steps = np.log((np.arange(99) + 2) / (np.arange(99) + 1))
        s = float((steps * -np.diff(ranked)).sum() / (steps**2).sum())
        count = ((s - 1) * 2**mu / (1 - size ** (1 - s))) ** (1 / s)
        counts.append(max(1, min(size, round(count))))
        assert line[token] >= np.sort(line)[::-1][counts[-1] - 1] - 1e-6
        mu -= 0.5 * (-line[token] / math.log(2) - 4.0)
    assert json.loads(variable(results, "kept")) == counts and len(set(counts)) > 2
    assert float(variable(results, "mu")) == pytest.approx(mu, abs=1e-3)


# -- mixed logits ------------------------------------------------------------------------------------------


def mixed_greedily(engine: BatchingEngine, texts: dict[str, float], length: int) -> list[int]:
    """Returns the likeliest tokens of a weighted sum of the logits after several texts."""
    tokens = list[int]()
    for _ in range(length):
        lines = engine.next_logits([[*PROMPT, *text.encode(), *tokens] for text in texts])[:, :256]
        tokens.append(int((np.array(list(texts.values())) @ lines.astype(np.float64)).argmax()))
    return tokens


@pytest.mark.parametrize("instead", ["", "Not so. "])
def test_guidance_mixes_the_logits_of_two_contexts(engine: BatchingEngine, instead: str) -> None:
    arg = {"context": "The sky is green. ", "question": "Is it?", "alpha": 1.5, "tokens": 8}
    results = run(engine, "guidance.py", **arg, instead=instead)
    texts = {"The sky is green. Is it?": 2.5, f"{instead}Is it?": -1.5}
    expected = mixed_greedily(engine, texts, 8)
    assert results[0].new_tokens[len("The sky is green. Is it?") :][:8] == expected
    assert expected != mixed_greedily(engine, {"The sky is green. Is it?": 1.0}, 8)


def test_experts_add_their_difference(engine: BatchingEngine) -> None:
    results = run(engine, "experts.py", expert="Good: ", anti="Bad: ", begin="x", alpha=2.0, tokens=8)
    expected = mixed_greedily(engine, {"x": 1.0, "Good: x": 2.0, "Bad: x": -2.0}, 8)
    assert results[0].new_tokens[1:][:8] == expected
    assert expected != mixed_greedily(engine, {"x": 1.0}, 8)


def test_experts_may_be_models_of_their_own(engine: BatchingEngine, small: dict[str, BatchingEngine]) -> None:
    results = run(engine, "experts.py", models=["good", "bad"], begin="x", alpha=0.7, tokens=8)
    expected = [ord("x")]
    for _ in range(8):
        after = [[*PROMPT, *expected]]
        own, good, bad = (each.next_logits(after)[0, :256] for each in (engine, *small.values()))
        expected.append(int((own + 0.7 * (good - bad)).argmax()))
    assert results[0].new_tokens[:9] == expected
    assert expected != [ord("x"), *mixed_greedily(engine, {"x": 1.0}, 8)]


@pytest.mark.parametrize(("alpha", "tau"), [(0.3, 1.0), (0.01, 0.5)])
def test_contrastive_decoding_takes_the_plausible_token_with_the_largest_difference(
    engine: BatchingEngine, small: dict[str, BatchingEngine], alpha: float, tau: float
) -> None:
    results = run(engine, "contrastive.py", amateur="bad", alpha=alpha, tau=tau, tokens=10)
    tokens, counts, likeliest = results[0].new_tokens, [], 0
    for place in range(len(tokens)):
        lines = [each.next_logits([[*PROMPT, *tokens[:place]]])[0, :258] for each in (engine, small["bad"])]
        expert, amateur = (
            line - np.logaddexp.reduce(line)
            for line in (lines[0].astype(np.float64), lines[1].astype(np.float64) / tau)
        )
        plausible = np.flatnonzero(expert >= expert.max() + math.log(alpha))
        counts.append(len(plausible))
        assert tokens[place] == max(plausible.tolist(), key=lambda token: expert[token] - amateur[token])
        likeliest += tokens[place] == expert.argmax()
    assert json.loads(variable(results, "plausible")) == counts
    assert likeliest < len(tokens), "the amateur changes the text"


# -- a tree search ----------------------------------------------------------------------------------------


class Branch:
    """A node of the reference's tree: the text, and the mean value of its rounds."""

    def __init__(self, text: list[int], prior: float) -> None:
        self.text, self.prior, self.values = text, prior, list[float]()
        self.children: list[Branch] = []

    def bounds(self, weight: float) -> list[float]:
        return [
            (sum(child.values) / len(child.values) if child.values else 0.0)
            + weight * child.prior * math.sqrt(len(self.values)) / (1 + len(child.values))
            for child in self.children
        ]


def tree_search(
    engine: BatchingEngine, question: str, tokens: int, rounds: int, width: int, ahead: int, weight: float
) -> tuple[list[int], list[float]]:
    """Returns the tokens, and the mean value of each when it was chosen."""

    def logits(text: list[int]) -> np.ndarray[Any, np.dtype[np.float64]]:
        return engine.next_logits([[*PROMPT, *text]])[0, :258].astype(np.float64)

    def value(text: list[int]) -> float:
        for _ in range(ahead):
            token = int(logits(text).argmax())
            if token == EOS:
                break
            text = [*text, token]
        line = logits([*text, *question.encode()])
        return 1 / (1 + math.exp(line[ord("n")] - line[ord("y")]))

    root, values = Branch([], 1.0), []
    for _ in range(tokens):
        for _ in range(rounds):
            path = [root]
            while path[-1].children:
                path.append(path[-1].children[int(np.argmax(path[-1].bounds(weight)))])
            line = logits(path[-1].text)
            best = np.argsort(-line, kind="stable")[:width]
            path[-1].children = [
                Branch([*path[-1].text, int(token)], math.exp(line[token] - np.logaddexp.reduce(line)))
                for token in best
            ]
            found = value(path[-1].text)
            for branch in path:
                branch.values.append(found)
        root = root.children[int(np.argmax([len(child.values) for child in root.children]))]
        values.append(sum(root.values) / len(root.values))
    return root.text, values


@pytest.mark.parametrize("weight", [0.5, 4.0])
def test_the_tree_search_is_that_of_a_reference(engine: BatchingEngine, weight: float) -> None:
    asked: dict[str, Any] = {
        "question": "?",
        "tokens": 4,
        "rounds": 8,
        "width": 3,
        "ahead": 2,
        "weight": weight,
    }
    results = run(engine, "ppl_mcts.py", **asked, yes="y", no="n")
    tokens, values = tree_search(engine, **asked)
    assert results[0].new_tokens == tokens
    assert json.loads(variable(results, "values")) == pytest.approx(values, abs=1e-5)


# -- beams -------------------------------------------------------------------------------------------------


def diverse_beams(
    engine: BatchingEngine, groups: int, width: int, penalty: float, length: int
) -> list[float]:
    """Returns the scores of the beams of all groups, in order."""
    beams: list[list[tuple[float, tuple[int, ...]]]] = [[(0.0, ())] for _ in range(groups)]
    for _ in range(length):
        taken = Counter[int]()
        for group, old in enumerate(beams):
            logits = engine.next_logits([[*PROMPT, *text] for _, text in old]).astype(np.float64)
            lines = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
            found = [
                (score + line[token] - penalty * taken[token], score + line[token], (*text, token))
                for (score, text), line in zip(old, lines, strict=True)
                for token in range(256)
            ]
            beams[group] = [each[1:] for each in sorted(found, reverse=True)[:width]]
            for _, text in beams[group]:
                taken[text[-1]] += 1
    return [score for group in beams for score, _ in group]


@pytest.mark.parametrize("penalty", [0.0, 0.4])
def test_diverse_beams_are_those_of_a_reference(engine: BatchingEngine, penalty: float) -> None:
    results = run(engine, "diverse_beams.py", groups=3, width=2, penalty=penalty, tokens=4)
    expected = diverse_beams(engine, 3, 2, penalty, 4)
    found = [json.loads(variable(results, f"beam{place}"))[0] for place in range(6)]
    assert found == pytest.approx(expected, abs=1e-4)
    assert (len(set(np.round(found, 4))) == 2) == (penalty == 0), "without a penalty, groups are the same"


def test_stochastic_beams_estimate_means_over_all_texts(engine: BatchingEngine) -> None:
    """Weighted by the inverse of the probability to be among the beams, they are unbiased."""
    totals, firsts = [], []
    best = int(np.argmax(logprobs_along(engine, [0])[0]))
    for seed in range(cases(25, 60)):
        results = run(engine, "stochastic_beams.py", seed=seed, beams=4, tokens=2, candidates=258)
        threshold = float(variable(results, "threshold"))
        beams = [json.loads(variable(results, f"beam{place}")) for place in range(4)]
        assert [noisy > threshold for noisy, _, _ in beams] == [True] * 4
        assert len({logprob for _, logprob, _ in beams}) == 4, "no text is drawn twice"
        weights = [math.exp(lp) / -math.expm1(-math.exp(lp - threshold)) for _, lp, _ in beams]
        totals.append(sum(weights))
        starts = [ord(text[0]) if text else EOS for _, _, text in beams]
        firsts.append(sum(w for w, start in zip(weights, starts, strict=True) if start == best))
    for values, expected in (
        (totals, 1.0),
        (firsts, math.exp(logprobs_along(engine, [0])[0][best]) if best < 128 else 0.0),
    ):
        error = np.std(values, ddof=1) / math.sqrt(len(values))
        assert abs(np.mean(values) - expected) < 4 * error + 1e-9


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


@pytest.mark.parametrize("share", [0.25, *also(0.5)])
def test_three_languages_make_the_same_watermark(
    playground: Playground, tmp_path: Path, share: float
) -> None:
    wish = "How vexingly quick daft zebras jump! The five boxing wizards do so, too. " * 3
    key, bias, tokens = 7, 3.5, 24
    options: dict[str, Any] = {"prompt": "Mark:", "temperature": 1.0, "seed": 5}
    arg = {"key": key, "share": share, "bias": bias, "tokens": tokens}
    built = build_controller(FOLDER / "green_list.cpp", tmp_path / "green_list.wasm").path
    played: list[Transcript] = [
        playground.play(FOLDER / "green_list.py", wish, arg=arg, **options),
        playground.play(FOLDER / "green_list.js", wish, arg=arg, **options),
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


def number(key: int, before: list[int], token: int) -> int:
    """Returns the hash of a token after these tokens, 0 to 2^32 - 1."""
    found = mixed(key)
    for each in before[-4:]:
        found = mixed(found ^ (each + 1))
    return mixed(found ^ mixed(token + 1))


def test_the_gumbel_watermark_takes_the_token_with_the_largest_number(engine: BatchingEngine) -> None:
    results = run(engine, "gumbel.py", key=9, tokens=12)
    tokens, known = results[0].new_tokens, set[tuple[int, ...]]()
    for place, line in enumerate(logprobs_along(engine, tokens)):
        before = [*PROMPT, *tokens[:place]]
        if tuple(before[-4:]) not in known:
            known.add(tuple(before[-4:]))
            likely = [token for token in np.argsort(-line, kind="stable")[:64].tolist() if token < 256]
            hashes = {token: (number(9, before, token) + 0.5) / 2**32 for token in likely}
            assert tokens[place] == max(
                likely, key=lambda token: math.log(hashes[token]) / np.exp(line[token])
            )
    scores = [
        -math.log(1 - (number(9, tokens[:at], tokens[at]) + 0.5) / 2**32) for at in range(4, len(tokens))
    ]
    z = (sum(scores) - len(scores)) / math.sqrt(len(scores))
    assert float(variable(results, "z")) == pytest.approx(z, abs=0.006)


def test_on_average_over_keys_the_gumbel_watermark_does_not_change_the_distribution(
    engine: BatchingEngine,
) -> None:
    line = logprobs_along(engine, [0])[0]
    likely = [token for token in np.argsort(-line, kind="stable")[:64].tolist() if token < 256]
    shares = np.exp(line[likely]) / np.exp(line[likely]).sum()
    part = dict(zip(likely, (np.cumsum(shares) * 3.999).astype(int).tolist(), strict=True))
    count = cases(100, 240)
    expected = np.bincount(list(part.values()), shares, 4) * count
    runs = [run(engine, "gumbel.py", seed=key, key=key, tokens=1)[0] for key in range(count)]
    found = Counter(part[result.new_tokens[0]] for result in runs)
    chi2 = sum((found[n] - expected[n]) ** 2 / expected[n] for n in range(4))
    assert chi2 < 16.3, "less likely than 0.1 %"


@pytest.mark.parametrize("name", ["green_list.py", "gumbel.py"])
def test_detectors_need_only_the_tokens_and_the_key(engine: BatchingEngine, name: str) -> None:
    written = run(engine, name, key=42, share=0.5, bias=4, tokens=100)
    right, wrong = (
        variable(run(engine, name, prompt=written[0].new_tokens, key=key, share=0.5, detect=True), "z")
        for key in (42, 43)
    )
    assert right == variable(written, "z") and float(right) > 4, "the tokens alone have the mark"
    assert float(wrong) < 4, "another key finds nothing"


def tournament(line: np.ndarray, key: int, before: list[int]) -> dict[int, float]:
    """Returns the probability of each of the 64 likeliest tokens after 30 layers of two that compete."""
    likely = np.array([token for token in np.argsort(-line, kind="stable")[:64] if token < 256])
    shares = np.exp(line[likely]) / np.exp(line[likely]).sum()
    hashes = np.array([number(key, before, int(token)) for token in likely])
    for layer in range(30):
        bits = hashes >> layer & 1
        shares = shares * (1 + bits - (shares * bits).sum())
    return dict(zip(likely.tolist(), shares.tolist(), strict=True))


def test_synthid_draws_from_the_winners_of_a_tournament(engine: BatchingEngine) -> None:
    results = run(engine, "synthid.py", key=9, tokens=12)
    tokens, known, expected = results[0].new_tokens, set[tuple[int, ...]](), []
    for place, line in enumerate(logprobs_along(engine, tokens)):
        before = [*PROMPT, *tokens[:place]]
        if tuple(before[-4:]) not in known:
            known.add(tuple(before[-4:]))
            shares = tournament(line, 9, before)
            assert sum(shares.values()) == pytest.approx(1)
            expected.append(shares[tokens[place]])
    assert json.loads(variable(results, "shares")) == pytest.approx(expected, abs=1e-3)
    ones = sum(number(9, tokens[:at], tokens[at]) >> layer & 1 for at in range(4, 12) for layer in range(30))
    assert float(variable(results, "z")) == pytest.approx((ones - 120) / math.sqrt(60), abs=0.006)


TOPICS = (
    *("the sea", "a town", "bread", "a walk", "trains", "winter", "a key", "the moon", "music", "tea"),
    *("a garden", "rivers", "a book", "cats", "a desert", "a bridge", "stars", "school", "rain", "maps"),
)


@pytest.fixture(scope="module")
def smollm(runtime: Runtime) -> Iterator[LlamaEngine]:
    path = default_gguf_path()
    with LlamaModel(load_library(), path) as model:
        second = {"amateur": (model, load_vocabulary(path))}  # it need not be a good one
        with LlamaEngine(model, runtime, second=second) as engine:
            yield engine


@pytest.mark.slow
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_work_with_the_prompt_and_the_argument_that_they_propose(
    smollm: LlamaEngine, path: Path
) -> None:
    source = path.read_text()
    (prompt,) = re.findall(r"^(?: \* )?Prompt: (.*)$", source, re.MULTILINE)
    (argument,) = re.findall(r"^(?: \* )?Argument: (.*)$", source, re.MULTILINE)
    arg = json.loads(argument)
    if not thorough() and "tokens" in arg:
        arg["tokens"] = min(arg["tokens"], 20)
    script = {"script": source, "name": path.name, "arg": arg}
    chat = [{"role": "user", "content": prompt}]
    results = smollm.run([Request(chat, MODULES[path.suffix], json.dumps(script), max_tokens=250)])
    assert [result.error for result in results] == [None] * len(results)
    assert results[0].text and results[0].variables


@pytest.mark.thorough  # test_detectors_need_only_the_tokens_and_the_key has a tiny model
@pytest.mark.slow
@pytest.mark.parametrize("name", ["green_list.py", "gumbel.py", "synthid.py"])
def test_the_watermark_is_found_in_200_tokens_of_a_real_model(smollm: LlamaEngine, name: str) -> None:
    def marks(prompts: list[Any], **arg: Any) -> list[GenerationResult]:
        script = json.dumps({"script": (FOLDER / name).read_text(), "name": name, "arg": arg})
        return smollm.run(
            Request(prompt, "pyctrl", script, sampling=Sampling(1.0, seed=seed), max_tokens=201)
            for seed, prompt in enumerate(prompts)
        )

    prompts = [[{"role": "user", "content": f"Write about {topic}."}] for topic in TOPICS]
    marked = marks(prompts, key=42, share=0.5, bias=2, tokens=200)
    assert all(result.error is None for result in marked)
    assert min(float(result.variables["z"]) for result in marked) > 4
    texts: list[Any] = [result.text for result in marked]
    found, others = (
        [float(result.variables["z"]) for result in marks(texts, key=key, detect=True)] for key in (42, 43)
    )
    assert min(found) > 4, "the text alone has the mark"
    assert max(others) < 4, "another key finds nothing"
