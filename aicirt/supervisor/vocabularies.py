"""Vocabularies that clients have registered: images in sealed memory files."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aicirt.contract.errors import MALFORMED, OwnerLimitError, SpaceError, VocabularyError
from aicirt.modules.store import FairTurns
from aicirt.settings import DaemonSettings
from aicirt.system.files import Descriptor, sealed_bytes
from aicirt.system.threads import Result, in_thread
from aicirt.vocab.image import build_image, fingerprint_of


@dataclass(slots=True)
class RegisteredVocabulary:
    """A vocabulary's image and its tokenizer, both as files for the workers.

    Holders of a reference can use it even after the registry has evicted it.
    """

    id: int
    fingerprint: str
    #: the owner that registered it first: it counts against their limits
    owner: str
    vocab_size: int
    image: Descriptor
    image_bytes: int
    tokenizer_kind: str
    tokenizer: Descriptor
    tokenizer_bytes: int

    @property
    def nbytes(self) -> int:
        """Bytes of both files."""
        return self.image_bytes + self.tokenizer_bytes


class Vocabularies:
    """All registered vocabularies, by number and by fingerprint; equal ones are kept once.

    To make room, those that no client uses are evicted, the least recently used first.
    """

    def __init__(
        self, settings: DaemonSettings, turns: FairTurns, given_up: Callable[[RegisteredVocabulary], None]
    ) -> None:
        """Images are built in `turns`; `given_up` is called with each vocabulary that is evicted."""
        self._settings = settings
        self._turns = turns
        self._given_up = given_up
        self._numbers = itertools.count(1)
        #: the least recently used first
        self._by_id: OrderedDict[int, RegisteredVocabulary] = OrderedDict()
        self._by_fingerprint: dict[str, asyncio.Task[RegisteredVocabulary]] = {}
        #: client -> number of the vocabulary that it uses
        self._users: dict[int, int] = {}
        #: by fingerprint: number of clients that are about to use it
        self._arriving: Counter[str] = Counter()

    def find(self, fingerprint: str, client: int) -> RegisteredVocabulary | None:
        """Returns the vocabulary with this fingerprint, if it is ready; the client uses it from now on."""
        task = self._by_fingerprint.get(fingerprint)
        if task is None or not task.done() or task.exception():
            return None
        self._use(task.result(), client)
        return task.result()

    def get(self, number: int) -> RegisteredVocabulary:
        """Returns the vocabulary with this number. Raises VocabularyError if there is none."""
        try:
            return self._by_id[number]
        except KeyError:
            raise VocabularyError(
                f"no vocabulary is registered under the number {number}, or it was evicted: register it again"
            ) from None

    async def register(
        self, fingerprint: str, spec: dict[str, Any], owner: str, client: int
    ) -> RegisteredVocabulary:
        """Builds the image (seconds for large vocabularies, in a thread); the client uses it from now on.

        Computes the fingerprint first: no client can register one vocabulary as another, or cause an error
        for others that wait for it. Raises VocabularyError, OwnerLimitError, or SpaceError if there are too
        many and all are in use.
        """
        found = await self._in_turn(owner, spec, fingerprint_of)
        if found != fingerprint:
            raise VocabularyError("the vocabulary's fingerprint differs from the one that the client sent")
        task = self._by_fingerprint.get(fingerprint)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._build(fingerprint, spec, owner))
            self._by_fingerprint[fingerprint] = task
            task.add_done_callback(lambda task: self._drop_failed(fingerprint, task))
        self._arriving[fingerprint] += 1
        try:
            entry = await asyncio.shield(task)
            self._use(entry, client)
        finally:
            self._arriving[fingerprint] -= 1
            self._arriving += Counter()  # drops fingerprints with none
        return entry

    def forget_client(self, client: int) -> None:
        """Records that a client has gone."""
        self._users.pop(client, None)

    def all(self) -> list[RegisteredVocabulary]:
        """Returns every ready vocabulary, the least recently used first."""
        return list(self._by_id.values())

    def stats(self) -> dict[str, int]:
        """Returns the number of vocabularies and their bytes."""
        return {"kept": len(self._by_id), "bytes": sum(entry.nbytes for entry in self._by_id.values())}

    def _use(self, entry: RegisteredVocabulary, client: int) -> None:
        self._users[client] = entry.id
        if entry.id in self._by_id:
            self._by_id.move_to_end(entry.id)

    def _drop_failed(self, fingerprint: str, task: asyncio.Task[RegisteredVocabulary]) -> None:
        """Drops a build that has failed, even if no caller waits for it."""
        if task.cancelled() or task.exception() is not None:
            del self._by_fingerprint[fingerprint]

    async def _build(self, fingerprint: str, spec: dict[str, Any], owner: str) -> RegisteredVocabulary:
        tokenizer = spec["tokenizer_data"]
        image = await self._in_turn(owner, spec, _image)
        self._make_room(owner, len(image) + len(tokenizer))
        entry = RegisteredVocabulary(
            id=next(self._numbers),
            fingerprint=fingerprint,
            owner=owner,
            vocab_size=spec["vocab_size"],
            image=Descriptor(sealed_bytes(f"aici-vocabulary-{fingerprint[:8]}", image)),
            image_bytes=len(image),
            tokenizer_kind=spec["tokenizer_kind"],
            tokenizer=Descriptor(sealed_bytes(f"aici-tokenizer-{fingerprint[:8]}", tokenizer)),
            tokenizer_bytes=len(tokenizer),
        )
        self._by_id[entry.id] = entry
        return entry

    async def _in_turn(
        self, owner: str, spec: dict[str, Any], work: Callable[[dict[str, Any]], Result]
    ) -> Result:
        """Runs `work(spec)` in a thread, in the owner's turn; charges its CPU time to the owner.

        Raises VocabularyError if `spec` is invalid.
        """
        seconds: list[float] = []

        def timed() -> Result:
            try:
                return work(spec)
            finally:
                seconds.append(time.thread_time())

        tokenizer = spec.get("tokenizer_data")
        async with self._turns(owner, len(tokenizer) if isinstance(tokenizer, bytes) else 0) as spent:
            try:
                return await in_thread(timed)
            except MALFORMED as error:
                problem = f"the vocabulary cannot be used: {type(error).__name__}: {str(error)[:500]}"
                raise VocabularyError(problem) from error
            finally:
                spent(sum(seconds))

    def _make_room(self, owner: str, nbytes: int) -> None:
        """Makes room for a vocabulary of `nbytes` of an owner. Raises OwnerLimitError or SpaceError."""
        settings = self._settings
        if found := self._reduce(
            [entry for entry in self.all() if entry.owner == owner],
            nbytes,
            (settings.owner_vocabularies, "owner_vocabularies"),
            (settings.owner_vocabulary_bytes, "owner_vocabulary_bytes"),
        ):
            too_much, limit = found
            raise OwnerLimitError(
                f"owner {owner!r} {too_much}: share vocabularies between clients, or close some clients",
                limit=limit,
            )
        if found := self._reduce(
            self.all(),
            nbytes,
            (settings.max_vocabularies, "max_vocabularies"),
            (settings.vocabulary_bytes, "vocabulary_bytes"),
        ):
            too_much, limit = found
            raise SpaceError(f"this aicirt {too_much}", limit=limit)

    def _reduce(
        self, entries: list[RegisteredVocabulary], nbytes: int, number: tuple[int, str], size: tuple[int, str]
    ) -> tuple[str, int] | None:
        """Evicts unused vocabularies, from the front of `entries`, until one more of `nbytes` fits.

        If all that are left are in use, evicts nothing and returns the limit that would be exceeded, in
        words and as a number.
        """
        used = set(self._users.values())
        spare = [e for e in entries if e.id not in used and not self._arriving[e.fingerprint]]
        count, total = len(entries) + 1, sum(entry.nbytes for entry in entries) + nbytes
        going: list[RegisteredVocabulary] = []
        while count > number[0] or total > size[0]:
            if not spare:
                what = f"{count} vocabularies" if count > number[0] else f"vocabularies of {total} bytes"
                limit, name = number if count > number[0] else size
                return f"would have {what} in use; the limit is {limit} ({name})", limit
            going.append(spare.pop(0))
            count, total = count - 1, total - going[-1].nbytes
        for entry in going:
            del self._by_id[entry.id], self._by_fingerprint[entry.fingerprint]
            self._given_up(entry)
        return None


def _image(spec: dict[str, Any]) -> bytes:
    return build_image(
        spec["tokens"],
        special=spec["special"],
        eos=spec["eos"],
        bos=spec.get("bos"),
        pad=spec.get("pad"),
        unk=spec.get("unk"),
        vocab_size=spec["vocab_size"],
        turns=spec.get("turns", b""),
    )
