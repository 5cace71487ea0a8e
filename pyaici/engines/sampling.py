"""Options for choosing the next token, and their changes of the model's logits before a controller's row."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Higher temperatures count as this one, at which all allowed tokens are equally likely in float32.
HOTTEST = 1e30
#: more tokens than any vocabulary has
MAX_TOP_K = 1 << 24
#: the range of penalties and of biases in OpenAI's API, and a largest repetition penalty
MAX_PENALTY, MAX_BIAS, MAX_REPETITION = 2.0, 100.0, 100.0
#: most entries of `logit_bias`, `stop_token_ids` and `bad_words`, and most tokens of a bad word
MAX_ENTRIES, MAX_BAD_WORD = 1024, 64
#: counts that a tally has ready for larger tokens, so that few tokens make it grow
_SPARE = 1 << 12


@dataclass(frozen=True, slots=True)
class Sampling:
    """Options for choosing the next token. Raises ValueError for values out of range.

    The logits are changed in the order of vLLM: `logit_bias`, `min_tokens` and `bad_words`, then
    `repetition_penalty`, then `frequency_penalty` and `presence_penalty`. The controller's row follows, then
    `top_n_sigma`, the temperature, `min_p`, `top_k`, `typical_p` and `top_p`; docs/abi.md defines these.
    Log-probabilities are those of the unchanged logits.
    """

    #: 0 = the most likely token
    temperature: float = 0.0
    #: keep only the most likely tokens that together have at least this probability
    top_p: float = 1.0
    #: keep only this many most likely tokens; 0 = all
    top_k: int = 0
    #: makes a run repeatable; None = a random seed
    seed: int | None = None
    #: keep only tokens with at least this share of the most likely token's probability
    min_p: float = 0.0
    #: subtracted from the logits of tokens that the answer has
    presence_penalty: float = 0.0
    #: subtracted from the logits of tokens that the answer has, once for each time
    frequency_penalty: float = 0.0
    #: positive logits of tokens that the prompt or the answer has are divided by it, others multiplied
    repetition_penalty: float = 1.0
    #: (token, bias) pairs; the biases are added to the logits
    logit_bias: tuple[tuple[int, float], ...] = ()
    #: no end token is sampled before the answer has this many tokens
    min_tokens: int = 0
    #: end-of-sequence tokens do not end the answer
    ignore_eos: bool = False
    #: tokens that end the answer, in addition; their text is not part of it
    stop_token_ids: tuple[int, ...] = ()
    #: sequences of tokens that the answer must not contain
    bad_words: tuple[tuple[int, ...], ...] = ()
    #: keep only the tokens whose surprise is nearest to its mean and that together have this probability
    typical_p: float = 1.0
    #: keep only logits up to so many standard deviations below the largest; 0 = all
    top_n_sigma: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature is {self.temperature}; it must be 0 or a positive number")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; it must be above 0 and at most 1")
        if not 0 <= self.top_k <= MAX_TOP_K:
            raise ValueError(f"top_k is {self.top_k}; it must be 0 (all tokens) to {MAX_TOP_K}")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p is {self.min_p}; it must be 0 to 1")
        if not 0 < self.typical_p <= 1:
            raise ValueError(f"typical_p is {self.typical_p}; it must be above 0 and at most 1")
        if not 0 <= self.top_n_sigma < math.inf:
            raise ValueError(f"top_n_sigma is {self.top_n_sigma}; it must be 0 or a positive number")
        for name in ("presence_penalty", "frequency_penalty"):
            if not abs(value := getattr(self, name)) <= MAX_PENALTY:
                raise ValueError(f"{name} is {value}; it must be -{MAX_PENALTY:g} to {MAX_PENALTY:g}")
        if not 0 < self.repetition_penalty <= MAX_REPETITION:
            raise ValueError(
                f"repetition_penalty is {self.repetition_penalty}; it must be above 0 and at most "
                f"{MAX_REPETITION:g}"
            )
        if self.min_tokens < 0:
            raise ValueError(f"min_tokens is {self.min_tokens}; it must not be negative")
        for name in ("logit_bias", "stop_token_ids", "bad_words"):
            if len(getattr(self, name)) > MAX_ENTRIES:
                raise ValueError(f"{name} has more than {MAX_ENTRIES} entries")
        for _, bias in self.logit_bias:
            if not abs(bias) <= MAX_BIAS:
                raise ValueError(f"logit_bias has {bias}; biases must be -{MAX_BIAS:g} to {MAX_BIAS:g}")
        if any(not 0 < len(word) <= MAX_BAD_WORD for word in self.bad_words):
            raise ValueError(f"an entry of bad_words has no token, or more than {MAX_BAD_WORD}")

    @property
    def changes_logits(self) -> bool:
        """Whether it changes the logits before a controller's row."""
        return bool(
            self.presence_penalty
            or self.frequency_penalty
            or self.repetition_penalty != 1
            or self.logit_bias
            or self.min_tokens
            or self.bad_words
        )

    def changes(self, tally: Tally, last: Sequence[int], ends: Collection[int]) -> Changes:
        """Returns what becomes of the logits after the tokens that `tally` counts.

        `last`: the end of the answer, of `MAX_BAD_WORD` tokens or more, or all of it. `ends`: the tokens that
        end the answer.
        """
        biases = dict(self.logit_bias)
        if tally.answered < self.min_tokens:
            biases |= dict.fromkeys((*ends, *self.stop_token_ids), -math.inf)
        end = tuple(last)
        for word in self.bad_words:
            before = len(word) - 1
            if len(end) >= before and end[len(end) - before :] == word[:-1]:
                biases[word[-1]] = -math.inf
        tokens = np.empty(0, np.int64)
        if self.repetition_penalty != 1 or self.presence_penalty or self.frequency_penalty:
            tokens = tally.tokens(prompt=self.repetition_penalty != 1)
        biased = np.sort(np.fromiter(biases, np.int64, len(biases)))
        new = biased[~np.isin(biased, tokens)]
        tokens = np.insert(tokens, np.searchsorted(tokens, new), new)
        added = np.zeros(len(tokens), np.float32)
        added[np.searchsorted(tokens, biased)] = [biases[token] for token in biased.tolist()]
        prompt, answer = tally.counts(tokens)
        divisors = np.where(prompt + answer > 0, np.float32(self.repetition_penalty), np.float32(1))
        penalties = self.frequency_penalty * answer + self.presence_penalty * (answer > 0)
        return Changes(tokens, added, divisors, penalties.astype(np.float32))


class Tally:
    """How often each token is in a prompt and in its answer; kept while the answer grows and is cut back.

    Counting all tokens again for each one that is chosen would take 0.1 s after 64 000 tokens.
    """

    __slots__ = ("_counts", "answered")

    def __init__(self, prompt: Sequence[int] = (), answer: Sequence[int] = ()) -> None:
        """Counts the tokens, none of which is negative. Memory: 8 bytes for each token below the largest."""
        #: number of tokens of the answer
        self.answered = 0
        #: of the prompt and of the answer, int32 [2, largest token + 1 or more]
        self._counts = np.zeros((2, 0), np.int32)
        self.add(prompt, answer=False)
        self.add(answer)

    def add(self, tokens: Sequence[int], by: int = 1, *, answer: bool = True) -> None:
        """Counts tokens that the answer, or the prompt, has had added; with `by` -1, taken away."""
        if not len(tokens):
            return
        ids = np.array(tokens, np.int64)
        if (missing := int(ids.max()) + 1 - self._counts.shape[1]) > 0:
            self._counts = np.pad(self._counts, ((0, 0), (0, missing + _SPARE)))
        np.add.at(self._counts[int(answer)], ids, by)
        self.answered += by * len(tokens) * answer

    def tokens(self, *, prompt: bool) -> NDArray[np.int64]:
        """Returns the tokens that the answer has, in order; with `prompt`, also those of the prompt."""
        prompts, answers = self._counts
        return np.flatnonzero(prompts | answers if prompt else answers)

    def counts(self, tokens: NDArray[np.int64]) -> NDArray[np.int32]:
        """Returns how often the prompt and the answer have each of these tokens: int32 [2, N]."""
        counts = np.zeros((2, len(tokens)), np.int32)
        known = (tokens >= 0) & (tokens < self._counts.shape[1])
        counts[:, known] = self._counts[:, tokens[known]]
        return counts

    def copy(self) -> Tally:
        """Returns an independent copy."""
        twin = Tally()
        twin.answered, twin._counts = self.answered, self._counts.copy()
        return twin


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of the logits of some tokens: arrays of one length, int64 and float32."""

    tokens: NDArray[np.int64]
    biases: NDArray[np.float32]
    divisors: NDArray[np.float32]
    penalties: NDArray[np.float32]

    def within(self, size: int) -> Changes:
        """Returns the changes of the tokens below `size`."""
        kept = (self.tokens >= 0) & (self.tokens < size)
        return Changes(self.tokens[kept], self.biases[kept], self.divisors[kept], self.penalties[kept])

    def apply(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns the changed logits of the tokens; `logits`: float32, in the order of `tokens`."""
        biased = logits + self.biases
        scaled: NDArray[np.float32] = np.where(biased > 0, biased / self.divisors, biased * self.divisors)
        return scaled - self.penalties
