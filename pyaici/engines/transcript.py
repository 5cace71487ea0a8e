"""What there is to show of each sequence: its text in pieces, with what was taken back still in place."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from pyaici.engines.events import (
    BackTracked,
    Event,
    Finished,
    Forked,
    Log,
    Started,
    Suspended,
    TokensAppended,
)
from pyaici.engines.request import FinishReason, Origin

#: characters of a log that are kept to be shown
_LOG_CHARACTERS = 64 << 10


class Kind(Enum):
    """How a piece of text came about."""

    PROMPT = "prompt"
    SAMPLED = "sampled"
    FORCED = "forced"
    #: it was there, and was taken back
    TAKEN = "taken back"
    #: written before the fork, by the sequence that was forked
    SHARED = "shared"


@dataclass(slots=True)
class Piece:
    """A run of text of one kind."""

    kind: Kind
    text: str


@dataclass(slots=True)
class Transcript:
    """One sequence."""

    seq: int
    parent: int | None = None
    pieces: list[Piece] = field(default_factory=list)
    #: the newest part
    log: str = ""
    log_lines_dropped: int = 0
    suspended: bool = False
    reason: FinishReason | None = None
    error: str = ""

    def add(self, kind: Kind, text: str) -> None:
        """Appends text."""
        self.suspended = False
        if self.pieces and self.pieces[-1].kind is kind:
            self.pieces[-1].text += text
        elif text:
            self.pieces.append(Piece(kind, text))

    def print(self, text: str) -> None:
        """Adds to the log, of which the last lines are shown."""
        self.log += text
        if len(self.log) > 2 * _LOG_CHARACTERS:
            dropped, self.log = self.log[:-_LOG_CHARACTERS], self.log[-_LOG_CHARACTERS:]
            self.log_lines_dropped += dropped.count("\n")

    def take_back(self, text: str) -> None:
        """Marks the last `text` that is still there as taken back, piece by piece."""
        self.suspended = False
        left = len(text)
        for at in range(len(self.pieces) - 1, -1, -1):
            if left == 0:
                break
            piece = self.pieces[at]
            if piece.kind is Kind.TAKEN:
                continue
            taken = piece.text[-left:]
            piece.text = piece.text[: len(piece.text) - len(taken)]
            left -= len(taken)
            self.pieces.insert(at + 1, Piece(Kind.TAKEN, taken))
        self._merge()

    def fork(self, seq: int) -> Transcript:
        """The transcript of a copy: what was written so far is shared."""
        shared = "".join(p.text for p in self.pieces if p.kind not in (Kind.TAKEN, Kind.PROMPT))
        pieces = [Piece(p.kind, p.text) for p in self.pieces if p.kind is Kind.PROMPT]
        return Transcript(seq, self.seq, [*pieces, *([Piece(Kind.SHARED, shared)] if shared else [])])

    def _merge(self) -> None:
        merged: list[Piece] = []
        for piece in self.pieces:
            if not piece.text:
                continue
            if merged and merged[-1].kind is piece.kind:
                merged[-1].text += piece.text
            else:
                merged.append(piece)
        self.pieces = merged


class Transcripts:
    """All sequences, from the events of an engine."""

    def __init__(self) -> None:
        self.by_seq: dict[int, Transcript] = {}

    def take(self, event: Event) -> None:
        """Brings the transcripts up to date."""
        if isinstance(event, Started):
            self.by_seq[event.seq] = Transcript(event.seq)
            self.by_seq[event.seq].add(Kind.PROMPT, event.prompt)
            return
        transcript = self.by_seq[event.seq]
        if isinstance(event, TokensAppended):
            transcript.add(Kind.FORCED if event.origin is Origin.FORCED else Kind.SAMPLED, event.text)
        elif isinstance(event, BackTracked):
            transcript.take_back(event.text)
        elif isinstance(event, Forked):
            for child in event.children:
                self.by_seq[child] = transcript.fork(child)
        elif isinstance(event, Suspended):
            transcript.suspended = True
        elif isinstance(event, Log):
            transcript.print(event.text)
        elif isinstance(event, Finished):
            transcript.reason = event.reason
            transcript.error = "" if event.error is None else str(event.error)
            transcript.suspended = False

    def cancel(self) -> None:
        """The run ends here: what has not ended by itself is cancelled."""
        for transcript in self.by_seq.values():
            transcript.reason = transcript.reason or FinishReason.CANCELLED
            transcript.suspended = False
