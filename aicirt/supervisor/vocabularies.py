"""Vocabularies that clients have registered: images in sealed memory files."""

from __future__ import annotations

import asyncio
import concurrent.futures
import fcntl
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aicirt.errors import VocabularyError
from aicirt.vocab.image import build_image

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


@dataclass(slots=True)
class RegisteredVocabulary:
    """One tokenizer's image and its tokenizer, both as descriptors for the workers."""

    id: int
    fingerprint: str
    vocab_size: int
    image_fd: int
    image_bytes: int
    tokenizer_kind: str
    tokenizer_fd: int
    tokenizer_bytes: int


class Vocabularies:
    """All of them, by number and by fingerprint; equal ones are kept once."""

    def __init__(self) -> None:
        self._by_id: dict[int, RegisteredVocabulary] = {}
        self._by_fingerprint: dict[str, asyncio.Task[RegisteredVocabulary]] = {}

    def find(self, fingerprint: str) -> RegisteredVocabulary | None:
        """The registered one with this fingerprint, if it is ready."""
        task = self._by_fingerprint.get(fingerprint)
        return task.result() if task is not None and task.done() and not task.exception() else None

    def get(self, number: int) -> RegisteredVocabulary:
        """Raises VocabularyError if there is none with this number."""
        try:
            return self._by_id[number]
        except KeyError:
            raise VocabularyError(f"no vocabulary is registered as {number}") from None

    async def register(self, fingerprint: str, spec: dict[str, Any]) -> RegisteredVocabulary:
        """Builds the image (seconds for large vocabularies, in a thread). Raises VocabularyError."""
        task = self._by_fingerprint.get(fingerprint)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._build(fingerprint, spec))
            self._by_fingerprint[fingerprint] = task
            task.add_done_callback(lambda task: self._drop_failed(fingerprint, task))
        return await asyncio.shield(task)

    def all(self) -> list[RegisteredVocabulary]:
        """Every ready one."""
        return list(self._by_id.values())

    def _drop_failed(self, fingerprint: str, task: asyncio.Task[RegisteredVocabulary]) -> None:
        """Also if nobody waits for it any more."""
        if task.cancelled() or task.exception() is not None:
            del self._by_fingerprint[fingerprint]

    async def _build(self, fingerprint: str, spec: dict[str, Any]) -> RegisteredVocabulary:
        tokenizer = spec["tokenizer_data"]
        try:
            image = await _in_thread(
                lambda: build_image(
                    spec["tokens"],
                    special=spec["special"],
                    eos=spec["eos"],
                    bos=spec.get("bos"),
                    pad=spec.get("pad"),
                    unk=spec.get("unk"),
                    vocab_size=spec["vocab_size"],
                )
            )
        except (KeyError, TypeError, ValueError) as error:
            raise VocabularyError(f"the vocabulary cannot be used: {error!r}") from error
        entry = RegisteredVocabulary(
            id=len(self._by_id) + 1,
            fingerprint=fingerprint,
            vocab_size=spec["vocab_size"],
            image_fd=sealed_file(f"aici-vocabulary-{fingerprint[:8]}", image),
            image_bytes=len(image),
            tokenizer_kind=spec["tokenizer_kind"],
            tokenizer_fd=sealed_file(f"aici-tokenizer-{fingerprint[:8]}", tokenizer),
            tokenizer_bytes=len(tokenizer),
        )
        self._by_id[entry.id] = entry
        return entry


def sealed_file(name: str, data: bytes) -> int:
    """A memory file that nobody can change any more: a later write would show through in every guest."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, len(data))
    view = memoryview(data)
    at = 0
    while at < len(view):
        at += os.pwrite(fd, view[at : at + (1 << 26)], at)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd


async def _in_thread(function: Callable[[], bytes]) -> bytes:
    """Runs it in a thread; unlike with `asyncio.to_thread` the process can end before it has ended."""
    done: concurrent.futures.Future[bytes] = concurrent.futures.Future()
    done.set_running_or_notify_cancel()

    def work() -> None:
        try:
            done.set_result(function())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return await asyncio.wrap_future(done)
