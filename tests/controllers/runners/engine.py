"""A toy engine around `host.Guest`: it steps all sequences of one request, forks, splices and samples.

Its model is any function from tokens to log-probabilities, so what a controller makes of it can be computed
in another way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from aicirt.contract.abi import FORK, SPLICE, STOP, SUSPEND
from aicirt.wasm import Program
from lab.runners.host import ALL, BITMASK, SPARSE, TOKEN, Guest, Mid, Vocab

#: log-probabilities of all tokens after these
Model = Callable[[tuple[int, ...]], Sequence[float]]


@dataclass
class Run:
    """A sequence: its guest, its tokens, and the argument of its next step."""

    guest: Guest
    tokens: list[int]
    news: list[int] = field(default_factory=list)
    backtrack: int = 0
    sampled: bool = False
    logprob: float = math.nan
    top: list[tuple[int, float]] = field(default_factory=list)
    log: str = ""
    verbs: list[str] = field(default_factory=list)


class Engine:
    """Runs a request to its end; `finished` are its sequences in the order in which they ended."""

    def __init__(
        self,
        program: Program,
        vocab: Vocab,
        argument: str,
        model: Model,
        *,
        prompt: Sequence[int] = (),
        capabilities: dict[int, int] | None = None,
    ) -> None:
        self.vocab = vocab
        self.model = model
        self.start = len(prompt)
        self.next_id = 1
        self.finished: list[Run] = []
        guest = Guest(program, vocab, argument, prompt=prompt, capabilities=capabilities, seq_id=0)
        self.live = [Run(guest, list(prompt))]
        self.rounds = 0

    def run(self, most_rounds: int = 400) -> list[Run]:
        """Until no sequence is left."""
        while self.live:
            self.rounds += 1
            assert self.rounds <= most_rounds, "the request does not end"
            for run in self._critical():
                self._apply(run, run.guest.mid())
        return self.finished

    def text(self, run: Run) -> bytes:
        """Returns the text that a sequence has written."""
        return self.vocab.view.decode(run.tokens[self.start :])

    def _critical(self) -> list[Run]:
        """post_process and pre_process of all; the sequences that go on to mid_process."""
        going: list[Run] = []
        forked: list[tuple[Run, int]] = []
        for run in list(self.live):
            run.guest.begin(
                run.news,
                backtrack=run.backtrack,
                sampled=run.sampled,
                logprob=run.logprob,
                top=run.top,
            )
            run.news, run.backtrack, run.sampled, run.logprob, run.top = [], 0, False, math.nan, []
            answer = run.guest.critical()
            if answer.post == STOP or (answer.pre and answer.pre[0] == STOP):
                self._end(run)
            elif answer.pre and answer.pre[0] == SUSPEND:
                run.verbs.append("suspend")
            else:
                going.append(run)
                if answer.pre and answer.pre[0] == FORK and answer.pre[1] > 1:
                    forked.append((run, answer.pre[1]))
        for run, count in forked:
            children = [self._fork(run) for _ in range(count - 1)]
            group = [member.guest.seq_id for member in (run, *children)]
            for member in (run, *children):
                member.guest.set_group(group)
                member.verbs.append("fork")
            going += children
        return going

    def _fork(self, run: Run) -> Run:
        child = Run(run.guest.fork(self.next_id), list(run.tokens), verbs=list(run.verbs))
        self.next_id += 1
        self.live.append(child)
        return child

    def _apply(self, run: Run, mid: Mid) -> None:
        run.log += run.guest.take_log()
        if mid.verb == STOP:
            self._end(run)
        elif mid.verb == SPLICE:
            assert mid.backtrack <= len(run.tokens) - self.start, "tokens of the prompt are taken back"
            if mid.backtrack:
                del run.tokens[-mid.backtrack :]
                run.verbs.append("backtrack")
            if mid.tokens:
                run.verbs.append("splice")
            run.tokens += mid.tokens
            run.news, run.backtrack = mid.tokens, mid.backtrack
        else:
            self._sample(run, mid)

    def _sample(self, run: Run, mid: Mid) -> None:
        """The most likely token that the row allows."""
        run.verbs.append("sample")
        logprobs = self.model(tuple(run.tokens))
        biased = [self._bias(mid, token) + logprob for token, logprob in enumerate(logprobs)]
        token = max(range(len(biased)), key=biased.__getitem__)
        assert biased[token] > -math.inf, "nothing is allowed"
        ranked = sorted(range(len(logprobs)), key=lambda t: -logprobs[t])
        run.news, run.sampled, run.logprob = [token], True, logprobs[token]
        run.top = [(t, logprobs[t]) for t in ranked[: mid.top_logprobs]]
        run.tokens.append(token)
        if token in self.vocab.eos:
            self._end(run)

    def _bias(self, row: Mid, token: int) -> float:
        if row.kind == ALL:
            return 0.0
        if row.kind == BITMASK:
            assert row.bits is not None
            return 0.0 if int(row.bits[token >> 5]) >> (token & 31) & 1 else -math.inf
        if row.kind == TOKEN:
            return 0.0 if token == row.token else -math.inf
        return row.biases.get(token, row.default if row.kind == SPARSE else -math.inf)

    def _end(self, run: Run) -> None:
        run.log += run.guest.take_log()
        self.live.remove(run)
        self.finished.append(run)


def chaotic_model(vocab: Vocab, seed: int, *, end: float = 0.0) -> Model:
    """Log-probabilities that depend on the last two tokens; `end` is added to the logits of end tokens."""

    def model(tokens: tuple[int, ...]) -> list[float]:
        mixed = hash((seed, *tokens[-2:]))
        logits = [((mixed ^ token * 0x9E3779B97F4A7C15) % 1009) / 150 for token in range(vocab.size)]
        for token in vocab.eos:
            logits[token] += end
        total = math.log(sum(math.exp(x) for x in logits))
        return [x - total for x in logits]

    return model
