"""Relations between prefixes, vocabularies and contexts, and edge cases of the samplers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyaici.cpc import (
    DeadPrefixError,
    Session,
    TokenTrie,
    enumerate_covers,
    heal_context,
    most_likely,
    sample_enumerated,
    sample_exact,
    sample_healed,
    sample_pcas,
)
from pyaici.cpc.samplers import truncated
from pyaici.tokens import Vocabulary
from tests.pyaici.cpc.tiny import VOCAB, TableLM, brute, conditioned, known_covers, make, tv, vocabulary


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def z(session: Session, prefix: bytes, context: tuple[int, ...] = ()) -> float:
    if not prefix:
        return 1.0
    tree = session.tree(context, prefix)
    enumerate_covers(tree)
    return math.exp(tree.root.upper)


# -- metamorphic ----------------------------------------------------------------------------------------


def test_empty_prefix_needs_no_evaluation() -> None:
    model, session = make()
    for temperature in (0.0, 0.7, 1.0):
        tree = session.tree((1, 2), b"", temperature)
        for cover, certificate in (
            sample_exact(tree, rng()),
            sample_enumerated(tree, rng()),
            sample_pcas(tree, rng()),
            sample_healed(tree, rng(), list),
            most_likely(tree, rng()),
        ):
            assert (cover.tokens, cover.text) == ((), b"")
            assert certificate.model_evals == 0 and certificate.tv_bound == 0.0
    assert not model.evaluated


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 500), prefix=st.sampled_from([b"p", b"pr", b"pri", b"prin", b"in"]))
def test_z_is_the_sum_over_next_bytes_and_ends(seed: int, prefix: bytes) -> None:
    model, session = make(seed)
    whole = z(session, prefix)
    vocab = session.trie.vocabulary
    further = []
    for byte in range(256):
        try:
            further.append(z(session, prefix + bytes([byte])))
        except DeadPrefixError:
            continue
    ending = 0.0
    for cover, chance in brute(model, vocab, prefix).items():
        if vocab.decode(cover) == prefix:
            # a token without text ends the text here
            ending += chance * float(np.exp(model.row(cover)[len(VOCAB) :]).sum())
    assert all(part <= whole for part in further)
    assert math.isclose(sum(further) + ending, whole, rel_tol=1e-9)


def test_equal_tokens_share_their_mass() -> None:
    tokens = [*VOCAB, b"print"]
    model, session = make(3, tokens)
    covers = brute(model, session.trie.vocabulary, b"pri")
    tree = session.tree((), b"pri")
    enumerate_covers(tree)
    found = conditioned(known_covers(tree))
    first, second = (VOCAB.index(b"print"),), (len(VOCAB),)
    assert found[first] / found[second] == pytest.approx(covers[first] / covers[second])


def test_incompatible_token_changes_only_z() -> None:
    rows = {(): {0: 0.3, 1: 0.2, 2: 0.1}, (0,): {1: 0.4, 2: 0.1}}
    small, large = vocabulary([b"a", b"b", b"bc"]), vocabulary([b"a", b"b", b"bc", b"z"])
    found = []
    for vocab, scale in ((small, 1.0), (large, 0.5)):
        scaled = {history: {t: p * scale for t, p in row.items()} for history, row in rows.items()}
        extra = {
            history: {**row, len(vocab.tokens) - 3: 1 - sum(row.values())} for history, row in scaled.items()
        }
        tree = Session(TableLM(extra, vocab.vocab_size), TokenTrie(vocab)).tree((), b"ab")
        enumerate_covers(tree)
        found.append(conditioned(known_covers(tree)))
    assert found[0] == pytest.approx(found[1], abs=1e-6)


def test_masks_are_exact_if_every_cover_is_one_token() -> None:
    model, session = make(5)
    tree = session.tree((), b"x")
    cover, certificate = sample_pcas(tree, rng())
    assert not certificate.approximate and certificate.tv_bound == 0.0
    vocab = session.trie.vocabulary
    assert tv(conditioned(brute(model, vocab, b"x")), brute(model, vocab, b"x", masked=True)) < 1e-12
    assert sample_healed(tree, rng(), lambda text: [VOCAB.index(text)])[0] == cover


def test_context_precedes_every_history() -> None:
    model, session = make(1)
    tree = session.tree((4, 4), b"pri")
    enumerate_covers(tree)
    assert known_covers(tree) == pytest.approx(brute(model, session.trie.vocabulary, b"pri", (4, 4)))
    assert all(history[:2] == (4, 4) for history in model.evaluated)


# -- keystrokes -----------------------------------------------------------------------------------------


def test_keystrokes_reuse_known_histories() -> None:
    """Typing, deleting, and a context that grows by the typed text: no history is evaluated twice."""
    model, session = make(2)
    for prefix in (b"p", b"pr", b"pri", b"prin", b"print", b"prin", b"pri"):
        sample_exact(session.tree((), prefix), rng())
        sample_enumerated(session.tree((), prefix), rng(), eps=0.0)
    assert len(model.evaluated) == len(set(model.evaluated)) == 15
    before = session.evaluations
    _, certificate = sample_exact(session.tree((0,), b"rint"), rng())
    assert certificate.model_evals == 0 and session.evaluations == before


def test_keystroke_takes_at_most_one_evaluation_on_average() -> None:
    spent = []
    for seed in range(100):
        _, session = make(seed)
        for length in range(1, 6):
            _, certificate = sample_exact(session.tree((), b"print"[:length]), rng(seed))
            spent.append(certificate.model_evals)
    assert np.mean(spent) <= 1.0


def test_cache_is_bounded_and_evicted_histories_are_reevaluated() -> None:
    model, session = make(2, max_bytes=4 * 18 * 8)
    tree = session.tree((), b"print")
    enumerate_covers(tree)
    covers = known_covers(tree)
    assert covers == pytest.approx(brute(model, session.trie.vocabulary, b"print"))
    assert sum(session.known(history) is not None for history in set(model.evaluated)) == 4
    session.tree((), b"x").root  # noqa: B018
    again = session.tree((), b"print")
    enumerate_covers(again)
    assert known_covers(again) == pytest.approx(covers) and session.evaluations > 16


# -- edges ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", [b"q", b"prq", b"</s>", b"\xff", "é".encode(), b"\xf0\x9f"])
def test_dead_prefix_raises_an_error(prefix: bytes) -> None:
    """Also prefixes that spell a special token, and bytes that are not text."""
    _, session = make()
    for temperature in (1.0, 0.0):
        tree = session.tree((), prefix, temperature)
        for sample in (sample_exact, sample_enumerated, sample_pcas):
            with pytest.raises(DeadPrefixError, match=r"A\(i\)=∅"):
                sample(tree, rng())


def test_prefix_of_probability_0_is_dead() -> None:
    vocab = vocabulary([b"a", b"b"])

    class Never:
        def logprobs(self, histories: list[tuple[int, ...]]) -> np.ndarray:
            row = np.full(vocab.vocab_size, -np.inf)
            row[0] = 0.0
            return np.array([row] * len(histories))

    session = Session(Never(), TokenTrie(vocab))  # type: ignore[arg-type]
    for sample in (sample_exact, sample_enumerated):
        with pytest.raises(DeadPrefixError):
            sample(session.tree((), b"ab"), rng())
    assert sample_pcas(session.tree((), b"ab"), rng())[0].tokens == (0, 1), "forced, without an evaluation"
    with pytest.raises(DeadPrefixError):
        sample_healed(session.tree((), b"ab"), rng(), lambda text: [0, 1])
    assert sample_exact(session.tree((), b"aa"), rng())[0].tokens == (0, 0)


def test_prefix_that_ends_inside_a_character() -> None:
    tokens = [bytes([i]) for i in range(256)] + ["é".encode(), "né".encode(), b"no"]
    model, session = make(4, tokens)
    prefix = b"n\xc3"
    cover, _ = sample_exact(session.tree((), prefix), rng())
    assert cover.text.startswith(prefix)
    tree = session.tree((), prefix)
    enumerate_covers(tree)
    assert known_covers(tree) == pytest.approx(brute(model, session.trie.vocabulary, prefix))
    assert session.tree((), b"\xff\xfe").root.upper < 0


def test_long_prefix_of_single_bytes() -> None:
    """There are hundreds of levels, and a probability too small for a float."""
    tokens = [b"a", b"b"]
    model, session = make(0, tokens, spread=5.0)
    prefix = b"ab" * 150
    cover, certificate = sample_enumerated(session.tree((), prefix), rng(), eps=0.0)
    assert cover.text == prefix and certificate.model_evals == 300
    want = sum(float(model.row(cover.tokens[:i])[cover.tokens[i]]) for i in range(300))
    assert want < -750
    assert certificate.log_z_upper == pytest.approx(want)
    again, more = sample_exact(session.tree((), prefix[:-1]), rng())
    assert again.text == prefix[:-1] and more.model_evals == 0


def test_negative_temperature_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        make()[1].tree((), b"p", -0.5)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("budget", [1, 2, 3, 50])
def test_long_prefixes_take_at_most_the_budget(temperature: float, budget: int) -> None:
    """There are millions of ways to spell this prefix. A walk uses what the search leaves."""
    prefix = b"print" * 20
    for sample in (sample_exact, sample_enumerated, most_likely):
        _, session = make(3)
        cover, certificate = sample(session.tree((), prefix, temperature), rng(), budget=budget)
        assert cover.text.startswith(prefix) and certificate.approximate
        assert certificate.model_evals == session.evaluations <= budget


@pytest.mark.parametrize("budget", [1, 2, 3, 50])
def test_trial_that_no_history_refuses_stays_within_the_budget(budget: int) -> None:
    """Every text of this model begins with the prefix, so that each history of a trial leads to another."""
    vocab = vocabulary([b"c", b"cc"])
    session = Session(TableLM({(): {0: 0.5, 1: 0.5}}, vocab.vocab_size), TokenTrie(vocab))
    cover, certificate = sample_exact(session.tree((), b"c" * 400, 1.0), rng(), budget=budget)
    assert cover.text.startswith(b"c" * 400) and certificate.approximate
    assert certificate.model_evals == session.evaluations <= budget


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_search_with_a_budget_finds_covers_beside_the_longest_tokens(temperature: float) -> None:
    """No token continues after the longest one, `pr`."""
    vocab = vocabulary([b"p", b"pr", b"rint"])
    for sample in (sample_exact, sample_enumerated, most_likely):
        session = Session(TableLM({}, vocab.vocab_size), TokenTrie(vocab))
        cover, _ = sample(session.tree((), b"print", temperature), rng(), budget=50)
        assert cover.text == b"print"


def test_budget_of_zero() -> None:
    _, session = make(7)
    cover, certificate = sample_exact(session.tree((), b"print"), rng(), budget=0)
    assert certificate.approximate and certificate.trials == 0 and cover.text.startswith(b"print")


# -- masks at every step --------------------------------------------------------------------------------


def test_walk_with_masks_reports_its_steps() -> None:
    tokens = [b"print", b"private", b"class", b"(", b"pr", b"i"]
    rows = {(): {0: 0.01, 1: 0.01, 4: 0.98}, (4,): {2: 1.0}}
    vocab = vocabulary(tokens)
    model = TableLM(rows, vocab.vocab_size)
    tree = Session(model, TokenTrie(vocab)).tree((), b"pri")
    cover, certificate = sample_pcas(tree, rng())
    assert cover.tokens == (4, 5) and certificate.approximate and certificate.tv_bound is None
    assert certificate.debug == ("[branch] |A|=3", "  sampled 'pr'", "[forced] 'i'")
    assert certificate.calls_prefix == certificate.model_evals == 1
    assert sample_pcas(tree, rng())[0] == cover
    assert sample_pcas(tree, rng(), top_k=1)[0] == cover
    for seed in range(50):
        assert sample_pcas(tree, rng(seed), top_p=0.9)[0] == cover


@given(
    weights=st.lists(st.floats(-20, 0), min_size=1, max_size=12),
    top_k=st.integers(0, 12),
    top_p=st.floats(0.01, 1),
)
def test_top_k_and_top_p_keep_the_largest_weights(weights: list[float], top_k: int, top_p: float) -> None:
    left = truncated(np.array(weights), top_k, top_p)
    ranked = sorted(range(len(weights)), key=lambda i: -weights[i])[: top_k or None]
    total = sum(math.exp(weights[i]) for i in ranked)
    mass = 0.0
    for i in ranked:
        # rounding decides if the cumulated share equals the limit
        if abs(mass - top_p * total) > 1e-9:
            assert (left[i] > -np.inf) == (mass <= top_p * total)
        mass += math.exp(weights[i])
    assert all(left[i] == -np.inf for i in {*range(len(weights))}.difference(ranked))
    assert left.max() == max(weights)


# -- healing --------------------------------------------------------------------------------------------


def test_token_healing_keeps_the_stem() -> None:
    model, session = make(1)

    def tokenize(text: bytes) -> list[int]:
        return [VOCAB.index(b"pr"), VOCAB.index(b"in")]

    tree = session.tree((), b"prin")
    found = {sample_healed(tree, rng(seed), tokenize)[0].tokens for seed in range(60)}
    assert found == {(VOCAB.index(b"pr"), VOCAB.index(b"in")), (VOCAB.index(b"pr"), VOCAB.index(b"int"))}
    assert model.evaluated == [(VOCAB.index(b"pr"),)]
    best = sample_healed(session.tree((), b"prin", 0.0), rng(), tokenize)[0].tokens
    row = model.row((VOCAB.index(b"pr"),))
    assert best[-1] == max((VOCAB.index(b"in"), VOCAB.index(b"int")), key=lambda token: row[token])
    with pytest.raises(ValueError, match="is tokenized as b'pr'"):
        sample_healed(tree, rng(), lambda text: [VOCAB.index(b"pr")])


@pytest.mark.parametrize(
    ("context", "prefix", "want"),
    [
        ("def f():\n    ", "pri", ("def f():", "\n    pri")),
        ("The capital of", " Fr", ("The capital of", " Fr")),
        ("The capital of ", " Fr", ("The capital of", "  Fr")),
        ("The capital o", "f Fr", ("The capital", " of Fr")),
        ("word", "s", ("", "words")),
        ("", "x", ("", "x")),
        ("a b" + " " * 70, "x", ("a b" + " " * 70, "x")),
        ("a " + "b" * 70, "x", ("a " + "b" * 70, "x")),
        ("   ", "x", ("", "   x")),
        ("a\t\nb c", "", ("a\t\nb", " c")),
    ],
)
def test_heal_context_moves_the_last_piece(context: str, prefix: str, want: tuple[str, str]) -> None:
    assert heal_context(context, prefix) == want


@given(st.text(), st.text())
def test_heal_context_keeps_the_text(context: str, prefix: str) -> None:
    moved, rest = heal_context(context, prefix)
    assert moved + rest == context + prefix and len(rest) - len(prefix) <= 64


def test_healed_context_is_tokenized_as_in_the_whole_text() -> None:
    """The tokenizer is of the GPT-2 family."""
    from tokenizers import Tokenizer

    from pyaici.models import default_model_path

    tokenizer = Tokenizer.from_file(str(default_model_path() / "tokenizer.json"))
    text = "def hello(name):\n    print(f'hi {name}')  # say it\n\n\nclass A:\n    pass"
    for end in range(1, len(text)):
        context, _ = heal_context(text[:end], "")
        whole = tokenizer.encode(text, add_special_tokens=False).ids
        part = tokenizer.encode(context, add_special_tokens=False).ids
        assert whole[: len(part)] == part


def test_vocabulary_without_text() -> None:
    trie = TokenTrie(Vocabulary([b"", b""]))
    assert trie.compatible(b"a").count == 0 and trie.tokens_that_start_with("").tolist() == []
