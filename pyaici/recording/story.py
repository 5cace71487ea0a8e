"""Describes a recording in words, a line for each event, and how two descriptions differ."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence

from aicirt.contract.errors import counted
from pyaici.recording.recording import Event, Forked, Looked, Recording, Sampled, Spliced, Suspended

#: lines shown around a difference
_CONTEXT = 3


def lines_of(recording: Recording, *, ids: bool = True, masks: bool = False) -> list[str]:
    """Returns lines for all sequences, then variables and calls; omits rounds in which a sequence waits.

    `ids`: list the token ids of splices, whose texts have several tokenizations. `masks`: describe what each
    row allowed.
    """
    lines = []
    for place, sequence in enumerate(recording.sequences):
        origin = "" if sequence.parent is None else f", forked from #{sequence.parent}"
        lines.append(f"#{place}{origin}")
        for event in sequence.events:
            if not isinstance(event, Suspended) and event != Spliced(0, []):  # waiting depends on timing
                lines += [f"  {line}" for line in _event(recording, event, ids, masks)]
        lines += [f"  printed: {line}" for line in sequence.log.splitlines()]
        lines.append(f"  ended: {sequence.finish_reason}")
        if sequence.error is not None:
            lines += [f"  {sequence.error.code}: {line}" for line in sequence.error.message.splitlines()]
    for name, value in sorted(recording.variables.items()):
        lines.append(f"variable {name} = {quoted(value.decode('utf-8', 'backslashreplace'))}")
    called = [f"called {call.text}" for call in recording.calls or () if call.result is not None]
    return [*lines, *sorted(called)]  # forks make calls in any order


def _event(recording: Recording, event: Event, ids: bool, masks: bool) -> list[str]:
    if isinstance(event, Sampled):
        more = f" under {event.row}, {event.num_allowed} allowed, mask {event.mask}" if masks else ""
        lines = [f"sampled {quoted(recording.text([event.token]))}{more}"]
        if event.temperature is not None:
            lines.append(f"  at temperature {event.temperature:g}")
        if event.truncation is not None:
            options = [f"{name} {value:g}" for name, value in event.truncation.given.items()]
            lines.append(f"  with {', '.join(options)}")
        return lines
    if isinstance(event, Spliced):
        removed = [f"removed {counted(event.backtrack, 'token')}"] if event.backtrack else []
        if not event.tokens and removed:
            return removed
        which = f" {event.tokens}" if ids else ""
        return [*removed, f"forced {quoted(recording.text(event.tokens))}{which}"]
    if isinstance(event, Looked):
        seen = event.top_logprobs
        return [f"looked at {'all logits' if seen is None else counted(len(seen), 'likely token')}"]
    assert isinstance(event, Forked)
    return [f"forked: {', '.join(f'#{child}' for child in event.children)}"]


def quoted(text: str) -> str:
    """Returns a text as a quoted string on one line."""
    return json.dumps(text, ensure_ascii=False)


def differences(before: Sequence[str], now: Sequence[str]) -> list[str]:
    """Returns a diff with context: "-" marks lines before, "+" lines now; empty if nothing differs."""
    found = difflib.unified_diff(before, now, n=_CONTEXT, lineterm="")
    return ["..." if line.startswith("@@") else line for line in list(found)[2:]]
