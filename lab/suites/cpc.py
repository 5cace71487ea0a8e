"""Character-prefix completion with a real model: exactness, cost, and the error of masks alone."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, AutoTokenizer

from lab.measurement.chi_square import p_value
from lab.report import Report
from lab.servers.keystrokes import measure
from pyaici import EngineModel, HfEngine
from pyaici.cpc import (
    CoverTree,
    Distributions,
    Session,
    TokenTrie,
    enumerate_covers,
    heal_context,
    sample_exact,
)
from pyaici.models import default_model_path

#: name -> text in the editor, and the prefix that is typed after it
PAIRS = {
    "bridge": ("We walked along the river until we reached the br", "id"),
    "friend": ("I have not seen you for ages, my fri", "end"),
    "hones": ("My grandmother always told me that", " hones"),
    "numpy": ("import os\nimport sys\nimport nu", "mp"),
    "paris": ("The capital of France is", " Par"),
    "print": ("def hello_world():\n    ", "pri"),
    "little": ("She opened the door and saw", " a lit"),
    "states": ("The president of the United", " States"),
    "open": ("def read_file(path):\n    with", " open"),
    "main": ("if __name__ ==", " '__ma"),
    "world": ("Hello,", " world"),
    "be": ("To be or not to", " be, th"),
    "stormy": ("It was a dark and", " stormy"),
    "jumps": ("The quick brown fox", " jumps"),
    "len": ("x = [1, 2, 3]\nprint(", " len("),
    "degrees": ("Water boils at", " 100 d"),
    "physics": ("He studied", " physi"),
    "munich": ("Die Straße nach Mü", "nch"),
    "range": ("total = 0\nfor x in ra", "nge("),
    "clear": ("The answer to this question is cl", "ear"),
}
_QUICK = ("bridge", "munich")
SAMPLES, QUICK_SAMPLES = 2000, 100
#: suggestions for each pair, from character-prefix completion and from a chat model that is prompted for the
#: prefix
SEEDS, QUICK_SEEDS = 5, 1
#: samples drawn from one session; most are drawn while the session still learns its bounds
_FRESH = 25
#: covers that the chi-square test distinguishes
CATEGORIES = 50
#: prefixes with fewer histories leave no evaluations to save
MANY = 15
RATIO_TARGET = 0.4


class Replay:
    """Replays the log-probabilities that a model returned in a session, without running it."""

    def __init__(self, distributions: Distributions) -> None:
        self._distributions = distributions

    def logprobs(self, histories: Sequence[tuple[int, ...]]) -> NDArray[np.float64]:
        rows = np.empty((len(histories), len(self._distributions.trie.order)))
        rows[:, self._distributions.trie.order] = self._distributions.logprobs(histories)
        return rows


def run(report: Report) -> None:
    """Enumerates each pair, samples many times from the enumeration, and then types the pair anew."""
    torch.set_num_threads(1)
    path = default_model_path()
    model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    tokenizer: Any = AutoTokenizer.from_pretrained(path)
    engine = HfEngine(model, tokenizer, keep=8)
    trie = TokenTrie(engine.vocabulary)
    names = _QUICK if report.quick else tuple(PAIRS)
    samples = QUICK_SAMPLES if report.quick else SAMPLES
    values, far, healed, ratios, spent, first, later, keys = [], [], [], [], [], [], [], []
    for number, name in enumerate(names):
        context, prefix = heal_context(*PAIRS[name])
        tokens = tokenizer.encode(context)
        tree = Session(EngineModel(engine), trie).tree(tokens, prefix.encode())
        enumerate_covers(tree)
        histories = sum(1 for _ in tree.nodes())
        far.append(masked_distance(tree))
        healed.append(1 - share_of(tree, tuple(tokenizer.encode(prefix)[:-1])))
        counts, evaluations, trials = _draw(tree, samples, seed=number)
        values.append(p_value(counts, cover_probabilities(tree), most=CATEGORIES))
        if histories >= MANY:
            ratios.append(evaluations / histories)
        spent.append(evaluations)
        report.figure(f"cpc.{name}.histories", histories, "count")
        report.figure(f"cpc.{name}.evals", evaluations, "count")
        report.figure(f"cpc.{name}.trials", trials, "count")
        report.figure(f"cpc.{name}.trials_untold", trials_untold(tree), "count")
        report.figure(f"cpc.{name}.tv_pcas", far[-1], "ratio")
        report.figure(f"cpc.{name}.tv_heal", healed[-1], "ratio")
        report.figure(f"cpc.{name}.chi2_p", values[-1], "ratio")
        engine.close()
        cold, warm, evals = _type(engine, trie, tokens, prefix, PAIRS[name][1], seed=number)
        first.append(cold)
        later += warm
        keys += evals
    typed = measure({name: PAIRS[name] for name in names}, QUICK_SEEDS if report.quick else SEEDS)
    report.samples("cpc.http_cold_ms", typed.cold, "ms")
    report.samples("cpc.http_warm_ms", typed.warm, "ms")
    report.figure("cpc.http_cold_ms", float(np.median(typed.cold)), "ms")
    report.figure("cpc.http_warm_ms", float(np.median(typed.warm)), "ms")
    report.figure("cpc.adherence_exact", float(np.mean(typed.exact)), "ratio")
    report.figure("cpc.adherence_asked", float(np.mean(typed.asked)), "ratio")
    report.samples("cpc.cold_ms", first, "ms")
    report.samples("cpc.warm_ms", later, "ms")
    report.figure("cpc.cold_ms", float(np.median(first)), "ms")
    report.figure("cpc.warm_ms", float(np.median(later)), "ms")
    report.figure("cpc.warm_mean_ms", float(np.mean(later)), "ms")
    report.figure("cpc.evals_per_key", float(np.mean(keys)), "count")
    report.figure("cpc.evals", float(np.mean(spent)), "count")
    report.figure("cpc.evals_ratio", float(np.mean(ratios)), "ratio", target=RATIO_TARGET)
    report.figure("cpc.tv_heal", float(np.mean(healed)), "ratio")
    report.figure("cpc.tv_pcas", float(np.mean(far)), "ratio")
    report.figure("cpc.tv_pcas_max", max(far), "ratio")
    # the probability that the smallest of these p-values is this small; with a single cover there is no test
    tests = sum(value < 1 for value in values)
    report.figure("cpc.chi2_p", -math.expm1(tests * math.log1p(-min(values))), "ratio")


def cover_probabilities(tree: CoverTree) -> dict[tuple[int, ...], float]:
    """Returns p(cover | prefix) of every cover of an enumerated tree."""
    covers = {}
    for node, log_chance in _histories(tree):
        shares = np.exp(node.log_covering + log_chance - tree.root.lower).tolist()
        for token, share in zip(node.covering.tolist(), shares, strict=True):
            covers[(*node.history, token)] = share
    return covers


def masked_distance(tree: CoverTree) -> float:
    """Returns the total variation between exact covers and covers under masks at every step.

    The tree must be enumerated. Below a history, both distributions choose among its covering tokens by their
    probabilities, so sums over these tokens suffice.
    """
    distance = 0.0
    masked = {(): 0.0}
    for node, log_chance in _histories(tree):
        allowed = np.logaddexp(node.log_covered, np.logaddexp.reduce(node.log_partial, initial=-np.inf))
        for token, weight in zip(node.partial.tolist(), node.log_partial, strict=True):
            masked[(*node.history, token)] = masked[node.history] + float(weight - allowed)
        exactly = math.exp(log_chance + node.log_covered - tree.root.lower)
        distance += abs(exactly - math.exp(masked[node.history] + node.log_covered - allowed)) / 2
    return distance


def share_of(tree: CoverTree, stem: tuple[int, ...]) -> float:
    """Returns the probability that a cover is this history and one more token, as token healing assumes."""
    for node, log_chance in _histories(tree):
        if node.history == stem:
            return math.exp(log_chance + node.log_covered - tree.root.lower)
    return 0.0


def trials_untold(tree: CoverTree) -> float:
    """Returns the mean number of trials of the controller with an engine that reports no probabilities."""
    root = tree.root
    allowed = np.logaddexp(root.log_covered, np.logaddexp.reduce(root.log_partial, initial=-np.inf))
    return math.exp(allowed - root.lower)


def _histories(tree: CoverTree) -> list[tuple[Any, float]]:
    """Returns all nodes, parents first, each with the logarithm of its history's probability."""
    found = {tree.root.history: 0.0}
    for node in tree.nodes():
        for token, weight in zip(node.partial.tolist(), node.log_partial.tolist(), strict=True):
            found[(*node.history, token)] = found[node.history] + weight
    return [(node, found[node.history]) for node in tree.nodes()]


def _draw(tree: CoverTree, samples: int, seed: int) -> tuple[Counter[tuple[int, ...]], float, float]:
    """Draws exact samples from fresh sessions.

    Returns the counts of covers, and the mean evaluations and trials of the first sample of each session.
    """
    model = Replay(tree.distributions)
    rng = np.random.default_rng(seed)
    counts: Counter[tuple[int, ...]] = Counter()
    evaluations, trials = [], []
    for _ in range(samples // _FRESH):
        fresh = Session(model, tree.distributions.trie).tree(tree.context, tree.prefix)
        for number in range(_FRESH):
            cover, certificate = sample_exact(fresh, rng)
            counts[cover.tokens] += 1
            if number == 0:
                evaluations.append(certificate.model_evals)
                trials.append(certificate.trials)
    return counts, float(np.mean(evaluations)), float(np.mean(trials))


def _type(
    engine: HfEngine, trie: TokenTrie, tokens: list[int], prefix: str, typed: str, seed: int
) -> tuple[float, list[float], list[int]]:
    """Types the end of a prefix and draws a sample after each keystroke.

    Returns the ms of the first sample, the ms of the others, and the evaluations of the others.
    """
    session = Session(EngineModel(engine), trie)
    rng = np.random.default_rng(seed)
    times, evaluations = [], []
    for end in range(len(prefix) - len(typed) + 1, len(prefix) + 1):
        start = time.perf_counter()
        _, certificate = sample_exact(session.tree(tokens, prefix[:end].encode()), rng)
        times.append((time.perf_counter() - start) * 1e3)
        evaluations.append(certificate.model_evals)
    return times[0], times[1:], evaluations[1:]
