"""Clients that share a daemon and act for different owners."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from aicirt.contract.abi import Verb
from aicirt.contract.errors import (
    ArgumentError,
    ModuleError,
    OwnerLimitError,
    ProtocolError,
    SpaceError,
    UnknownControllerError,
)
from aicirt.contract.messages import StepInput
from aicirt.settings import MIN_UPLOAD
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime
from pyaici.tokens import Vocabulary
from tests.simulation import World

from .conftest import VOCABULARY, Player, thoroughly_real

Join = Callable[..., Runtime]


@pytest.fixture
def join(world: World | None, guest_wasm: Path, tmp_path: Path) -> Iterator[Join]:
    limits = {
        "owner_sequences": 4,
        "owner_snapshot_bytes": 400_000,
        "owner_variable_bytes": 10_000,
        "owner_log_bytes": 5000,
        "owner_upload_bytes": max(MIN_UPLOAD, guest_wasm.stat().st_size) + 1000,
    }
    with ExitStack() as stack:
        daemon = stack.enter_context(Daemon(workers=1, limits=limits, store=tmp_path / "store"))

        def join(owner: str | None = None) -> Runtime:
            runtime = stack.enter_context(Runtime(daemon.socket_path, owner=owner))
            runtime.register(VOCABULARY)
            return runtime

        yield join


@thoroughly_real
def test_sequences_are_limited_for_all_clients_of_an_owner(join: Join, guest_wasm: Path) -> None:
    first, second, other = join("a"), join("a"), join("b")
    module = first.upload(guest_wasm).id
    seqs = [first.instantiate(module, "fork 3"), *(second.instantiate(module, "ok") for _ in range(2))]
    other_seqs = [other.instantiate(module, "ok") for _ in range(4)]
    third = first.instantiate(module, "ok")
    for runtime in (first, second):
        with pytest.raises(OwnerLimitError, match="'a' has 4 sequences in this worker; the limit is 4"):
            runtime.instantiate(module, "ok")
        with pytest.raises(OwnerLimitError):
            runtime.clone(third if runtime is first else seqs[1])
    first.begin_step([StepInput(seqs[0])]).wait()
    refused = first.begin_step([StepInput(seqs[0], [1])]).wait_pre()[seqs[0]]
    assert refused.verb == Verb.ERROR and isinstance(refused.error, OwnerLimitError)
    second.free(seqs[1:2])
    first.clone(third)
    assert all(answer.verb == Verb.SAMPLE for answer in Player(other).answers(*other_seqs).values())


def test_snapshots_of_one_owner_do_not_evict_those_of_another(join: Join, guest_wasm: Path) -> None:
    modest, greedy = join("modest"), join("greedy")
    module = modest.upload(guest_wasm).id
    modest.prepare(module, "ok")
    for number in range(40):
        greedy.prepare(module, f"ok {number}")
    built = modest.health()["builder"]["built"]
    modest.prepare(module, "ok")
    assert modest.health()["builder"]["built"] == built == 41
    greedy.prepare(module, "ok 39")
    greedy.prepare(module, "ok 0")
    assert greedy.health()["builder"]["built"] == 42, "the owner's own oldest snapshots must be evicted"


def test_the_limit_on_variables_covers_all_requests_of_an_owner(join: Join, guest_wasm: Path) -> None:
    a, again, b = join("a"), join("a"), join("b")
    module = a.upload(guest_wasm).id
    first = a.instantiate(module, "keep 6000")
    copy = a.clone(first)
    with pytest.raises(OwnerLimitError, match=r"'a' in this worker would take 12002 .*owner_variable_bytes"):
        again.instantiate(module, "keep 6000")
    assert again.instantiate(module, "keep 3000"), "there is room for smaller variables"
    assert b.instantiate(module, "keep 6000"), "other owners are not affected"
    a.free([first])
    with pytest.raises(OwnerLimitError):  # the copy still has the variables
        again.instantiate(module, "keep 6000")
    a.free([copy])
    last = a.instantiate(module, "keep 6000")
    growing = b.instantiate(module, "variable_flood")
    b.begin_step([StepInput(growing)]).wait()
    ended = b.begin_step([StepInput(growing, [1])]).wait().mid[growing]
    assert ended.verb == Verb.ERROR and isinstance(ended.error, OwnerLimitError)
    assert a.begin_step([StepInput(last)]).wait().mid[last].verb == Verb.SAMPLE
    (worker,) = a.health()["workers"]
    assert worker["counters"]["owner_limit"] == 3


def test_the_limit_on_waiting_output_covers_all_requests_of_an_owner(join: Join, guest_wasm: Path) -> None:
    a, again, b = join("a"), join("a"), join("b")
    module = a.upload(guest_wasm).id
    first, second, other = (runtime.instantiate(module, "say 4000") for runtime in (a, again, b))

    def output(runtime: Runtime, seq: int) -> str:
        return runtime.begin_step([StepInput(seq)]).wait().logs[seq]

    lost = "\n[3000 bytes of output dropped: over the limit of 5000 for all waiting output of owner 'a']\n"
    assert output(again, second) == "x" * 1000 + lost
    assert output(a, first) == output(b, other) == "x" * 4000
    for _ in range(3):  # freeing a sequence frees its waiting output
        a.free([a.instantiate(module, "say 4000")])
    assert output(a, a.instantiate(module, "say 4000")) == "x" * 4000
    (worker,) = a.health()["workers"]
    assert worker["counters"]["log_dropped"] == 1


def test_repeated_uploads_count_once(join: Join, guest_wasm: Path, tmp_path: Path) -> None:
    a, b = join("a"), join("b")
    wasm = guest_wasm.read_bytes()
    for _ in range(3):
        a.upload(wasm)
    # a custom section makes it a different module
    other = wasm + b"\0\x03\x02hi"
    with pytest.raises(OwnerLimitError, match="'a' has uploaded"):
        a.upload(other)
    with pytest.raises(ModuleError):
        b.upload(b"\0asm nonsense")
    b.upload(other)
    a.upload(other)
    b.upload(other)


def test_a_client_that_acts_for_many_owners_has_the_limits_of_each(join: Join, guest_wasm: Path) -> None:
    server, a = join("server"), join("a")
    module = server.upload(guest_wasm, owner="a").id
    first = server.instantiate(module, "fork 3", owner="a")
    seqs = [first, *(server.instantiate(module, "ok", owner="a") for _ in range(2))]
    last = a.instantiate(module, "ok")
    for start in (lambda: server.instantiate(module, "ok", owner="a"), lambda: a.instantiate(module, "ok")):
        with pytest.raises(OwnerLimitError, match="'a' has 4 sequences in this worker; the limit is 4"):
            start()
    with pytest.raises(OwnerLimitError, match="'a' has 4"):
        server.clone(seqs[1])
    others = [server.instantiate(module, "ok", owner=owner) for owner in ("b", "b", None, "b", "b")]
    with pytest.raises(OwnerLimitError, match="'b' has 4 sequences"):
        server.clone(others[0])
    server.clone(others[2])
    # both owners in one step: forks of one owner do not count for the other
    forks = server.instantiate(module, "fork 3", owner="c")
    server.begin_step([StepInput(seq) for seq in (first, forks)]).wait()
    verdicts = server.begin_step([StepInput(seq, [1]) for seq in (first, forks)]).wait_pre()
    assert isinstance(verdicts[first].error, OwnerLimitError)
    assert verdicts[forks].verb == Verb.FORK and len(verdicts[forks].children) == 2
    a.free([last])
    assert server.instantiate(module, "ok", owner="a")
    (worker,) = server.health()["workers"]
    assert worker["counters"]["owner_limit"] == 5


def test_variables_and_snapshots_count_for_the_named_owner(join: Join, guest_wasm: Path) -> None:
    server = join("server")
    module = server.upload(guest_wasm).id
    server.instantiate(module, "keep 6000", owner="a")
    with pytest.raises(OwnerLimitError, match="of owner 'a' in this worker"):
        server.instantiate(module, "keep 6000", owner="a")
    assert server.instantiate(module, "keep 6000", owner="b") and server.instantiate(module, "keep 6000")
    assert server.health()["builder"]["built"] == 3, "each owner must have a template of its own"
    with pytest.raises(ArgumentError):
        server.prepare(module, "init_refuse", owner="a")


def test_invalid_owner_names_are_refused(join: Join, guest_wasm: Path) -> None:
    server = join("server")
    module = server.upload(guest_wasm).id
    calls: list[Callable[[Any], object]] = [
        lambda owner: server.upload(guest_wasm, owner=owner),
        lambda owner: server.tag(module, "t", owner=owner),
        lambda owner: server.prepare(module, "ok", owner=owner),
        lambda owner: server.instantiate(module, "ok", owner=owner),
        lambda owner: server.untag("t", owner=owner),
        lambda owner: server.remove(module, owner=owner),
    ]
    for call, owner in itertools.product(calls, ("two\nlines", "x" * 65, 7)):
        with pytest.raises(ProtocolError, match="an owner's name has"):
            call(owner)


def test_uploads_and_tags_count_for_the_named_owner(join: Join, guest_wasm: Path) -> None:
    server, a = join("server"), join("a")
    wasm = guest_wasm.read_bytes()
    module = server.upload(wasm, owner="a")
    assert module.owners == ["a"] and module.created > 0
    with pytest.raises(OwnerLimitError, match="'a' has uploaded"):
        server.upload(wasm + b"\0\x03\x02ho", owner="a")
    assert server.upload(wasm, owner="b").owners == ["a", "b"]
    server.tag(module.id, "t", owner="a")
    with pytest.raises(ModuleError, match="belongs to 'a'"):
        server.untag("t", owner="b")
    with pytest.raises(ModuleError, match="belongs to 'a'"):
        server.tag(module.id, "t")
    assert a.describe("t") == server.describe(module.id) == server.list()[0]
    a.untag("t")
    with pytest.raises(UnknownControllerError, match="no controller is called 't'"):
        server.describe("t")


def test_a_removed_module_is_unknown_but_its_sequences_go_on(join: Join, guest_wasm: Path) -> None:
    server = join("server")
    module = server.upload(guest_wasm, owner="a").id
    server.upload(guest_wasm, owner="b")
    seq = server.instantiate(module, "ok", owner="a")
    server.prepare(module, "ok", owner="b")
    assert not server.remove(module, owner="a")
    assert server.instantiate(module, "ok", owner="a"), "an owner may use a module that another one uploaded"
    with pytest.raises(ModuleError, match="owner 'a' has not uploaded"):
        server.remove(module, owner="a")
    assert server.remove(module, owner="b")
    for owner in ("a", "b"):
        for ask in (server.prepare, server.instantiate):
            with pytest.raises(UnknownControllerError):
                ask(module, "ok", owner=owner)
    for change in (lambda: server.remove(module, owner="a"), lambda: server.tag(module, "late")):
        with pytest.raises(UnknownControllerError, match="no module"):
            change()
    assert server.health()["templates"]["kept"] == 0
    assert server.begin_step([StepInput(seq)]).wait().mid[seq].verb == Verb.SAMPLE
    copy = server.clone(seq)
    assert server.begin_step([StepInput(copy, [1])]).wait().mid[copy].verb == Verb.SAMPLE
    assert server.upload(guest_wasm, owner="c").owners == ["c"]
    again = server.instantiate(module, "ok", owner="a")
    assert server.begin_step([StepInput(again)]).wait().mid[again].verb == Verb.SAMPLE


def test_compilations_use_the_owners_compile_time(world: World, guest_wasm: Path, tmp_path: Path) -> None:
    limits = {"owner_compile_s": 0.001, "max_vocabularies": 1}
    with (
        Daemon(workers=1, limits=limits, store=tmp_path / "store") as daemon,
        Runtime(daemon.socket_path, owner="a") as a,
        Runtime(daemon.socket_path, owner="b") as b,
    ):
        wasm = guest_wasm.read_bytes()
        with pytest.raises(ModuleError):
            a.upload(b"\0asm nonsense")  # a refused module uses compile time too
        with pytest.raises(OwnerLimitError, match=r"owner_compile_s\): try again in 60 minutes"):
            a.upload(wasm)
        module = b.upload(wasm)
        assert a.upload(wasm).id == module.id, "a known module must not be compiled again"
        with pytest.raises(OwnerLimitError, match="compilations for owner 'b'"):
            b.register(VOCABULARY)
        health = a.health()
        assert health["counters"] == {"module": 1, "owner_limit": 2}
        assert health["compilations"] == {"running": 0, "waiting": 0}


def test_an_unused_vocabulary_makes_room_for_another(world: World, guest_wasm: Path, tmp_path: Path) -> None:
    with (
        Daemon(workers=1, limits={"max_vocabularies": 1}, store=tmp_path / "store") as daemon,
        Runtime(daemon.socket_path) as first,
    ):
        first.register(VOCABULARY)
        module = first.upload(guest_wasm).id
        seq = first.instantiate(module, "ok")
        other = Vocabulary(tokens=[b"a", b"b", b""], special_names={2: "</s>"}, eos=(2,))
        with Runtime(daemon.socket_path) as second:
            with pytest.raises(SpaceError, match="max_vocabularies"):
                second.register(other)
            assert first.begin_step([StepInput(seq)]).wait().mid[seq].verb == Verb.SAMPLE
            first.free([seq])
            first.close()
            second.register(other)
            assert second.begin_step([StepInput(second.instantiate(module, "ok"))]).wait().mid
            health = second.health()
            assert health["vocabularies"]["kept"] == 1 and health["counters"]["vocabularies_given_up"] == 1
        with Runtime(daemon.socket_path) as third:
            third.register(VOCABULARY)
            assert third.instantiate(module, "ok")


def test_tags_belong_to_the_owner_who_set_them(join: Join, guest_wasm: Path) -> None:
    a, again, b = join("a"), join("a"), join("b")
    module = a.upload(guest_wasm).id
    a.tag(module, "mine")
    again.tag(module, "mine")
    with pytest.raises(ModuleError, match="belongs to 'a'"):
        b.tag(module, "mine")
    b.instantiate("mine", "ok")


def test_health_lists_the_owners_of_clients(join: Join) -> None:
    runtime, _ = join("a"), join()
    assert [client["owner"] for client in runtime.health()["clients"]] == ["a", "local"]
    for bad in ("x" * 65, "a\nb"):
        with pytest.raises(ProtocolError, match="printable"):
            join(bad)
