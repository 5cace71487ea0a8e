"""Events of readers, in a form to compare."""

from __future__ import annotations

from collections.abc import Iterable

from pyaici.server.answers.reader import Event, Reasoning, Text


def joined(events: Iterable[Event]) -> list[Event]:
    """Returns the events with consecutive texts of one kind joined."""
    found: list[Event] = []
    for event in events:
        last = found[-1] if found else None
        if isinstance(event, Text) and isinstance(last, Text):
            found[-1] = Text(last.text + event.text)
        elif isinstance(event, Reasoning) and isinstance(last, Reasoning):
            found[-1] = Reasoning(last.text + event.text)
        else:
            found.append(event)
    return found
