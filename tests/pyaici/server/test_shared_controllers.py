"""Controllers of a shared store at a replica: fetched once, kept as far as they fit, and while it is away."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from pathlib import Path

import pytest

from aicirt.contract.errors import OwnerLimitError, UnknownControllerError
from aicirt.contract.modules import ControllerInfo, StoredScript
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
            shared.put(info, wasm, "ada", limit=1 << 30)
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
            kept = {info.id for info in runtime.list() if f"{CACHE_OWNER} ada" in info.owners}
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
        shared.put(info, wasm, "ada", limit=1 << 30)
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
            store._names["mine"] = 0.0, store._names["mine"][1]
            monkeypatch.setattr("pyaici.server.shared_controllers._PATIENT_S", 0.01)
            there = threading.Event()
            monkeypatch.setattr(shared, "resolve", lambda name: (there.wait(), resolve(name))[1])
            assert await store.find("mine", ADA) == info.id, "a store that is slow is not waited for"
            there.set()
            await asyncio.gather(*store._fetching.values())
            monkeypatch.undo()
            store._names.clear()
            shared.untag("mine", "ada")
            with pytest.raises(UnknownControllerError):
                await store.find("mine", ADA)

        asyncio.run(main())


def test_the_limits_of_owners_are_those_of_aicirt(tmp_path: Path) -> None:
    """And they count what is in the store: what aicirt has is a cache, for each user."""
    shared = SharedStore(str(tmp_path), 1 << 20)
    limits = {"owner_tags": 1, "owner_upload_bytes": 2 * MIN_UPLOAD}
    with Runtime(workers=1, limits=limits) as runtime:
        runtime.register(small_vocabulary())
        store = SharedControllers(runtime, ServerSettings(), shared)

        async def main() -> None:
            first, second, third = modules(3)
            id = (await store.upload(first, ADA)).id
            await store.upload(second, ADA)
            await store.tag(id, "mine", ADA)
            with pytest.raises(OwnerLimitError, match="owner_tags"):
                await store.tag(id, "other", ADA)
            with pytest.raises(OwnerLimitError, match="owner_upload_bytes"):
                await store.upload(third, ADA)
            await store.upload(third, User("bob", Role.RUN))
            await store.untag("mine", ADA)
            shared.remove(id, "ada")  # as another replica does
            await store.upload(third, ADA)

        asyncio.run(main())


def test_the_interpreter_of_a_script_is_a_module(tmp_path: Path) -> None:
    """Scripts that are each other's interpreters would be fetched without end."""
    shared = SharedStore(str(tmp_path), 1 << 20)
    id = "0" * 64
    for _ in range(2):
        packed = StoredScript(id, "python", "script.py", "x").pack()
        id = hashlib.sha256(packed).hexdigest()
        shared.put(ControllerInfo(id, len(packed), script="script.py"), packed)
    with Runtime(workers=1) as runtime:
        store = SharedControllers(runtime, ServerSettings(), shared)
        with pytest.raises(SharedStoreError, match="no module"):
            asyncio.run(store.find(id, ADA))
