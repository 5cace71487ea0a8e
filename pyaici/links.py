"""The workers that a client is attached to."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, ValuesView
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import AiciError, RuntimeFailure
from aicirt.contract.messages import LINK_NUMBERS
from aicirt.ipc.segment import Layout
from pyaici.link import WorkerLink

if TYPE_CHECKING:
    from pyaici.control import Control
    from pyaici.sequences import Sequences


class Links:
    """One `WorkerLink` for each worker that this client has had sequences in, by (worker, generation)."""

    def __init__(self, control: Control, live: Sequences, num_rows: int, num_dense: int) -> None:
        self._control = control
        self._live = live
        self._rows = num_rows, num_dense
        self._links: dict[tuple[int, int], WorkerLink] = {}
        self.numbers: Iterator[int] = itertools.cycle(range(LINK_NUMBERS))

    def __len__(self) -> int:
        return len(self._links)

    def values(self) -> ValuesView[WorkerLink]:
        """All of them."""
        return self._links.values()

    def attach(
        self, placed: dict[str, Any], vocabulary: int, vocab_size: int, owner: str | None = None
    ) -> WorkerLink:
        """The link to a worker as the supervisor describes it, made at its first use.

        `owner`: for whom, if not the connection's. Raises WorkerDiedError, SpaceError if memory is short, and
        what the worker refuses it for.
        """
        self._let_go()
        key = placed["worker"], placed["generation"]
        found = self._links.get(key)
        if found is not None:
            return found
        num_rows, num_dense = self._rows
        layout = Layout(vocab_size, num_rows=num_rows, num_dense=num_dense)
        link = WorkerLink(self._number(), *key, placed["pid"], placed["bell"], layout)
        try:
            self._control.call(
                "attach",
                worker=key[0],
                generation=key[1],
                link=link.number,
                segment=link.segment.name,
                bell=link.bell.name,
                layout=layout.to_wire(),
                vocabulary=vocabulary,
                owner=owner,
            )
            link.attached()
        except AiciError:
            link.close()
            raise
        self._links[key] = link
        return link

    def close(self) -> None:
        """Closes all."""
        for link in self._links.values():  # one may hold rows of another one, from which a sequence has moved
            link.rows.close()
        for link in self._links.values():
            link.close()
        self._links.clear()

    def _let_go(self) -> None:
        """Closes those to workers that have ended, when nothing lives there, and nothing that has moved away
        still has a row there."""
        for key, link in list(self._links.items()):
            if not link.gone or link in self._live.values():
                continue
            if not any(other.rows.has_of(link.rows) for other in self._links.values()):
                del self._links[key]
                link.close()

    def _number(self) -> int:
        """One that no live link has, as it is a part of the numbers of the children that are forked there."""
        used = {link.number for link in self._links.values()}
        # some of these may have moved, and the worker that has numbered them have ended
        used |= {seq >> 24 & LINK_NUMBERS - 1 for seq in self._live if seq >> 31}
        for number in itertools.islice(self.numbers, LINK_NUMBERS):
            if number not in used:
                return number
        raise RuntimeFailure(
            f"this client has sequences in {len(used)} workers, which is the most: free those whose worker "
            "has ended"
        )
