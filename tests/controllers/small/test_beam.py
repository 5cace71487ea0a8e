"""beam gives the same result as beam search in Python."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from aicirt.contract.abi import CAP_BACKTRACK, CAP_LOGPROBS, CAP_MAX_FORKS, CAP_TOP_LOGPROBS
from aicirt.contract.errors import ControllerFailed
from aicirt.wasm import Program
from lab.runners.host import EVERYTHING, Guest, Vocab
from tests.controllers.runners.engine import Engine, Model, chaotic_model

TOKENS = [b"a", b"b", b"c", b"d", b"e", b" ", b"<eos>", b"<s>"]


@pytest.fixture(scope="module")
def vocab() -> Vocab:
    return Vocab(TOKENS, eos=[6], special=[7])


def beam_search(model: Model, vocab: Vocab, width: int, length: int) -> tuple[float, tuple[int, ...]]:
    """Returns the best text of plain beam search over text tokens; texts may also end."""
    beams: list[tuple[float, tuple[int, ...], bool]] = [(0.0, (), False)]
    for _ in range(length):
        following = []
        for score, tokens, ended in beams:
            if ended:
                following.append((score, tokens, True))
                continue
            logprobs = model(tokens)
            likely = sorted(range(vocab.size), key=lambda t: -logprobs[t])[: width + 2]
            for token in likely:
                if token in vocab.eos:
                    following.append((score + logprobs[token], tokens, True))
                elif token not in vocab.special:
                    following.append((score + logprobs[token], (*tokens, token), False))
        beams = sorted(following, key=lambda beam: -beam[0])[:width]
        if all(ended for _, _, ended in beams):
            break
    return beams[0][:2]


@pytest.mark.parametrize("width", [1, 2, 3, 5])
@pytest.mark.parametrize("end", [-9.0, 0.0, 2.0])
def test_finds_the_best(program: Callable[[str], Program], vocab: Vocab, width: int, end: float) -> None:
    for seed in range(6):
        model = chaotic_model(vocab, seed, end=end)
        engine = Engine(program("beam"), vocab, f"{width} 12", model)
        finished = engine.run()
        best = [run for run in finished if "the best" in run.log]
        assert len(best) == 1
        score, tokens = beam_search(model, vocab, width, 12)
        assert tuple(best[0].tokens) == tokens
        printed = re.search(r"the best: (-?[\d.]+)", best[0].log)
        assert printed and float(printed[1]) == pytest.approx(score, abs=0.01)
        assert all("cut" in run.log for run in finished if run is not best[0])


def test_it_keeps_at_most_the_requested_number_of_branches(
    program: Callable[[str], Program], vocab: Vocab
) -> None:
    engine = Engine(program("beam"), vocab, "4 10", chaotic_model(vocab, 3))
    seen = 0
    critical = engine._critical

    def watched() -> list[object]:
        nonlocal seen
        going = critical()
        seen = max(seen, len(engine.live))
        return going  # type: ignore[return-value]

    engine._critical = watched  # type: ignore[assignment, method-assign]
    engine.run()
    assert seen == 4


@pytest.mark.parametrize("argument", ["", "4", "0 5", "4 0", "4 257", "four 5", "4 5 6", "4 5x", "-1 5"])
def test_refuses_arguments(program: Callable[[str], Program], vocab: Vocab, argument: str) -> None:
    with pytest.raises(ControllerFailed, match="beam needs the number of branches and of tokens"):
        Guest(program("beam"), vocab, argument)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({CAP_BACKTRACK: 0}, "capabilities that this engine lacks: backtrack$"),
        ({CAP_BACKTRACK: 0, CAP_LOGPROBS: 0}, "lacks: backtrack, report log-probabilities$"),
        ({CAP_TOP_LOGPROBS: 4}, "needs the 6 most likely tokens; the engine reports at most 4"),
        ({CAP_MAX_FORKS: 7}, "needs 8 sequences, two per branch; the runtime allows 7"),
    ],
)
def test_needs_capabilities(
    program: Callable[[str], Program], vocab: Vocab, changed: dict[int, int], message: str
) -> None:
    with pytest.raises(ControllerFailed, match=message):
        Guest(program("beam"), vocab, "4 5", capabilities={**EVERYTHING, **changed})
