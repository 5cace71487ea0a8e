"""The interface between the engine and a model: slots of the key-value cache, and forward passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pyaici.engines.batching.sampler import Choice, Chosen

#: The logits of a row, float32 [N]: a numpy array, or a tensor on a device that only the model's `Sampler`
#: reads.
LogitsRow: TypeAlias = Any

#: Most tokens of one row in one pass: bounds the memory of attention scores in a long prompt.
CHUNK_TOKENS = 512


#: weight of the last pass in `Runner.token_seconds`
_NEWS = 0.1


def moving_average(average: float, new: float) -> float:
    """Returns the average with a new value in it. An average of 0 means that there is none yet."""
    return average + (new - average) * _NEWS if average else new


@dataclass(eq=False, slots=True)
class Slot:
    """A sequence's place in the cache.

    The engine shortens a slot by lowering `length`. The cache may keep the tokens beyond it until it needs
    the room.
    """

    #: the cache's number for it, which may change; -1 = the cache has not allocated it, or has freed it, or
    #: has parked it without a number
    index: int = -1
    #: number of valid tokens
    length: int = 0
    #: the cache may hold this many tokens of it, valid or not, or has room for them
    used: int = 0

    @property
    def placed(self) -> bool:
        """Whether a sequence can use the slot."""
        return self.index >= 0


@dataclass(frozen=True, eq=False, slots=True)
class Feed:
    """Tokens to append to a slot."""

    slot: Slot
    tokens: Sequence[int]
    #: return the logits after each of the tokens, which are then at most `CHUNK_TOKENS`
    every: bool = False


class KeyValueCache(Protocol):
    """The key-value cache of all sequences.

    SpaceError means that there is no room; the contents are unchanged then.
    """

    def new_slot(self) -> Slot:
        """Returns an empty slot. Raises SpaceError."""

    def extend(self, slot: Slot, tokens: int) -> None:
        """Makes room for `tokens` tokens in the slot, those that it holds included. Raises SpaceError."""

    def fork(self, slot: Slot) -> Slot:
        """Returns a new slot with the same contents. Raises SpaceError."""

    def copy(self, source: Slot, target: Slot, length: int | None = None) -> None:
        """Makes `target` equal to `source`, which may be parked. `target` must hold a beginning of it.

        `length`: copy only up to this many tokens; None = all. Raises SpaceError, but not for sources that
        are not parked.
        """

    def park(self, slot: Slot) -> None:
        """Stores the slot's tokens in as little memory as possible, until `resume`, for use as a source.

        Raises SpaceError.
        """

    def resume(self, slot: Slot) -> None:
        """Makes a parked slot usable again. Raises SpaceError."""

    def free(self, slot: Slot) -> None:
        """Frees the slot."""


class Sampler(Protocol):
    """Chooses tokens from a model's logits."""

    def stack(self, lines: Sequence[LogitsRow]) -> Any:
        """Returns the lines as one batch, [B, N], which later calls overwrite."""

    def mask(self, batch: Any, choices: Sequence[Choice], vocab_size: int) -> Any:
        """Applies the rows of `choices` in place. Ids from `vocab_size` on are no tokens.

        Returns a copy of the lines to measure as they were before the rows, in the same order, or None if
        there are none.
        """

    def choose(self, masked: Any, plain: Any, choices: Sequence[Choice]) -> list[Chosen]:
        """Chooses one token for each line of a masked batch. `plain`: the result of `mask`.

        Temperature is applied after masks and biases, then top-k, then top-p. Row i depends only on
        ``choices[i]`` and its own logits.
        """

    def keep(self, line: LogitsRow) -> LogitsRow:
        """Returns a copy of a line, so that the batch that it is a part of can be freed."""

    def to_numpy(self, lines: Sequence[LogitsRow]) -> NDArray[np.float32]:
        """Returns a copy of the lines, float32 [B, N]."""


class Runner(Protocol):
    """A causal language model and its key-value cache."""

    @property
    def cache(self) -> KeyValueCache:
        """The cache of the model."""

    @property
    def sampler(self) -> Sampler:
        """The sampler for the model's logits."""

    #: the fixed cost of a forward pass, in tokens
    pass_cost: int
    #: moving average of a pass's time per token in seconds, where the pass itself counts as `pass_cost`
    #: tokens; 0 = not measured. On a CPU, the processor's time, so that other work does not count
    token_seconds: float
    #: the model accepts token ids below this
    num_tokens: int
    #: columns of the logits; a model may have more than its tokenizer has tokens
    num_logits: int
    #: largest number of tokens of one sequence
    max_tokens: int

    def run(self, feeds: Sequence[Feed]) -> Sequence[LogitsRow]:
        """Appends each feed's tokens to its slot. Returns the logits after each feed's last token.

        For a feed with `every`, returns a list of the logits after each of its tokens.
        """
