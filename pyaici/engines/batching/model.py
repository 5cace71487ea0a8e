"""A model as the engine uses it: its interface, and the prefixes that are kept in its key-value cache.

An engine implements `Runner`, `KeyValueCache` and `Sampler`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from aicirt.contract.abi import MAX_MODEL_NAME
from aicirt.contract.errors import ResultError, SpaceError, VocabularyError
from aicirt.contract.owners import to_evict
from pyaici.engines.record import shared_length

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pyaici.engines.batching.sampler import Choice, Chosen
    from pyaici.tokens import Vocabulary

#: The logits of a row, float32 [N]: a numpy array, or a tensor on a device that only the model's `Sampler`
#: reads.
LogitsRow: TypeAlias = Any
T = TypeVar("T")

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
    #: the second model whose cache has the slot; None: the engine's own model
    second: SecondModel | None = None


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


@dataclass(eq=False, slots=True)
class TextSlot(Slot):
    """A slot of a `TextCache`."""

    #: those from `length` on are no longer in the sequence
    tokens: list[int] = field(default_factory=list)


class TextCache:
    """The `KeyValueCache` of a model without keys and values, which reads the tokens themselves."""

    def __init__(self, kind: type[TextSlot] = TextSlot) -> None:
        self._kind = kind

    def new_slot(self) -> TextSlot:
        return self._kind(index=0)

    def fork(self, slot: Slot) -> TextSlot:
        child = self.new_slot()
        self.copy(slot, child)
        return child

    def copy(self, source: Slot, target: Slot, length: int | None = None) -> None:
        assert isinstance(source, TextSlot) and isinstance(target, TextSlot)
        target.tokens = source.tokens.copy()
        target.length = source.length if length is None else min(length, source.length)

    def free(self, slot: Slot) -> None:
        slot.index = -1

    def _make_room(self, slot: Slot, tokens: int = 0) -> None:
        """There is room for any number of tokens."""

    extend = park = resume = _make_room


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


@dataclass(frozen=True, eq=False, slots=True)
class Cached:
    """A slot and the tokens that it holds: the first ``slot.length`` of `tokens`."""

    tokens: Sequence[int]
    slot: Slot
    #: the owner of the ended sequence, or of the last one that has used the slot
    owner: str | None = None

    def shares(self, tokens: Sequence[int]) -> int:
        """Returns how many first tokens of `tokens` the slot holds."""
        return min(self.slot.length, shared_length(self.tokens, tokens))


class PrefixCache:
    """Allocates and frees the slots of sequences.

    Keeps the slots of up to `keep` ended sequences, which have up to `keep_tokens` tokens together; the least
    recently used of the owner with the most go first.
    """

    def __init__(self, cache: KeyValueCache, keep: int, keep_tokens: int | None = None) -> None:
        self._cache = cache
        self._keep = keep
        self._keep_tokens = sys.maxsize if keep_tokens is None else keep_tokens
        #: least recently used first
        self._kept: list[Cached] = []
        #: number of calls of `clear`; contents of slots from before the last call cannot be relied on
        self.cleared = 0

    @property
    def enabled(self) -> bool:
        """Whether slots are kept and beginnings are shared."""
        return self._keep > 0

    def find(self, tokens: list[int], others: Iterable[Cached]) -> tuple[Cached | None, int]:
        """Returns the slot that holds the longest beginning of `tokens`, and the length of that beginning."""
        best: Cached | None = None
        length = 0
        if self.enabled:
            for cached in (*others, *self._kept):
                if (shared := cached.shares(tokens)) > length:
                    best, length = cached, shared
                    if length == len(tokens):  # comparing with others takes time
                        break
        return best, length

    def start_slot(self, tokens: list[int], others: Iterable[Cached]) -> Slot:
        """Returns a slot with the longest beginning of `tokens` that a kept slot or one of `others` holds.

        The slot never holds the last token, which must be fed for its logits. The caller feeds the rest, from
        ``slot.length`` on. Raises SpaceError.
        """
        best, length = self.find(tokens[:-1], others)
        if best in self._kept:
            self._kept.remove(best)
            if length == best.slot.length:  # all of its contents are used: no copy is needed
                return self._resume(best.slot)
            self._kept.append(best)
        slot = self._with_room(self._cache.new_slot)
        if best is not None:
            source = best.slot  # if making room drops it, it has no tokens
            self._with_room(lambda: self._cache.copy(source, slot, min(length, source.length)))
        return slot

    def _resume(self, slot: Slot) -> Slot:
        try:
            self._with_room(lambda: self._cache.resume(slot))
        except SpaceError:
            self._cache.free(slot)
            raise
        return slot

    def fork(self, slot: Slot) -> Slot:
        """Returns a new slot with the same contents. Raises SpaceError."""
        return self._with_room(lambda: self._cache.fork(slot))

    def extend(self, slot: Slot, tokens: int) -> None:
        """Makes room for `tokens` tokens in a slot. Drops kept slots if necessary.

        Raises SpaceError if there is no room even without kept slots.
        """
        self._with_room(lambda: self._cache.extend(slot, tokens))

    def _with_room(self, attempt: Callable[[], T]) -> T:
        """Returns the result of `attempt`. Drops kept slots until it finds room."""
        while True:
            try:
                return attempt()
            except SpaceError:
                if not self._kept:
                    raise
                self._drop_one(by_tokens=True)

    def end(self, tokens: Sequence[int], slot: Slot, owner: str | None = None) -> None:
        """Keeps or frees the slot of an ended sequence of an owner with these tokens."""
        if not self.enabled or not 0 < slot.length <= self._keep_tokens:
            self._cache.free(slot)
            return
        new = Cached(list(tokens[: slot.length]), slot, owner)
        for old in self._kept:
            if old.shares(new.tokens) == slot.length:
                # another kept slot already holds all of these tokens
                self._kept.remove(old)
                self._kept.append(old)
                self._cache.free(slot)
                return
        for old in [old for old in self._kept if new.shares(old.tokens) == old.slot.length]:
            self._drop(old)
        try:
            self._with_room(lambda: self._cache.park(slot))
        except SpaceError:
            self._cache.free(slot)
            return
        self._kept.append(new)
        while (many := len(self._kept) > self._keep) or self.kept_tokens > self._keep_tokens:
            self._drop_one(by_tokens=not many)

    @property
    def kept_tokens(self) -> int:
        """The tokens of all kept prefixes; may be read from any thread."""
        return sum(cached.slot.length for cached in list(self._kept))

    def clear(self) -> None:
        """Frees all kept slots."""
        self.cleared += 1
        while self._kept:
            self._drop(self._kept[-1])

    def _drop_one(self, *, by_tokens: bool) -> None:
        """Drops the oldest slot of the owner with the most slots, or with the most tokens."""
        kept = self._kept
        self._drop(to_evict((one, one.owner, one.slot.length if by_tokens else 1) for one in kept))

    def _drop(self, cached: Cached) -> None:
        self._kept.remove(cached)
        self._cache.free(cached.slot)


# -- second models: they compute the logits of sequences that follow others

#: most second models of an engine: each has its weights and a cache in memory
MAX_SECOND = 4


@dataclass(frozen=True, eq=False, slots=True)
class SecondModel:
    """A second model with its own key-value cache.

    A sequence that follows another one may have a slot there instead of one in the cache of the engine's own
    model. It is scheduled, fed and charged like every other sequence.
    """

    name: str
    runner: Runner
    prefixes: PrefixCache

    def check_room(self, tokens: Sequence[int]) -> None:
        """Raises ResultError for a text that the model cannot read."""
        if len(tokens) >= self.runner.max_tokens:
            raise ResultError(
                f"the second model {self.name!r} reads at most {self.runner.max_tokens} tokens; the sequence "
                f"has {len(tokens)}"
            )


def find_second(models: Mapping[str, SecondModel], name: str) -> SecondModel | None:
    """Returns the model of a name; None for the empty name. Raises ResultError if there is none."""
    if name and name not in models:
        known = ", ".join(map(repr, models)) or "none (aici serve and aici run: --second NAME=MODEL)"
        raise ResultError(f"there is no second model {name!r}; this engine has {known}")
    return models[name] if name else None


def check_names(names: Sequence[str]) -> None:
    """Raises ValueError if there are too many second models, or one has no name that a controller can use."""
    if len(names) > MAX_SECOND:
        raise ValueError(f"there are {len(names)} second models; an engine takes at most {MAX_SECOND}")
    for name in names:
        if not name or len(name.encode()) > MAX_MODEL_NAME:
            raise ValueError(f"the name of a second model has 1 to {MAX_MODEL_NAME} bytes: {name!r}")


def check_same_tokens(name: str, second: Vocabulary, first: Vocabulary) -> None:
    """Raises VocabularyError with the first token in which a second model's vocabulary differs.

    Either may have more ids that are no tokens.
    """
    if second.tokens == first.tokens and second.special_names == first.special_names:
        return
    for token in range(max(second.num_known, first.num_known)):
        there, here = (_token(vocabulary, token) for vocabulary in (second, first))
        if there != here:
            raise VocabularyError(
                f"the second model {name!r} has other tokens: token {token} is {there!r} there, and {here!r} "
                "in the engine's own model; both must have the same vocabulary"
            )


def _token(vocabulary: Vocabulary, token: int) -> bytes | str:
    """Returns a token's bytes, or the name of a special token."""
    name = vocabulary.special_names.get(token)
    if name is not None:
        return name
    return vocabulary.tokens[token] if token < len(vocabulary.tokens) else b""


def run_each(runner: Runner, feeds: Sequence[Feed]) -> Sequence[Any]:
    """Runs feeds, each with its own model, in one pass of each model; see `Runner.run`.

    `runner`: for feeds that name no second model.
    """
    places: dict[Runner, list[int]] = {}
    for place, feed in enumerate(feeds):
        places.setdefault(runner if feed.second is None else feed.second.runner, []).append(place)
    rows: list[Any] = [None] * len(feeds)
    for each, mine in places.items():
        for place, row in zip(mine, each.run([feeds[place] for place in mine]), strict=True):
            rows[place] = row
    return rows
