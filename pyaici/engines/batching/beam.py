"""Beam search: keeps the k most probable continuations of one prompt.

The rules are the library's defaults (Wu et al. 2016, arXiv:1609.08144, section 7, with the length penalty
``length ** p``). The best continuations of all beams compete by the sum of their log-probabilities. If one
of the first k ends, it becomes a result, with that sum divided by ``length ** p`` as its score. The search
ends when k results are at least as good as the best beam's current score.

With controllers, each beam has its own. Masked tokens cannot be chosen, and biases count. A beam whose
controller spliced or is late competes unchanged with its current score; forced tokens add nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pyaici.client.masks import apply_masks
from pyaici.engines.batching.sampler import empty_mask_error, largest_first
from pyaici.engines.engine import FinishReason, Origin

if TYPE_CHECKING:
    from pyaici.client.results import Row
    from pyaici.engines.batching.pool import SequencePool
    from pyaici.engines.batching.sequence import Sequence
    from pyaici.engines.engine import Request


@dataclass(slots=True)
class _Candidate:
    """A beam with one more token, or an unchanged beam if `token` is -1."""

    score: float
    seq: Sequence
    token: int = -1
    #: how the beam ends with that token; None if it goes on
    end: FinishReason | None = None
    #: added to the score by the token: its log-probability under the row's mask and biases
    gain: float = 0.0
    #: log-probability before masking, and probability of all allowed tokens, for the beam's controller
    logprob: float = 0.0
    allowed_mass: float = 1.0


@dataclass(slots=True)
class BeamSearch:
    """The beam search of one request."""

    request_id: int
    request: Request
    #: scores of its best results, best first, at most `beams`
    results: list[float] = field(default_factory=list)

    def advance(
        self,
        pool: SequencePool,
        sampling: list[tuple[Sequence, Row | None]],
        ended: list[Sequence],
        vocab_size: int,
    ) -> None:
        """Does one step.

        `sampling`: beams that choose a token, with their rows. `ended`: beams that ended by a splice. All
        other beams of the request wait.
        """
        for seq in ended:
            self._add_result(seq)
        if sampling:
            busy = {seq.id for seq, _ in sampling}
            waiting = [seq for seq in self._beams(pool) if seq.id not in busy]
            candidates = self._expand(pool, sampling, vocab_size)
            candidates += [_Candidate(seq.score, seq) for seq in waiting]
            self._apply(pool, self._select(candidates))
        self._stop(pool)

    def _beams(self, pool: SequencePool) -> list[Sequence]:
        return [seq for seq in pool.going.values() if seq.request_id == self.request_id]

    def _expand(
        self, pool: SequencePool, sampling: list[tuple[Sequence, Row | None]], vocab_size: int
    ) -> list[_Candidate]:
        """Returns the best one-token continuations of all beams, so many that at least k of them go on."""
        plain = pool.sampler.to_numpy([seq.last_logits for seq, _ in sampling])
        plain[:, vocab_size:] = -np.inf
        plain -= plain.max(axis=1, keepdims=True)
        plain -= np.log(np.exp(plain).sum(axis=1, keepdims=True))
        masked = plain.copy()
        apply_masks(masked, [row for _, row in sampling])
        allowed = masked > -np.inf
        masses = np.minimum(np.exp(plain).sum(axis=1, where=allowed), 1.0).tolist()
        for (seq, _), line in zip(sampling, allowed, strict=True):
            if not line.any():
                pool.finish(seq, FinishReason.ERROR, empty_mask_error())
        scores = masked + np.array([[seq.score] for seq, _ in sampling], np.float32)
        count = max(2, 1 + pool.num_eos + len(self.request.sampling.stop_token_ids)) * self.request.beams
        found = []
        for place in largest_first(scores.ravel(), count).tolist():
            beam, token = divmod(place, masked.shape[1])
            score = float(scores[beam, token])
            if score > -np.inf:
                seq = sampling[beam][0]
                logprob, gain = float(plain[beam, token]), float(masked[beam, token])
                end = pool.is_end(seq, token)
                found.append(_Candidate(score, seq, token, end, gain, logprob, masses[beam]))
        return found

    def _select(self, candidates: list[_Candidate]) -> list[_Candidate]:
        """Returns the candidates among the first k that end, and the first k that do not; best first."""
        width = self.request.beams
        ranked = sorted(candidates, key=lambda candidate: -candidate.score)
        ending = [candidate for candidate in ranked[:width] if candidate.end is not None]
        going = [candidate for candidate in ranked if candidate.end is None][:width]
        return ending + going

    def _apply(self, pool: SequencePool, kept: list[_Candidate]) -> None:
        """Copies beams with several continuations, cuts those with none, and appends the tokens."""
        ways: dict[int, list[_Candidate]] = {}
        for candidate in kept:
            ways.setdefault(candidate.seq.id, []).append(candidate)
        beams = self._beams(pool)
        for seq in beams:
            if seq.id not in ways:
                pool.finish(seq, FinishReason.CUT)  # its slot is free for a copy
        for seq in beams:
            if seq.id not in ways:
                continue
            pool.begin_clones(seq, len(ways[seq.id]) - 1)
            copies = pool.clones(seq) or []
            # each refused clone loses a continuation
            for candidate, target in zip(ways[seq.id], (seq, *copies), strict=False):
                if candidate.token >= 0:
                    tokens = [candidate.token]
                    mass = candidate.allowed_mass
                    target.note(tokens, sampled=True, logprob=candidate.logprob, allowed_mass=mass)
                    pool.append_tokens(target, tokens, Origin.SAMPLED, candidate.gain)
                    if target.finish_reason is not None:
                        self._add_result(target)

    def _add_result(self, seq: Sequence) -> None:
        self.results = sorted([*self.results, seq.final_score], reverse=True)[: self.request.beams]

    def _stop(self, pool: SequencePool) -> None:
        """Cuts all beams if there are k results and no beam's current score is above the worst of them."""
        beams = self._beams(pool)
        if not beams or len(self.results) < self.request.beams:
            return
        if max(seq.final_score for seq in beams) <= self.results[-1]:
            for seq in beams:
                pool.finish(seq, FinishReason.CUT)
