"""Registered vocabularies: their number and bytes are limited, and those in use stay."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from aicirt.contract.errors import OwnerLimitError, SpaceError, VocabularyError
from aicirt.settings import DaemonSettings
from aicirt.supervisor.fair_queue import compilations
from aicirt.supervisor.vocabularies import RegisteredVocabulary, Vocabularies
from aicirt.vocab.image import fingerprint_of


def spec(name: str, extra: int = 0) -> dict[str, Any]:
    tokens = [bytes([i]) for i in range(256)]
    return {
        "tokens": tokens,
        "special": {},
        "eos": [0],
        "vocab_size": 256,
        "tokenizer_kind": "longest",
        "tokenizer_data": name.encode() + b"x" * extra,
    }


class Registry:
    def __init__(self, **limits: Any) -> None:
        settings = DaemonSettings(**limits)
        self.removed: list[RegisteredVocabulary] = []
        #: fingerprints of registered vocabularies by name
        self.fingerprints: dict[str, str] = {}
        self.compilations = compilations(settings, time.monotonic)
        self.vocabularies = Vocabularies(settings, self.compilations.turn, self.removed.append)

    async def register(self, name: str, owner: str, client: int, extra: int = 0) -> RegisteredVocabulary:
        values = spec(name, extra)
        self.fingerprints[name] = fingerprint_of(values)
        return await self.vocabularies.register(self.fingerprints[name], values, owner, client)

    def name(self, entry: RegisteredVocabulary) -> str:
        (name,) = (
            name for name, fingerprint in self.fingerprints.items() if fingerprint == entry.fingerprint
        )
        return name

    def find(self, name: str, client: int) -> RegisteredVocabulary | None:
        return self.vocabularies.find(self.fingerprints[name], client)

    @property
    def names(self) -> list[str]:
        return [self.name(entry) for entry in self.vocabularies.all()]


def test_least_recently_used_vocabulary_without_users_is_removed() -> None:
    async def main() -> None:
        registry = Registry(max_vocabularies=3)
        first = await registry.register("a", "o", 1)
        await registry.register("b", "o", 2)
        await registry.register("c", "o", 3)
        registry.vocabularies.forget_client(2)
        registry.vocabularies.forget_client(1)
        assert registry.find("a", 1) is first, "used again"
        last = await registry.register("d", "p", 4)
        assert registry.names == ["c", "a", "d"]
        assert [registry.name(entry) for entry in registry.removed] == ["b"]
        with pytest.raises(VocabularyError, match="number 2, or it was evicted: register it again"):
            registry.vocabularies.get(2)
        assert registry.find("b", 5) is None
        assert last.id == 4, "numbers are not used again"
        with pytest.raises(SpaceError, match=r"would have 4 vocabularies in use; .* 3 \(max_vocabularies\)"):
            await registry.register("e", "q", 5)
        assert registry.names == ["c", "a", "d"]
        registry.vocabularies.forget_client(3)
        assert registry.name(await registry.register("e", "q", 5)) == "e"

    asyncio.run(main())


def test_number_of_vocabularies_per_owner_is_limited() -> None:
    async def main() -> None:
        registry = Registry(owner_vocabularies=2)
        await registry.register("a", "o", 1)
        await registry.register("b", "o", 2)
        with pytest.raises(OwnerLimitError, match=r"owner 'o' would have 3 .* 2 \(owner_vocabularies\)"):
            await registry.register("c", "o", 3)
        assert await registry.register("a", "o", 3), "an equal vocabulary counts once"
        await registry.register("c", "p", 4)
        registry.vocabularies.forget_client(2)
        await registry.register("d", "o", 2)
        assert registry.names == ["a", "c", "d"]

    asyncio.run(main())


def test_bytes_are_limited() -> None:
    async def main() -> None:
        size = (await Registry().register("x", "o", 1)).nbytes
        registry = Registry(owner_vocabulary_bytes=3 * size, vocabulary_bytes=4 * size)
        with pytest.raises(OwnerLimitError, match=r"bytes in use.*owner_vocabulary_bytes") as refused:
            await registry.register("large", "o", 1, 3 * size)
        assert refused.value.detail["limit"] == 3 * size
        await registry.register("a", "o", 1)
        await registry.register("b", "o", 2, size)
        with pytest.raises(SpaceError, match=r"this aicirt .*\(vocabulary_bytes\)"):
            await registry.register("c", "p", 3, size)
        registry.vocabularies.forget_client(2)
        await registry.register("c", "p", 3, size)
        assert registry.names == ["a", "c"]
        assert registry.vocabularies.stats() == {"kept": 2, "bytes": 3 * size}

    asyncio.run(main())


def test_vocabulary_that_clients_wait_for_is_not_removed() -> None:
    async def main() -> None:
        registry = Registry(max_vocabularies=2)
        names = [f"v{number}" for number in range(4)]
        found = await asyncio.gather(
            *(registry.register(name, "o", number) for number, name in enumerate(names)),
            return_exceptions=True,
        )
        kept = [entry for entry in found if isinstance(entry, RegisteredVocabulary)]
        assert len(kept) == 2 and all(registry.vocabularies.get(entry.id) is entry for entry in kept)
        assert all(isinstance(entry, (RegisteredVocabulary, SpaceError)) for entry in found)

    asyncio.run(main())


def test_building_a_vocabulary_counts_as_compile_time() -> None:
    async def main() -> None:
        registry = Registry(owner_compile_s=0.02, owner_vocabularies=2000, max_vocabularies=4000)

        async def register(owner: str, number: int) -> None:
            await registry.register(f"{owner}{number}", owner, number)

        async def fail(owner: str, number: int) -> None:
            bad = {**spec(f"{owner}{number}"), "eos": [9999]}
            with pytest.raises(VocabularyError):
                await registry.vocabularies.register(fingerprint_of(bad), bad, owner, number)

        for owner, work in (("o", register), ("p", fail)):
            with pytest.raises(OwnerLimitError, match=r"\(owner_compile_s\)"):
                for number in range(1000):
                    await work(owner, number)
        await registry.register("b", "q", 3)

    asyncio.run(main())


def test_claimed_fingerprints_are_verified() -> None:
    """A client that claims another vocabulary's fingerprint gets an error; other clients are not affected."""

    async def main() -> None:
        registry = Registry()
        honest = fingerprint_of(spec("victim"))
        claims = [("mallory", spec("planted")), ("victim", spec("victim")), ("mallory", spec("planted"))]
        planted, victims, again = await asyncio.gather(
            *(
                registry.vocabularies.register(honest, values, owner, client)
                for client, (owner, values) in enumerate(claims)
            ),
            return_exceptions=True,
        )
        for refused in (planted, again):
            assert isinstance(refused, VocabularyError) and "fingerprint differs" in refused.message
        assert isinstance(victims, RegisteredVocabulary) and victims.fingerprint == honest
        assert victims.tokenizer_bytes == len("victim") and registry.vocabularies.all() == [victims]
        for broken in ({}, {"tokens": 7}, {"eos": None}, {"special": [1]}, {"tokenizer_kind": 1}):
            with pytest.raises(VocabularyError, match="cannot be used"):
                values = {**spec("x"), **broken} if broken else {}
                await registry.vocabularies.register(honest, values, "mallory", 9)

    asyncio.run(main())
