"""`--isolate-owners`: each worker and each builder serves only one owner."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from aicirt.contract.abi import Verb
from aicirt.contract.errors import ArgumentError, RuntimeFailure, SpaceError
from aicirt.contract.messages import StepInput
from lab.system.processes import family, left_behind
from lab.system.waiting import wait_until
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime
from tests.simulation import World

from .conftest import VOCABULARY, Player, real, thoroughly_real

Join = Callable[[str], Runtime]


@pytest.fixture
def join(world: World | None, tmp_path: Path) -> Iterator[Join]:
    with ExitStack() as stack:
        options, limits = ["--isolate-owners"], {"worker_idle_s": 3}
        daemon = stack.enter_context(Daemon(workers=2, store=tmp_path, limits=limits, options=options))
        found = {} if world else family(daemon.pid)

        def join(owner: str) -> Runtime:
            runtime = stack.enter_context(Runtime(daemon.socket_path, owner=owner))
            runtime.register(VOCABULARY)
            return runtime

        yield join
        found |= {} if world else family(daemon.pid)
    assert left_behind(found) == []


def owners(runtime: Runtime) -> list[str]:
    return [worker["owner"] for worker in runtime.health()["workers"]]


def works(runtime: Runtime, seq: int) -> bool:
    return runtime.begin_step([StepInput(seq)]).wait().mid[seq].verb == Verb.SAMPLE


@real
def test_each_owner_has_processes_of_its_own(join: Join, guest_wasm: Path) -> None:
    a, again, b = join("a"), join("a"), join("b")
    assert a.health()["workers"] == a.health()["builders"] == [], "no owner needs one yet"
    module = a.upload(guest_wasm).id
    seqs = [(runtime, runtime.instantiate(module, "ok")) for runtime in (a, again, b)]
    assert all(works(runtime, seq) for runtime, seq in seqs)
    health = a.health()
    assert [(w["owner"], w["sequences"]) for w in health["workers"]] == [("a", 2), ("b", 1)]
    assert [(w["owner"], w["built"]) for w in health["builders"]] == [("a", 1), ("b", 1)]
    assert health["builder"] is None
    assert len({process["pid"] for process in (*health["workers"], *health["builders"])}) == 4
    with pytest.raises(ArgumentError):
        b.instantiate(module, "init_refuse")


def test_a_client_cannot_attach_to_the_worker_of_another_owner(join: Join, guest_wasm: Path) -> None:
    a, b = join("a"), join("b")
    module = a.upload(guest_wasm).id
    seqs = [runtime.instantiate(module, "ok") for runtime in (a, b)]
    of_a = next(worker for worker in a.health()["workers"] if worker["owner"] == "a")
    key = {"worker": of_a["index"], "generation": of_a["generation"]}
    nothing = {"link": 9, "layout": [], "vocabulary": 1}
    with pytest.raises(RuntimeFailure, match="serves another owner than 'b'"):
        b._control.call("attach", **key, **nothing)
    assert all(works(runtime, seq) for runtime, seq in zip((a, b), seqs, strict=True))


@thoroughly_real
def test_a_client_that_acts_for_many_owners_uses_the_workers_of_each(join: Join, guest_wasm: Path) -> None:
    server = join("server")
    module = server.upload(guest_wasm, owner="a").id
    of_a, of_b = (server.instantiate(module, "ok", owner=owner) for owner in ("a", "b"))
    assert [(w["owner"], w["sequences"]) for w in server.health()["workers"]] == [("a", 1), ("b", 1)]
    assert {answer.verb for answer in Player(server).answers(of_a, of_b).values()} == {Verb.SAMPLE}
    with pytest.raises(SpaceError, match="all 2 workers serve other owners"):
        server.instantiate(module, "ok")
    assert works(server, of_a) and works(server, of_b)


def test_a_further_owner_must_wait_until_a_worker_is_idle(join: Join, guest_wasm: Path) -> None:
    a, b, c = join("a"), join("b"), join("c")
    module = a.upload(guest_wasm).id
    first, second = a.instantiate(module, "ok"), b.instantiate(module, "ok")
    with pytest.raises(SpaceError, match=r"all 2 workers serve other owners: wait until .*--workers"):
        c.instantiate(module, "ok")
    assert works(a, first) and works(b, second)
    b.free([second])
    wait_until(lambda: owners(c) == ["a"])
    third = c.instantiate(module, "ok")
    assert works(c, third) and owners(c) == ["a", "c"]
    assert works(a, first), "a worker with sequences stays, even if they are idle"
    c.free([third])
    wait_until(lambda: owners(c) == ["a"])
    fourth = b.instantiate(module, "ok")
    assert works(b, fourth), "an owner who returns gets a new worker"


@real
def test_dead_workers_and_builders_are_replaced(join: Join, guest_wasm: Path) -> None:
    a, b = join("a"), join("b")
    module = a.upload(guest_wasm).id
    kept = b.instantiate(module, "ok")
    for kind in ("workers", "builders"):
        a.instantiate(module, f"ok {kind}")
        victim = next(p["pid"] for p in a.health()[kind] if p["owner"] == "a")
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda kind=kind, victim=victim: victim not in [p["pid"] for p in a.health()[kind]])
        wait_until(lambda: sorted(owners(a)) == ["a", "b"])

        def again(number: int) -> bool:
            try:
                return works(a, a.instantiate(module, f"ok {number}"))
            except RuntimeFailure:
                return False

        wait_until(lambda: again(time.monotonic_ns() % 10**9))
    assert works(b, kept)


@real
def test_a_builder_with_a_waiting_request_is_not_idle(join: Join, guest_wasm: Path) -> None:
    """The builder is slow to answer, as on a busy machine."""
    a = join("a")
    module = a.upload(guest_wasm).id
    a.free([a.instantiate(module, "ok")])
    (builder,) = (p["pid"] for p in a.health()["builders"] if p["owner"] == "a")
    os.kill(builder, signal.SIGSTOP)
    with ThreadPoolExecutor() as threads:
        try:
            waited = threads.submit(a.instantiate, module, "ok later")
            time.sleep(5)  # longer than worker_idle_s
        finally:
            os.kill(builder, signal.SIGCONT)
        assert works(a, waited.result())


def test_help_explains_isolated_owners(capsys: pytest.CaptureFixture[str]) -> None:
    from aicirt.__main__ import main

    with pytest.raises(SystemExit):
        main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "give each owner a separate worker" in text and "worker_idle_s" in text
