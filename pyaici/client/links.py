"""The links of a client to all workers with its sequences."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from aicirt.contract.errors import RuntimeFailure
from aicirt.contract.messages import LINK_NUMBERS
from aicirt.ipc.segment import Layout
from pyaici.client.link import WorkerLink

if TYPE_CHECKING:
    from pyaici.client.address import WorkerAddress
    from pyaici.client.control import Control
    from pyaici.client.sequences import Sequences


class Links:
    """Holds a `WorkerLink` for each worker with sequences of this client, by (worker, generation).

    Any thread may attach. Only the thread of the runtime uses and closes links.
    """

    def __init__(self, control: Control, live: Sequences, num_rows: int, num_dense: int) -> None:
        self._control = control
        self._live = live
        self._rows = num_rows, num_dense
        self._links: dict[tuple[int, int], WorkerLink] = {}
        self._attaching = threading.Lock()
        self.numbers: Iterator[int] = itertools.cycle(range(LINK_NUMBERS))

    def values(self) -> list[WorkerLink]:
        """Returns all links."""
        return list(self._links.values())

    def attach(
        self, address: WorkerAddress, vocabulary: int, vocab_size: int, owner: str | None = None
    ) -> WorkerLink:
        """Returns the link to a worker, which is made at the first use: it waits for the worker.

        `owner`: the sequence's owner, if it is not the connection's. Raises WorkerDiedError, SpaceError if
        memory is short, and the worker's error if it refuses the link.
        """
        key = address.worker, address.generation
        if (found := self._links.get(key)) is not None:
            return found
        with self._attaching:
            return self._links.get(key) or self._attach(key, address, vocabulary, vocab_size, owner)

    def _attach(
        self,
        key: tuple[int, int],
        address: WorkerAddress,
        vocabulary: int,
        vocab_size: int,
        owner: str | None,
    ) -> WorkerLink:
        num_rows, num_dense = self._rows
        layout = Layout(vocab_size, num_rows=num_rows, num_dense=num_dense)
        link = WorkerLink(self._number(), address, layout, self._live.copying)
        try:
            assert link.segment.file is not None
            self._control.call(
                "attach",
                [link.segment.file.fd],
                worker=key[0],
                generation=key[1],
                link=link.number,
                bell=link.bell.name,
                layout=layout.to_wire(),
                vocabulary=vocabulary,
                owner=owner,
            )
            link.attached()
            self._live.check_open()
        except BaseException:  # Ctrl-C as well, else the names would remain
            link.close()
            raise
        self._links[key] = link
        return link

    def close(self) -> None:
        """Closes all links."""
        with self._attaching:
            for link in self._links.values():
                link.close()
            self._links.clear()

    def let_go(self) -> None:
        """Closes links to workers that have ended, if no live sequence is there."""
        for key, link in list(self._links.items()):
            if link.gone and link not in self._live.values():
                del self._links[key]
                link.close()

    def _number(self) -> int:
        """Returns a number that no live link has; it is part of the numbers of children forked there."""
        used = {link.number for link in self.values()}
        for number in itertools.islice(self.numbers, LINK_NUMBERS):
            if number not in used:
                return number
        raise RuntimeFailure(
            f"this client has sequences in {len(used)} workers, which is the limit; free the sequences of "
            "workers that have ended"
        )
