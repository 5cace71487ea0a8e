"""Messages between runs of one owner: what has come for each, and who waits for the next one."""

from __future__ import annotations

import secrets
from collections import Counter, deque
from typing import Generic, TypeVar

from aicirt.contract.errors import OfferError, OwnerLimitError, UnknownRunError
from aicirt.settings import MAX_RUN_NAME

#: a call that waits for a message
Receiver = TypeVar("Receiver")
#: bytes that a message counts beside its text
_OVERHEAD = 128


class Mailbox(Generic[Receiver]):
    """The messages for one run, oldest first, and its calls that wait for one."""

    __slots__ = ("messages", "name", "owner", "receivers")

    def __init__(self, owner: str, name: str) -> None:
        self.owner = owner
        self.name = name
        #: JSON
        self.messages: deque[bytes] = deque()
        #: while there are any, there are no messages
        self.receivers: list[Receiver] = []


class Mailboxes(Generic[Receiver]):
    """All mailboxes. A name is that of one run of its owner at a time; others cannot reach it."""

    def __init__(self, most_bytes: int) -> None:
        """`most_bytes`: of an owner's messages that nobody has received; each counts `_OVERHEAD` more."""
        self._most_bytes = most_bytes
        self._boxes: dict[tuple[str, str], Mailbox[Receiver]] = {}
        self._bytes: Counter[str] = Counter()

    def open(self, owner: str, name: str = "") -> Mailbox[Receiver]:
        """Opens a mailbox under this name, or under one that is free. Raises OfferError if it is taken."""
        name = name or f"run-{secrets.token_hex(8)}"
        if not 0 < len(name) <= MAX_RUN_NAME:
            raise OfferError(f"a run's name has 1 to {MAX_RUN_NAME} characters: {name!r:.100}")
        if (owner, name) in self._boxes:
            raise OfferError(f"another run of yours has the name {name!r}: choose another, or end that run")
        box = self._boxes[owner, name] = Mailbox[Receiver](owner, name)
        return box

    def close(self, box: Mailbox[Receiver]) -> None:
        """Removes a mailbox with its messages."""
        del self._boxes[box.owner, box.name]
        while box.messages:
            self.take_message(box)

    def put(self, owner: str, name: str, message: bytes) -> Receiver | None:
        """Sends a message, as JSON, to the owner's run of this name.

        Returns the call that waits for it, if there is one, which the caller ends. Otherwise the message
        waits. Raises UnknownRunError, and OwnerLimitError if too many messages wait.
        """
        if (box := self._boxes.get((owner, name))) is None:
            raise UnknownRunError(f"no run of yours has the name {name!r:.100}: it has ended, or has none")
        if box.receivers:
            return box.receivers[0]
        size = self._bytes[owner] + len(message) + _OVERHEAD
        if size > self._most_bytes:
            raise OwnerLimitError(
                f"messages that nobody has received would take {size} bytes; the limit is {self._most_bytes} "
                f"(owner_message_bytes): the run {name!r} does not receive them",
                limit=self._most_bytes,
            )
        self._bytes[owner] = size
        box.messages.append(message)
        return None

    def take_message(self, box: Mailbox[Receiver]) -> bytes:
        """Removes the oldest message and returns it."""
        message = box.messages.popleft()
        self._bytes[box.owner] -= len(message) + _OVERHEAD
        if not self._bytes[box.owner]:
            del self._bytes[box.owner]
        return message
