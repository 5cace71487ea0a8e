"""The list of modules over the control socket, and the quotas of owners, which persist across restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from aicirt.contract.errors import OwnerLimitError, ProtocolError
from aicirt.contract.modules import StoredScript
from aicirt.settings import MIN_UPLOAD
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime
from tests.aicirt.modules.test_listing import with_exports
from tests.aicirt.modules.wat import small_module
from tests.simulation import World

from .conftest import thoroughly_real


def scripts(interpreter: str, count: int) -> list[StoredScript]:
    return [StoredScript(interpreter, "python", "s", f"# {number}") for number in range(count)]


def test_uploads_with_huge_names_do_not_break_the_list(world: World, tmp_path: Path) -> None:
    """Regression: 17 modules with 16 MB of names made the reply larger than a frame, and listing failed."""
    with Daemon(workers=1, store=tmp_path) as daemon, Runtime(daemon.socket_path) as runtime:
        ids = [runtime.upload(with_exports(450, 130 + number)).id for number in range(3)]
        with Runtime(daemon.socket_path, owner="victim") as victim:
            found = victim.list()
            assert [info.id for info in found] == sorted(ids)
            assert sum(info.nbytes for info in found) < 40_000
            assert victim.health()["modules"] == 3


@thoroughly_real
def test_a_list_comes_in_pages(world: World | None, tmp_path: Path) -> None:
    with Daemon(workers=1, store=tmp_path) as daemon, Runtime(daemon.socket_path, owner="ann") as runtime:
        interpreter = runtime.upload(small_module()).id
        ids = [runtime.upload_script(script).id for script in scripts(interpreter, 260)]
        ids = sorted([interpreter, *ids])
        assert [info.id for info in runtime.list()] == ids
        first = runtime.list_page()
        assert [info.id for info in first] == ids[:256]
        assert [info.id for info in runtime.list_page(first[-1].id)] == ids[256:]
        assert runtime.list_page(ids[-1]) == [] == runtime.list_page(found_by="bob")
        assert len(runtime.list_page(found_by="ann")) == 256
        assert len(runtime._control.call("list", limit=1 << 40)) == 256
        for wrong in ({"after": 7}, {"limit": "many"}, {"found_by": [1]}):
            with pytest.raises(ProtocolError, match="invalid arguments for 'list'"):
                runtime._control.call("list", **wrong)


def test_quotas_persist_across_restarts(world: World, tmp_path: Path) -> None:
    limits = {"owner_upload_bytes": 3 * MIN_UPLOAD}
    ids: list[str] = []
    for turns in ((0, 1), (2,)):
        with (
            Daemon(workers=1, store=tmp_path, limits=limits) as daemon,
            Runtime(daemon.socket_path, owner="ann") as ann,
            Runtime(daemon.socket_path, owner="bob") as bob,
        ):
            ids += [ann.upload(small_module(turn)).id for turn in turns]
            assert ann.upload(small_module(0)).id == ids[0], "a known module must not count again"
    with Daemon(workers=1, store=tmp_path, limits=limits) as daemon:
        with Runtime(daemon.socket_path, owner="ann") as ann, Runtime(daemon.socket_path, owner="bob") as bob:
            with pytest.raises(OwnerLimitError, match=r"count 196608 bytes, .* limit is 196608 \(") as caught:
                ann.upload(small_module(3))
            assert caught.value.detail == {"setting": "owner_upload_bytes", "limit": 196608}
            assert bob.upload(small_module(3))
            assert ann.remove(ids[0])
            assert ann.upload(small_module(4))


def test_tags_of_an_owner_are_limited(world: World, tmp_path: Path) -> None:
    with (
        Daemon(workers=1, store=tmp_path, limits={"owner_tags": 2}) as daemon,
        Runtime(daemon.socket_path, owner="ann") as ann,
        Runtime(daemon.socket_path, owner="bob") as bob,
    ):
        module = ann.upload(small_module()).id
        for tag in ("one", "two", "two"):
            ann.tag(module, tag)
        with pytest.raises(OwnerLimitError, match=r"has 2 tags; the limit is 2 \(owner_tags\)"):
            ann.tag(module, "three")
        bob.tag(module, "three")
        ann.untag("one")
        ann.tag(module, "four")
