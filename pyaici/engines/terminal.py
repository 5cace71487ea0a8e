"""Shows the sequences of an engine in a terminal while they grow, and a summary at the end."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from aicirt.system.terminal import describe_error, printable
from pyaici.engines.request import FinishReason
from pyaici.engines.transcript import Kind, Transcript, Transcripts

if TYPE_CHECKING:
    from pyaici.engines.counts import Counts
    from pyaici.engines.events import Event

_STYLES = {
    Kind.PROMPT: "dim",
    Kind.SAMPLED: "green",
    Kind.FORCED: "bold cyan",
    Kind.TAKEN: "red strike",
    Kind.SHARED: "italic",
}
#: Without colours: what stands before and after a piece of text.
_MARKS = {Kind.FORCED: ("«", "»"), Kind.TAKEN: ("~", "~")}
#: Redrawing more often than the eye follows takes time from the model.
_SECONDS_BETWEEN_FRAMES = 1 / 15
#: Lines of a prompt, and of a log, that are shown.
_PROMPT_LINES, _LOG_LINES = 4, 20


class Terminal:
    """Give it every event; use it as a context manager around the run.

    On a terminal the text is redrawn as it changes, in colours. Elsewhere nothing is printed before the
    end, and marks take the place of colours: «forced», ~taken back~. Control characters are shown as escapes.
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
            self._transcripts.cancel()
        self._console.print(self._everything())

    def show(self, event: Event) -> None:
        """Takes an event, and redraws if it is time."""
        self._transcripts.take(event)
        now = time.monotonic()
        if self._live is not None and now >= self._next_frame:
            self._next_frame = now + _SECONDS_BETWEEN_FRAMES
            self._live.update(self._everything(), refresh=True)

    def summary(self, counts: Counts, seconds: float, *more: RenderableType) -> None:
        """Prints counts, and what else there is to say."""
        rate = (counts.sampled + counts.forced) / max(seconds, 1e-9)
        self._console.print(
            f"{counts.sampled} tokens sampled, {counts.forced} forced, {counts.backtracked} taken back, "
            f"{counts.forks} forks in {counts.steps} steps and {seconds:.2f} s ({rate:.1f} tokens/s)",
            *more,
            sep="\n",
        )

    # -- drawing --------------------------------------------------------------------------------

    def _everything(self) -> RenderableType:
        parts: list[RenderableType] = [self._legend()]
        for transcript in self._transcripts.by_seq.values():
            if transcript.reason is not FinishReason.CUT:
                parts += ["", self._heading(transcript), self._text(transcript)]
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
        if transcript.reason is not None:
            state = f"ended: {transcript.reason.value}"
        return Text(f"#{transcript.seq}{origin}{f' ({state})' if state else ''}", style="bold")

    def _text(self, transcript: Transcript) -> Text:
        text = Text()
        for piece in transcript.pieces:
            if piece.kind is Kind.PROMPT and transcript.parent is not None:
                continue  # it stands above
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
        skipped = [f"... {before} lines before"] if before else []
        shown = "\n".join(f"  | {line}" for line in [*skipped, *lines[-_LOG_LINES:]])
        return Text(shown, style="yellow")
