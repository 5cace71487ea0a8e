"""Penalties, biases and ends of requests, without and with controllers, on each engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyaici.engines.batching.engine import BatchingEngine
from pyaici.engines.batching.model import Slot
from pyaici.engines.batching.sequence import Sequence
from pyaici.engines.engine import FinishReason, Origin, Request, Sampling
from pyaici.engines.record import TextTrail
from pyaici.engines.sampling import Tally
from pyaici.tokens import Vocabulary
from tests.pyaici.engines.batching.scripted import Script, ScriptedRuntime, allow
from tests.pyaici.engines.batching.support import BOS, EOS, make_engine

PROMPT = [BOS, 72, 101, 108]
#: without penalties, the text would repeat some of these
LIKELY = tuple((token, 20 - 0.25 * (token - 65)) for token in range(65, 85))


def by_hand(engine: BatchingEngine, sampling: Sampling, count: int) -> list[int]:
    """Generates greedily with `next_logits` and the changes of `sampling`."""
    answer: list[int] = []
    while len(answer) < count:
        (line,) = engine.next_logits([[*PROMPT, *answer]])
        changes = sampling.changes(Tally(PROMPT, answer), answer, (EOS,)).within(258)
        line[changes.tokens] = changes.apply(line[changes.tokens])
        answer.append(int(line.argmax()))
        if answer[-1] == EOS and not sampling.ignore_eos:
            break
    return answer


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(presence_penalty=2, logit_bias=LIKELY),
        Sampling(frequency_penalty=1.5, logit_bias=LIKELY),
        Sampling(repetition_penalty=3, logit_bias=LIKELY),
        Sampling(min_tokens=12, logit_bias=((EOS, 100),)),
        Sampling(ignore_eos=True, logit_bias=((EOS, 3),)),
    ],
)
def test_greedy_texts_follow_the_changes(engine: BatchingEngine, sampling: Sampling) -> None:
    requests = [Request(PROMPT, max_tokens=20, sampling=sampling), Request(PROMPT, max_tokens=20)]
    found, free = engine.run(requests)
    assert found.new_tokens == by_hand(engine, sampling, 20)
    assert free.new_tokens == by_hand(engine, Sampling(), 20) != found.new_tokens
    assert found.new_tokens != by_hand(engine, Sampling(logit_bias=LIKELY), 20)


def test_bad_words_do_not_appear(engine: BatchingEngine) -> None:
    (free,) = engine.run([Request(PROMPT, max_tokens=20)])
    bad = tuple(free.new_tokens[3:6])
    (found,) = engine.run([Request(PROMPT, max_tokens=20, sampling=Sampling(bad_words=(bad,)))])
    assert found.new_tokens[:5] == free.new_tokens[:5] and found.new_tokens[5] != bad[2]
    assert all(tuple(found.new_tokens[i : i + 3]) != bad for i in range(18))


def test_stop_tokens_end_the_text_and_are_not_in_it(engine: BatchingEngine) -> None:
    (free,) = engine.run([Request(PROMPT, max_tokens=20)])
    stop = free.new_tokens[7]
    first = free.new_tokens.index(stop)
    (found,) = engine.run([Request(PROMPT, max_tokens=20, sampling=Sampling(stop_token_ids=(stop,)))])
    assert (found.new_tokens, found.finish_reason) == (free.new_tokens[: first + 1], FinishReason.EOS)
    whole = engine.vocabulary.decode(free.new_tokens[:first]).decode("utf-8", "replace")
    assert found.text == whole


def test_changes_come_before_the_row_of_a_controller(model: Any, vocabulary: Vocabulary) -> None:
    """The row decides what is allowed, and the biases which of it is taken."""
    runtime = ScriptedRuntime(abc=lambda arg, prompt: Script(*[allow(65, 66, 67)] * 9))
    engine = make_engine(model, vocabulary=vocabulary, runtime=runtime)
    for token in (65, 66, 67):
        biases = ((token, 50.0), (70, 100.0))
        request = Request(PROMPT, "abc", max_tokens=4, sampling=Sampling(logit_bias=biases))
        assert engine.run([request])[0].new_tokens == [token] * 4
    request = Request(PROMPT, "abc", max_tokens=6, sampling=Sampling(frequency_penalty=2, presence_penalty=2))
    assert set(engine.run([request])[0].new_tokens) == {65, 66, 67}


def test_log_probabilities_are_those_of_the_model(engine: BatchingEngine) -> None:
    sampling = Sampling(logit_bias=((65, 100),))
    (found,) = engine.run([Request(PROMPT, max_tokens=2, logprobs=True, sampling=sampling)])
    (line,) = engine.next_logits([PROMPT])
    want = float(line[65]) - float(np.logaddexp.reduce(line[:258].astype(np.float64)))
    assert found.new_tokens == [65, 65] and found.logprobs[len(PROMPT)] == pytest.approx(want, abs=1e-3)


def test_changes_follow_a_sequence_that_is_cut_back_and_forked() -> None:
    sampling = Sampling(repetition_penalty=2, frequency_penalty=1)
    request = Request(PROMPT, sampling=sampling)
    seq = Sequence(id=0, request_id=0, request=request, seed=0, slot=Slot(), trail=TextTrail([b"x"] * 1000))
    seq.append([1, 2, 3, 4], Origin.PROMPT)

    def check(seq: Sequence) -> None:
        found, start = seq.choice(None, ()).changes, seq.prompt_tokens
        want = sampling.changes(Tally(seq.tokens[:start], seq.tokens[start:]), (), ())
        assert found is not None
        np.testing.assert_array_equal([found.tokens, found.penalties], [want.tokens, want.penalties])

    for count, more in ((0, []), (0, [1]), (0, [5, 5, 6]), (2, [7]), (4, [1, 1]), (1, []), (4, [9000])):
        seq.backtrack(count)
        seq.append(more, Origin.FORCED)
        check(seq)
        child = seq.fork(1, Slot(), None)
        child.append([8], Origin.SAMPLED)
        check(child)
        check(seq)
