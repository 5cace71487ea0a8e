"""Shows an engine's sequences in a terminal as they grow, and a summary at the end."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from aicirt.contract.errors import counted
from aicirt.system.terminal import describe_error, printable
from pyaici.engines.engine import (
    Backtracked,
    Event,
    Finished,
    FinishReason,
    Forked,
    Log,
    Origin,
    Started,
    Suspended,
    TokensAppended,
)

if TYPE_CHECKING:
    from pyaici.engines.engine import Counts


#: characters of a log that are kept for display
_LOG_CHARACTERS = 64 << 10


class Kind(Enum):
    """The origin or state of a piece of text."""

    PROMPT = "prompt"
    SAMPLED = "sampled"
    FORCED = "forced"
    #: removed by a backtrack
    REMOVED = "removed"
    #: written before the fork, by the sequence that was forked
    SHARED = "shared"


@dataclass(slots=True)
class Piece:
    """A run of text of one kind."""

    kind: Kind
    text: str


@dataclass(slots=True)
class Transcript:
    """The text of a sequence, in pieces."""

    seq: int
    parent: int | None = None
    pieces: list[Piece] = field(default_factory=list)
    #: the newest part
    log: str = ""
    log_lines_dropped: int = 0
    suspended: bool = False
    finish_reason: FinishReason | None = None
    error: str = ""

    def add(self, kind: Kind, text: str) -> None:
        """Appends text."""
        self.suspended = False
        if self.pieces and self.pieces[-1].kind is kind:
            self.pieces[-1].text += text
        elif text:
            self.pieces.append(Piece(kind, text))

    def print(self, text: str) -> None:
        """Appends text to the log; only its last lines are shown."""
        self.log += text
        if len(self.log) > 2 * _LOG_CHARACTERS:
            dropped, self.log = self.log[:-_LOG_CHARACTERS], self.log[-_LOG_CHARACTERS:]
            self.log_lines_dropped += dropped.count("\n")

    def take_back(self, text: str) -> None:
        """Marks `text`, the end of the remaining text, as removed, piece by piece."""
        self.suspended = False
        left = len(text)
        for at in range(len(self.pieces) - 1, -1, -1):
            if left == 0:
                break
            piece = self.pieces[at]
            if piece.kind is Kind.REMOVED:
                continue
            removed = piece.text[-left:]
            piece.text = piece.text[: len(piece.text) - len(removed)]
            left -= len(removed)
            self.pieces.insert(at + 1, Piece(Kind.REMOVED, removed))
        self._merge()

    def fork(self, seq: int) -> Transcript:
        """Returns the transcript of a fork; the text so far is marked as shared."""
        shared = "".join(p.text for p in self.pieces if p.kind not in (Kind.REMOVED, Kind.PROMPT))
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
    """The transcripts of all sequences, built from an engine's events."""

    def __init__(self) -> None:
        self.by_seq: dict[int, Transcript] = {}

    def apply_event(self, event: Event) -> None:
        """Updates the transcripts with an event."""
        if isinstance(event, Started):
            self.by_seq[event.seq] = Transcript(event.seq)
            self.by_seq[event.seq].add(Kind.PROMPT, event.prompt)
            return
        transcript = self.by_seq[event.seq]
        if isinstance(event, TokensAppended):
            transcript.add(Kind.FORCED if event.origin is Origin.FORCED else Kind.SAMPLED, event.text)
        elif isinstance(event, Backtracked):
            transcript.take_back(event.text)
        elif isinstance(event, Forked):
            for child in event.children:
                self.by_seq[child] = transcript.fork(child)
        elif isinstance(event, Suspended):
            transcript.suspended = True
        elif isinstance(event, Log):
            transcript.print(event.text)
        elif isinstance(event, Finished):
            transcript.finish_reason = event.finish_reason
            transcript.error = "" if event.error is None else str(event.error)
            transcript.suspended = False

    def cancel_all(self) -> None:
        """Marks all sequences that have not ended as cancelled."""
        for transcript in self.by_seq.values():
            transcript.finish_reason = transcript.finish_reason or FinishReason.CANCELLED
            transcript.suspended = False


_STYLES = {
    Kind.PROMPT: "dim",
    Kind.SAMPLED: "green",
    Kind.FORCED: "bold cyan",
    Kind.REMOVED: "red strike",
    Kind.SHARED: "italic",
}
#: Marks before and after a piece of text, used where there are no colours.
_MARKS = {Kind.FORCED: ("«", "»"), Kind.REMOVED: ("~", "~")}
#: Redrawing more often than the eye can follow takes time from the model.
_SECONDS_BETWEEN_FRAMES = 1 / 15
#: Lines shown of a prompt and of a log.
_PROMPT_LINES, _LOG_LINES = 4, 20


class Terminal:
    """A display of all sequences. Use it as a context manager around the run, and pass every event to `show`.

    On a terminal the text is redrawn in colours as it changes. Elsewhere nothing is printed before the end,
    and marks replace colours: «forced», ~removed~. Control characters are shown as escapes.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, soft_wrap=not sys.stdout.isatty())
        self._transcripts = Transcripts()
        self._live: Live | None = None
        self._next_frame = 0.0

    def __enter__(self) -> Terminal:
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self._transcripts.cancel_all()
        self._console.print(self._everything())

    def show(self, event: Event) -> None:
        """Handles an event, and redraws if the last redraw is long enough ago."""
        self._transcripts.apply_event(event)
        now = time.monotonic()
        if self._live is not None and now >= self._next_frame:
            self._next_frame = now + _SECONDS_BETWEEN_FRAMES
            self._live.update(self._everything(), refresh=True)

    def summary(self, counts: Counts, seconds: float, *more: RenderableType) -> None:
        """Prints the counts and rates, then `more`."""
        rate = (counts.sampled + counts.forced) / max(seconds, 1e-9)
        self._console.print(
            f"{counted(counts.sampled, 'token')} sampled, {counts.forced} forced, "
            f"{counts.backtracked} backtracked, {counted(counts.forks, 'fork')} in "
            f"{counted(counts.steps, 'step')} and {seconds:.2f} s ({rate:.1f} tokens/s)",
            *more,
            sep="\n",
        )

    # -- drawing --------------------------------------------------------------------------------

    def _everything(self) -> RenderableType:
        parts: list[RenderableType] = [self._legend()]
        for transcript in self._transcripts.by_seq.values():
            if transcript.finish_reason is not FinishReason.CUT:
                parts += ["", self._heading(transcript), self._styled_text(transcript)]
                if transcript.log:
                    parts.append(self._log(transcript))
                if transcript.error:
                    parts.append(Text(describe_error(transcript.error), style="bold red"))
        return Group(*parts, "")

    def _legend(self) -> Text:
        legend = Text()
        for kind in Kind:
            if self._console.is_terminal:
                legend.append(kind.value, style=_STYLES[kind])
            else:
                before, after = _MARKS.get(kind, ("", ""))
                legend.append(before + kind.value + after)
            legend.append("  ")
        legend.rstrip()
        return legend

    def _heading(self, transcript: Transcript) -> Text:
        origin = "" if transcript.parent is None else f", forked from #{transcript.parent}"
        state = "suspended" if transcript.suspended else ""
        if transcript.finish_reason is not None:
            state = f"ended: {transcript.finish_reason.value}"
        return Text(f"#{transcript.seq}{origin}{f' ({state})' if state else ''}", style="bold")

    def _styled_text(self, transcript: Transcript) -> Text:
        text = Text()
        for piece in transcript.pieces:
            if piece.kind is Kind.PROMPT and transcript.parent is not None:
                continue  # shown above, with the first sequence
            shown = printable(piece.text)
            if piece.kind is Kind.PROMPT:
                lines = shown.splitlines(keepends=True)
                shown = ("...\n" if len(lines) > _PROMPT_LINES else "") + "".join(lines[-_PROMPT_LINES:])
            if self._console.is_terminal:
                text.append(shown, style=_STYLES[piece.kind])
            else:
                before, after = _MARKS.get(piece.kind, ("", ""))
                text.append(before + shown + after)
        return text

    def _log(self, transcript: Transcript) -> Text:
        lines = printable(transcript.log).splitlines()
        before = transcript.log_lines_dropped + max(0, len(lines) - _LOG_LINES)
        skipped = [f"... {counted(before, 'earlier line')}"] if before else []
        shown = "\n".join(f"  | {line}" for line in [*skipped, *lines[-_LOG_LINES:]])
        return Text(shown, style="yellow")
