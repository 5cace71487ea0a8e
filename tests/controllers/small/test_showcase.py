"""showcase uses every verb, and skips those that the engine lacks."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from aicirt.contract.abi import CAP_BACKTRACK, CAP_DENSE, CAP_FF_TOKENS, CAP_FORK, CAP_SUSPEND, CAP_TOKENIZER
from aicirt.wasm import Program
from lab.runners.host import EVERYTHING, Vocab
from tests.controllers.runners.engine import Engine, Run, chaotic_model

WORDS = [
    b" the",
    b" red",
    b" green",
    b" blue",
    b"Once",
    b" upon",
    b" far",
    b" away",
    b" say",
    b"s",
    b".",
    b",\n",
]
BYTES = [bytes([b]) for b in range(128)]
EOS = len(WORDS) + len(BYTES)


@pytest.fixture(scope="module")
def vocab() -> Vocab:
    return Vocab([*BYTES, *WORDS, b"<eos>"], eos=[EOS])


def play(program: Callable[[str], Program], vocab: Vocab, *missing: int) -> tuple[Engine, dict[str, Run]]:
    """Runs on an engine that lacks some capabilities; returns the sequences by their last roles."""
    changed = {**EVERYTHING, **dict.fromkeys(missing, 0)}
    model = chaotic_model(vocab, 5, end=-20.0)
    engine = Engine(program("showcase"), vocab, "", model, prompt=[1, 2, 3], capabilities=changed)
    runs = engine.run(100)
    return engine, {re.findall(r"(\w+), sequence", run.log)[-1]: run for run in runs}


def test_every_verb(program: Callable[[str], Program], vocab: Vocab) -> None:
    engine, runs = play(program, vocab)
    assert set(runs) == {"hero", "listener", "voter"}
    hero, listener, voter = runs["hero"], runs["listener"], runs["voter"]
    assert hero.log.startswith("init_prompt: 3 tokens; the vocabulary has 141, of which 1 end a text\n")
    for run in runs.values():
        assert engine.text(run).startswith(b"Once upon a time")
        assert run.verbs[:6] == ["splice", "sample", "sample", "backtrack", "splice", "sample"]
        assert b"\n" not in engine.text(run)[:40] and run.verbs[6] == "fork"
    for words in (
        "narrator, sequence 0, mid_process: Splice, 0 tokens removed",
        "mid_process: SampleWithBias, 137 tokens allowed",
        "post_process: sampled",
        '  likely: "',
        "mid_process: the same row again",
        "mid_process: Splice, 2 tokens removed",
        "post_process: 2 tokens removed",
        "pre_process: Fork 3",
        "sampled at temperature 0.5",
        "variable story = ",
        "mid_process: Stop",
    ):
        assert words in hero.log, words
    story = re.search(r'variable story = "(.*)", version 1', hero.log, re.DOTALL)
    assert story and engine.text(hero).endswith(story[1].encode())
    assert "Suspend, there is no story yet" in listener.log and "suspend" in listener.verbs
    assert engine.text(listener).endswith(b" They say:" + story[1].encode())
    for words in (
        "one of three words",
        "votes: ",
        "mid_process: 1 biases",
        f"token {EOS} is forced, the end",
    ):
        assert words in voter.log, words
    assert re.search(rb" (red|green|blue).$", engine.text(voter), re.DOTALL) and voter.tokens[-1] == EOS


def test_without_forks(program: Callable[[str], Program], vocab: Vocab) -> None:
    _, runs = play(program, vocab, CAP_FORK, CAP_BACKTRACK)
    assert set(runs) == {"hero"}
    assert "Fork is skipped: the engine lacks it" in runs["hero"].log
    assert "Backtrack is skipped" in runs["hero"].log


def test_without_any_capability(program: Callable[[str], Program], vocab: Vocab) -> None:
    engine, runs = play(program, vocab, CAP_FF_TOKENS, CAP_BACKTRACK, CAP_SUSPEND, CAP_DENSE, CAP_TOKENIZER)
    assert len(runs) == 3
    assert "Splice is skipped" in runs["hero"].log
    assert "Suspend is skipped" in runs["listener"].log
    assert "a row of biases is skipped" in runs["voter"].log
    assert all("splice" not in run.verbs and "suspend" not in run.verbs for run in engine.finished)
