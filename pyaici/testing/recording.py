"""What an engine and a controller have said to each other in one request, for a replay without the model."""

from __future__ import annotations

from dataclasses import dataclass, field

#: raised when files of earlier versions cannot be read any more
FORMAT = 1


@dataclass(slots=True)
class Sampled:
    """A token was sampled under a row."""

    token: int
    #: kind of the row: all, bitmask, token, sparse or dense
    row: str = "all"
    #: how many tokens the row allowed
    num_allowed: int = 0
    #: of the set of allowed tokens: see `digest_of`
    mask: str = ""
    #: whether the row allowed this one
    allowed: bool = True
    #: the controller's own
    temperature: float | None = None
    #: natural log-probability before masking, and the probability of all that was allowed, where known
    logprob: float | None = None
    allowed_mass: float | None = None
    #: (token, log-probability) of the most likely ones, where the controller asked
    top: list[tuple[int, float]] | None = None


@dataclass(slots=True)
class Spliced:
    """The controller took tokens back, then appended others."""

    backtrack: int
    tokens: list[int]
    #: what was appended where the engine had no room for all
    done: list[int] | None = None


@dataclass(slots=True)
class Forked:
    """The controller asked for copies of the sequence: their places in `Recording.sequences`."""

    children: list[int]


@dataclass(slots=True)
class Suspended:
    """The controller skipped rounds: so many in a row."""

    rounds: int = 1


Event = Sampled | Spliced | Forked | Suspended


@dataclass(slots=True)
class RecordedError:
    """What a sequence ended with: the code of an AiciError, and its message."""

    code: str
    message: str


@dataclass(slots=True)
class RecordedSequence:
    """One sequence, from its beginning, or from the fork that made it, to its end."""

    #: place of the one that it was forked from
    parent: int | None = None
    events: list[Event] = field(default_factory=list)
    #: eos, stop, length, error, or cancelled: the engine let go of it
    reason: str = "cancelled"
    error: RecordedError | None = None
    #: what the controller printed
    log: str = ""


@dataclass(slots=True)
class RecordedVocabulary:
    """Which vocabulary token ids are of, and what the ids of this recording stand for."""

    name: str = ""
    #: `Vocabulary.fingerprint`
    fingerprint: str = ""
    size: int = 0
    eos: tuple[int, ...] = ()
    bos: int | None = None
    #: bytes of the tokens that occur
    tokens: dict[int, bytes] = field(default_factory=dict)
    #: names of special tokens that occur, and of those that end a text
    special: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class Recording:
    """One request."""

    vocabulary: RecordedVocabulary = field(default_factory=RecordedVocabulary)
    #: as the user named it
    controller: str = ""
    arg: bytes = b""
    #: ids of the prompt's tokens
    prompt: list[int] = field(default_factory=list)
    max_tokens: int = 0
    #: what `aici_random` draws from
    seed: int = 0
    #: `Capabilities.to_wire`
    capabilities: list[list[int]] = field(default_factory=list)
    #: the first is the one that the request began with
    sequences: list[RecordedSequence] = field(default_factory=list)
    #: values at the end, which all sequences share
    variables: dict[str, bytes] = field(default_factory=dict)

    def text(self, tokens: list[int]) -> str:
        """What tokens of this recording stand for: special ones by their names."""
        found = b"".join(
            self.vocabulary.special[token].encode()
            if token in self.vocabulary.special
            else self.vocabulary.tokens.get(token, b"")
            for token in tokens
        )
        return found.decode("utf-8", "replace")
