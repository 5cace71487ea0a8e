"""Compares the samplers with brute force: probabilities, samples by chi-square tests, and bounds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.measurement.chi_square import p_value
from pyaici.cpc import (
    Certificate,
    Cover,
    CoverTree,
    DeadPrefixError,
    Session,
    TokenTrie,
    enumerate_covers,
    most_likely,
    sample_enumerated,
    sample_exact,
    sample_pcas,
)
from tests.pyaici.cpc.tiny import (
    TableLM,
    brute,
    conditioned,
    known_covers,
    make,
    tv,
    vocabulary,
)
from tests.thorough import also, cases

Sample = Callable[[CoverTree, np.random.Generator], tuple[Cover, Certificate]]
ALPHA = 1e-4
SEEDS = (1, 2, 3, 6, 11, 12, 13, 14)


def enumerate_all(tree: CoverTree, rng: np.random.Generator) -> tuple[Cover, Certificate]:
    return sample_enumerated(tree, rng, eps=0.0)


# -- probabilities --------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
@pytest.mark.parametrize("prefix", [b"p", b"pri", b"print", b"printprint"])
def test_z_and_every_conditional_probability(prefix: bytes, temperature: float) -> None:
    for seed in range(4):
        model, session = make(seed)
        covers = brute(model, session.trie.vocabulary, prefix, temperature=temperature)
        tree = session.tree((), prefix, temperature)
        enumerate_covers(tree)
        assert tree.root.lower == tree.root.upper
        assert math.isclose(math.exp(tree.root.upper), sum(covers.values()), rel_tol=1e-10)
        assert {*known_covers(tree)} == {*covers}
        for node in tree.nodes():
            below = {cover: p for cover, p in covers.items() if cover[: len(node.history)] == node.history}
            mass = sum(below.values())
            for token, weight, bound in zip(node.partial, node.log_partial, node.child_upper, strict=True):
                want = sum(p for cover, p in below.items() if cover[len(node.history)] == token) / mass
                assert abs(math.exp(weight + bound - node.upper) - want) < 1e-10
            for token, weight in zip(node.covering.tolist(), node.log_covering, strict=True):
                want = below[(*node.history, token)] / mass
                assert abs(math.exp(weight - node.upper) - want) < 1e-10


@settings(max_examples=cases(20, 40), deadline=None)
@given(
    tokens=st.lists(st.text("ab", min_size=1, max_size=3).map(str.encode), min_size=1, max_size=8),
    prefix=st.text("ab", min_size=1, max_size=5).map(str.encode),
    seed=st.integers(0, 100),
)
def test_any_vocabulary_even_with_equal_tokens(tokens: list[bytes], prefix: bytes, seed: int) -> None:
    model, session = make(seed, tokens)
    covers = brute(model, session.trie.vocabulary, prefix)
    tree = session.tree((), prefix)
    if not covers:
        for sample in (sample_exact, enumerate_all, most_likely):
            with pytest.raises(DeadPrefixError, match="A\\(i\\)=∅"):
                sample(tree, np.random.default_rng(0))
        return
    enumerate_covers(tree)
    assert known_covers(tree) == pytest.approx(covers, abs=1e-12)
    assert math.isclose(math.exp(tree.root.upper), sum(covers.values()), rel_tol=1e-10)


# -- samples --------------------------------------------------------------------------------------------


def count(
    seed: int, prefix: bytes, sample: Sample, total: int, fresh: int, temperature: float
) -> tuple[Counter[tuple[int, ...]], dict[tuple[int, ...], float]]:
    """Counts samples: `fresh` of each session, so that many are drawn while bounds are learned."""
    model, _ = make(seed)
    rng = np.random.default_rng(seed)
    counts: Counter[tuple[int, ...]] = Counter()
    vocab = vocabulary()
    trie = TokenTrie(vocab)
    for _ in range(total // fresh):
        session = Session(model, trie)
        tree = session.tree((), prefix, temperature)
        for _ in range(fresh):
            cover = sample(tree, rng)[0]
            counts[cover.tokens] += 1
    assert cover.text.startswith(prefix)
    return counts, conditioned(brute(model, vocab, prefix, temperature=temperature))


@pytest.mark.parametrize("seed", [*SEEDS[:4], *also(*SEEDS[4:])])
def test_exact_samples_have_the_exact_distribution(seed: int) -> None:
    """Each fresh session gives five samples, so the first ones are drawn before anything is known."""
    counts, exactly = count(seed, b"print", sample_exact, 8_000, 5, 1.0)
    assert p_value(counts, exactly) > ALPHA
    counts, exactly = count(seed, b"prin", sample_exact, 5_000, 2_500, 0.7)
    assert p_value(counts, exactly) > ALPHA


@pytest.mark.parametrize("seed", SEEDS[:4])
def test_enumerated_samples_have_the_exact_distribution(seed: int) -> None:
    counts, exactly = count(seed, b"print", enumerate_all, 6_000, 6_000, 1.0)
    assert p_value(counts, exactly) > ALPHA


def test_masks_at_every_step_fail_the_same_test() -> None:
    """Negative control: the test detects a real bias."""
    values = [p_value(*count(seed, b"print", sample_pcas, 2_000, 2_000, 1.0)) for seed in SEEDS]
    assert sum(value < ALPHA for value in values) >= 6


def test_masks_at_every_step_have_the_documented_distribution() -> None:
    for seed in SEEDS[:3]:
        counts, _ = count(seed, b"print", sample_pcas, 3_000, 3_000, 1.0)
        model, session = make(seed)
        masked = brute(model, session.trie.vocabulary, b"print", masked=True)
        assert math.isclose(sum(masked.values()), 1.0) and p_value(counts, masked) > ALPHA


def test_worked_example_of_the_documentation() -> None:
    """Masks enter a history far too often if the prefix is unlikely to follow it."""
    tokens = [b"x", b"p", b"r", b"i", b"ri", b"print", b"private"]
    rows = {
        (): {1: 0.3, 5: 0.08, 6: 0.02, 0: 0.6},
        (1,): {2: 0.001, 4: 0.001, 0: 0.998},
        (1, 2): {3: 0.1, 0: 0.9},
    }
    vocab = vocabulary(tokens)
    model = TableLM(rows, vocab.vocab_size)
    tree = Session(model, TokenTrie(vocab)).tree((), b"pri")
    enumerate_covers(tree)
    found = conditioned(known_covers(tree))
    assert found[(5,)] == pytest.approx(0.797, abs=1e-3) and found[(6,)] == pytest.approx(0.199, abs=1e-3)
    masked = brute(model, vocab, b"pri", masked=True)
    assert masked[(1, 2, 3)] == pytest.approx(0.375, abs=1e-3)
    assert tv(found, masked) == pytest.approx(0.747, abs=1e-3)


# -- cost -----------------------------------------------------------------------------------------------


def test_trial_fails_only_at_a_new_history() -> None:
    for seed in range(20):
        model, session = make(seed)
        tree = session.tree((), b"print")
        rng = np.random.default_rng(seed)
        for _ in range(30):
            _, certificate = sample_exact(tree, rng)
            assert certificate.trials <= 1 + certificate.model_evals
            assert certificate.log_z_lower <= certificate.log_z_upper
        assert session.evaluations == len(model.evaluated) == len(set(model.evaluated)) <= 15


def test_exact_samples_cost_less_than_enumeration() -> None:
    """Counts the evaluations of the first sample; there are 15 histories."""
    spent = []
    for seed in range(200):
        _, session = make(seed)
        spent.append(sample_exact(session.tree((), b"print"), np.random.default_rng(seed))[1].model_evals)
    _, session = make(0)
    _, all_of_them = enumerate_all(session.tree((), b"print"), np.random.default_rng(0))
    assert all_of_them.model_evals == 15 and np.mean(spent) < 0.4 * 15


# -- certificates ---------------------------------------------------------------------------------------


@settings(max_examples=cases(20, 60), deadline=None)
@given(
    seed=st.integers(0, 1000),
    prefix=st.sampled_from([b"pri", b"print", b"printp"]),
    budget=st.integers(0, 20),
    use_exact=st.booleans(),
)
def test_bounds_hold_at_every_budget(seed: int, prefix: bytes, budget: int, use_exact: bool) -> None:
    model, session = make(seed)
    tree = session.tree((), prefix)
    rng = np.random.default_rng(seed)
    if use_exact:
        cover, certificate = sample_exact(tree, rng, budget)
    else:
        cover, certificate = sample_enumerated(tree, rng, eps=0.0, budget=budget)
    known = known_covers(tree)
    if not known:  # a walk with masks has found a cover
        assert certificate.tv_bound == 1
    elif not use_exact:
        assert cover.tokens in known
    covers = brute(model, session.trie.vocabulary, prefix)
    z = sum(covers.values())
    assert math.exp(certificate.log_z_lower) <= z * (1 + 1e-9)
    assert math.exp(certificate.log_z_upper) >= z * (1 - 1e-9)
    assert certificate.tv_bound is not None
    assert certificate.approximate == (certificate.tv_bound > 0)
    if known and (certificate.approximate or not use_exact):
        assert tv(conditioned(covers), conditioned(known)) <= certificate.tv_bound + 1e-9
    assert certificate.model_evals <= max(budget, 1), "the empty history is always evaluated"


def test_enumeration_stops_at_eps() -> None:
    spent = []
    for eps in (0.3, 1e-2, 0.0):
        evaluations = 0
        for seed in range(20):
            _, session = make(seed)
            _, certificate = sample_enumerated(session.tree((), b"print"), np.random.default_rng(0), eps)
            assert certificate.tv_bound is not None and certificate.tv_bound <= eps
            evaluations += certificate.model_evals
        spent.append(evaluations)
    assert spent[0] < spent[1] < spent[2] == 20 * 15


@pytest.mark.parametrize("sample", [sample_exact, sample_enumerated])
@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0])
def test_fresh_trees_repeat_covers_whatever_is_known(sample: Sample, temperature: float) -> None:
    def draw(session: Session, seed: int) -> tuple[int, ...]:
        tree = session.tree((), b"print", temperature, fresh=True)
        return sample(tree, np.random.default_rng(seed))[0].tokens

    alone = [draw(make(1)[1], seed) for seed in range(40)]
    _, session = make(1)
    assert [draw(session, seed) for seed in range(40)] == alone
    enumerate_covers(session.tree((), b"print", temperature))
    evaluated = session.evaluations
    assert [draw(session, seed) for seed in range(40)] == alone
    assert session.evaluations == evaluated


# -- temperature 0 --------------------------------------------------------------------------------------


def test_temperature_0_is_the_limit_of_low_temperatures() -> None:
    for seed in range(30):
        model, session = make(seed)
        cover, certificate = sample_exact(session.tree((), b"print", 0.0), np.random.default_rng(0))
        cold = brute(model, session.trie.vocabulary, b"print", temperature=0.01)
        assert cover.tokens == max(cold, key=lambda tokens: cold[tokens])
        assert certificate.model_evals <= 15 and not certificate.approximate
        assert most_likely(session.tree((), b"print", 0.0), np.random.default_rng(0))[0] == cover
    differs = 0
    for seed in range(30):
        _, session = make(seed)
        best = sample_exact(session.tree((), b"print", 0.0), np.random.default_rng(0))[0]
        differs += best != sample_pcas(session.tree((), b"print", 0.0), np.random.default_rng(0))[0]
    assert differs > 3, "the best token at each step gives another result"


def test_most_likely_cover_at_temperature_1() -> None:
    for seed in range(20):
        model, session = make(seed)
        covers = brute(model, session.trie.vocabulary, b"prin")
        assert most_likely(session.tree((), b"prin"), np.random.default_rng(0))[0].tokens == max(
            covers, key=lambda t: covers[t]
        )
