"""Controllers of a shared store at a replica: fetched once, kept as far as they fit, and while it is away."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from aicirt.contract.errors import UnknownControllerError
from aicirt.contract.modules import ControllerInfo
from aicirt.settings import MIN_UPLOAD
from pyaici.bundled import find_controller
from pyaici.client.runtime import Runtime
from pyaici.recording.vocabulary import small_vocabulary
from pyaici.server.http.users import Role, User
from pyaici.server.settings import ServerSettings
from pyaici.server.shared_controllers import CACHE_OWNER, SharedControllers
from pyaici.server.shared_store import Entry, SharedStore, SharedStoreError

ADA = User("ada", Role.RUN)


def modules(number: int) -> list[bytes]:
    """Returns modules that differ by the length of a section without a meaning."""
    wasm = find_controller("yesno").read_bytes()
    return [wasm + bytes([0, length, 0, *[0] * (length - 1)]) for length in range(1, number + 1)]


def test_a_replica_keeps_what_is_used_and_fetches_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = SharedStore(str(tmp_path), 1 << 20)
    fetched: list[str] = []
    content = shared.content
    monkeypatch.setattr(shared, "content", lambda entry: (fetched.append(entry.id), content(entry))[1])
    with Runtime(workers=1, limits={"owner_upload_bytes": 2 * MIN_UPLOAD}) as runtime:
        runtime.register(small_vocabulary())
        ids = []
        for wasm in modules(3):  # as another replica would have put them there
            info = runtime.upload(wasm, owner="elsewhere")
            runtime.remove(info.id, owner="elsewhere")
            shared.put(info, wasm, "ada")
            ids.append(info.id)
        store = SharedControllers(runtime, ServerSettings(), shared)

        async def main() -> None:
            first, second, third = ids
            assert await asyncio.gather(*[store.find(first, ADA) for _ in range(5)]) == [first] * 5
            await store.find(second, ADA)
            await store.find(first, ADA)
            assert fetched == [first, second]
            await store.find(third, ADA)  # in place of the second one, which was used least recently
            await store.find(first, ADA)
            assert fetched == [first, second, third]
            kept = {info.id for info in runtime.list() if CACHE_OWNER in info.owners}
            assert kept == {first, third}
            await store.find(second, ADA)
            assert fetched == [first, second, third, second]

        asyncio.run(main())


def test_names_stay_while_the_store_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = SharedStore(str(tmp_path), 1 << 20)
    monkeypatch.setattr("pyaici.server.shared_controllers._FRESH_S", 0.0)
    resolve = shared.resolve
    asked: list[str] = []

    def away(name: str) -> Entry:
        asked.append(name)
        raise SharedStoreError("no network")

    with Runtime(workers=1) as runtime:
        runtime.register(small_vocabulary())
        (wasm,) = modules(1)
        info: ControllerInfo = runtime.upload(wasm, owner="ada")
        shared.put(info, wasm, "ada")
        shared.tag("mine", info.id, "ada", 10)
        store = SharedControllers(runtime, ServerSettings(), shared)

        async def main() -> None:
            assert await store.find("mine", ADA) == info.id
            monkeypatch.setattr(shared, "resolve", away)
            for _ in range(3):
                assert await store.find("mine", ADA) == info.id
            assert asked == ["mine"], "a store that is away is not asked for each request"
            with pytest.raises(SharedStoreError):
                await store.find("unknown", ADA)
            monkeypatch.setattr(shared, "resolve", resolve)
            monkeypatch.setattr("pyaici.server.shared_controllers.time.monotonic", lambda: 1e12)
            shared.untag("mine", "ada")
            with pytest.raises(UnknownControllerError):
                await store.find("mine", ADA)

        asyncio.run(main())
