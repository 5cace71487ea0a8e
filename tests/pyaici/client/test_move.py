"""Requests that move to another worker answer as if they had stayed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aicirt.contract.abi import Verb
from aicirt.contract.errors import RuntimeFailure, SpaceError, UnknownSequenceError, WorkerDiedError
from aicirt.contract.messages import StepInput
from pyaici.build import build_controller
from pyaici.client.runtime import Runtime

from .conftest import GUESTS, VOCABULARY, Player
from .twins import COMMANDS, LEISURE, Twins, content


@pytest.fixture(scope="module")
def mover_wasm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_controller(GUESTS / "mover.c", tmp_path_factory.mktemp("mover") / "mover.wasm").path


@pytest.fixture(scope="module")
def runtime(guest_wasm: Path, mover_wasm: Path) -> Iterator[Runtime]:
    with Runtime(workers=2, num_dense=40, limits=LEISURE) as runtime:
        runtime.register(VOCABULARY)
        runtime.tag(runtime.upload(guest_wasm).id, "guest")
        runtime.tag(runtime.upload(mover_wasm).id, "mover")
        runtime._moves.automatic = False
        yield runtime


@pytest.fixture
def player(runtime: Runtime) -> Iterator[Player]:
    player = Player(runtime)
    yield player
    player.close()


def sequences(runtime: Runtime) -> list[int]:
    return [worker["sequences"] for worker in runtime.health()["workers"]]


_ACTIONS = st.one_of(
    st.tuples(st.just("step"), st.lists(st.sampled_from(COMMANDS), min_size=1, max_size=4), st.none()),
    st.tuples(
        st.just("step"), st.lists(st.sampled_from(COMMANDS), min_size=1, max_size=4), st.integers(0, 5)
    ),
    st.tuples(st.just("move"), st.none(), st.none()),
    st.tuples(st.sampled_from(["clone", "free"]), st.integers(0, 5), st.none()),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    heap=st.sampled_from([0, 100, 70_000, 600_000]),
    prompt=st.lists(st.integers(1, 255), max_size=5),
    actions=st.lists(_ACTIONS, min_size=3, max_size=25),
)
def test_a_request_that_moves_answers_as_one_that_stays(
    runtime: Runtime, heap: int, prompt: list[int], actions: list[tuple[str, object, int | None]]
) -> None:
    twins = Twins(runtime, f"{heap}", prompt)
    try:
        for action, what, skip in actions:
            if action == "step":
                assert isinstance(what, list)
                twins.step(what, skip)
            elif action == "move":
                twins.move()
            else:
                assert isinstance(what, int)
                (twins.clone if action == "clone" else twins.free)(what)
        twins.move()
        twins.step(["V", "R", "M"])
    finally:
        twins.close()


def test_a_late_result_travels(player: Player) -> None:
    """What was late and has ended since is told by the new worker."""
    runtime = player.runtime
    moved, stays = (runtime.instantiate("mover", "9", [5], seed=1) for _ in range(2))
    player.seqs += [moved, stays]
    for seq in (moved, stays):
        verbs = [player.step(StepInput(seq, [ord("L")], sampled=True)).mid[seq].verb]
        assert verbs == [Verb.LATE]
        deadline = time.monotonic() + 30
        while seq == moved:
            try:
                runtime.move(seq)
                break
            except RuntimeFailure as error:  # until its fiber has ended
                assert "is late" in str(error) and time.monotonic() < deadline
                time.sleep(0.02)
        while (answer := player.step(StepInput(seq)).mid[seq]).verb == Verb.LATE:
            assert time.monotonic() < deadline
        if seq == moved:
            first = content(answer)
        else:
            assert content(answer) == first


def test_rows_stay_valid_until_the_next_result(player: Player) -> None:
    runtime = player.runtime
    seq = runtime.instantiate("mover", "9", [5], seed=1)
    player.seqs.append(seq)
    row = player.mid(seq, ord("x")).row
    assert row is not None and row.bits is not None
    before = row.bits.tobytes()
    runtime.move(seq)
    others = [runtime.instantiate("mover", "9", [n], seed=1) for n in range(12)]
    player.seqs += others
    for _ in range(5):
        player.step(*(StepInput(other, [ord("x")]) for other in others))
        assert row.bits.tobytes() == before
    again = player.mid(seq, ord("M")).row
    assert again is not None and again.bits is not None and again.bits.tobytes() == before


def test_rows_go_back(runtime: Runtime) -> None:
    """There are 256 in each worker, and 40 dense ones."""
    player = Player(runtime)
    for command in "xD":
        seq = runtime.instantiate("mover", "9", [5], seed=1)
        for _ in range(300 if command == "x" else 90):
            assert player.mid(seq, ord(command)).verb == Verb.SAMPLE
            runtime.move(seq)
        runtime.free([seq])


def test_forks_of_both_workers_have_different_numbers(player: Player) -> None:
    runtime = player.runtime
    seq = runtime.instantiate("mover", "9", [5], seed=1)
    family = [seq]
    for _ in range(3):
        step = runtime.begin_step([StepInput(seq, [ord("F")], sampled=True)])
        family += step.wait_pre()[seq].children
        step.wait()
        runtime.move(seq)
    player.seqs += family
    assert len(set(family)) == len(family) and len({child >> 24 for child in family}) == 3
    assert len({runtime._live.link(member) for member in family}) == 1


def test_where_it_goes(player: Player) -> None:
    runtime, seq = player.runtime, player.start("ok")
    here = runtime._live.link(seq).index
    assert runtime.move(seq) == 1 - here
    assert runtime.move(seq, 1 - here) == 1 - here, "it is there"
    assert runtime.move(seq, here) == here
    with pytest.raises(WorkerDiedError, match="no worker 7"):
        runtime.move(seq, 7)
    with pytest.raises(UnknownSequenceError):
        runtime.move(4711)
    assert player.mid(seq).verb == Verb.SAMPLE


def test_what_is_under_way_stays(player: Player) -> None:
    runtime, seq = player.runtime, player.start("fork 2")
    player.step(seq)
    step = runtime.begin_step([StepInput(seq, tokens=[1])])
    (child,) = step.wait_pre()[seq].children
    player.seqs.append(child)
    with pytest.raises(RuntimeFailure, match="of the request is in a step under way"):
        runtime.move(child)
    step.wait()
    only = runtime.begin_step([StepInput(child, tokens=[1])])
    with pytest.raises(RuntimeFailure, match=f"sequence {child} of the request is in a step under way"):
        runtime.move(seq)
    only.wait()
    runtime.move(seq)
    assert [player.mid(s, 1).verb for s in (seq, child)] == [Verb.SAMPLE] * 2


def test_what_is_late_stays_and_says_so(player: Player) -> None:
    seq = player.start("mid_loop")
    player.step(seq)
    assert player.mid(seq, 1).verb == Verb.LATE
    with pytest.raises(RuntimeFailure, match="is late: it can move after its next result"):
        player.runtime.move(seq)


def test_a_step_that_was_abandoned_is_not_moved_away_from(player: Player) -> None:
    runtime, seq = player.runtime, player.start("mid_loop")
    player.step(seq)
    runtime.begin_step([StepInput(seq, tokens=[1])]).abandon()
    with pytest.raises(RuntimeFailure, match=r"is late|under way"):
        runtime.move(seq)


def test_an_answer_that_nobody_fetched_is_no_row(player: Player) -> None:
    """What SAME means after it is not known, also in the new worker."""
    runtime = player.runtime
    seq = runtime.instantiate("mover", "9", [5], seed=1)
    player.seqs.append(seq)
    player.mid(seq, ord("x"))
    runtime.begin_step([StepInput(seq, [ord("x")])])
    deadline = time.monotonic() + 10
    while True:
        try:
            runtime.move(seq)
            break
        except RuntimeFailure:
            assert time.monotonic() < deadline
    answer = player.mid(seq, ord("M"))
    assert answer.verb == Verb.ERROR and "never fetched" in str(answer.error)


def test_too_much_to_copy(player: Player) -> None:
    seq = player.runtime.instantiate("mover", f"{20 << 20}", [5], seed=1)
    player.seqs.append(seq)
    with pytest.raises(RuntimeFailure, match="would have to be copied"):
        player.runtime.move(seq)
    assert player.mid(seq, ord("x")).verb == Verb.SAMPLE


def test_one_worker_has_no_other(guest_wasm: Path) -> None:
    with Runtime(workers=1) as runtime:
        runtime.register(VOCABULARY)
        runtime.tag(runtime.upload(guest_wasm).id, "guest")
        player = Player(runtime)
        seq = player.start("ok")
        with pytest.raises(WorkerDiedError, match="no other worker"):
            runtime.move(seq)
        assert player.mid(seq).verb == Verb.SAMPLE and not runtime._moves.automatic


@pytest.mark.parametrize(
    ("limits", "argument", "kind"),
    [
        ({"max_sequences": 2}, "ok", SpaceError),
        ({"owner_variable_bytes": 14_000}, "keep 5000", RuntimeFailure),
    ],
)
def test_no_room_there(
    guest_wasm: Path, limits: dict[str, int], argument: str, kind: type[Exception]
) -> None:
    with Runtime(workers=2, limits=limits) as runtime:
        runtime.register(VOCABULARY)
        runtime.tag(runtime.upload(guest_wasm).id, "guest")
        runtime._moves.automatic = False
        player = Player(runtime)
        seqs = [player.start(argument) for _ in range(4)]
        player.step(*seqs)
        for _ in range(3):
            with pytest.raises(kind):
                runtime.move(seqs[0])
        assert sequences(runtime) == [2, 2]
        assert all(mid.verb == Verb.SAMPLE for mid in player.step(*seqs).mid.values())
        other = next(seq for seq in seqs if runtime._live.link(seq) is not runtime._live.link(seqs[0]))
        runtime.free([other])
        runtime.move(seqs[0])
        assert sorted(sequences(runtime)) == [1, 2]


def test_many_moves_leave_nothing(runtime: Runtime) -> None:
    player = Player(runtime)
    seqs = [runtime.instantiate("mover", "300000", [n], seed=n) for n in range(2)]
    step = runtime.begin_step([StepInput(seqs[0], [ord("F")], sampled=True)])
    seqs += step.wait_pre()[seqs[0]].children
    step.wait()
    pids = [worker["pid"] for worker in runtime.health()["workers"]] + [runtime.health()["pid"], os.getpid()]

    def used() -> list[tuple[int, int]]:
        files = [len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids]
        rss = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids]
        return list(zip(files, rss, strict=True))

    def ours() -> set[Path]:
        return {name for pid in pids for name in Path("/dev/shm").glob(f"*aici-{os.getuid()}-{pid}-*")}

    def some(count: int) -> None:
        for turn in range(count):
            runtime.move(seqs[turn % 2])
            if turn % 5 == 0:
                player.step(*(StepInput(seq, [ord("V" if turn % 2 else "x")]) for seq in seqs))

    some(20)
    before, names = used(), ours()
    some(200)
    after = used()
    assert all(new[0] <= old[0] + 4 for old, new in zip(before, after, strict=True)), (before, after)
    assert all(new[1] <= old[1] + 2000 for old, new in zip(before, after, strict=True)), "pages of 4 KiB"
    assert ours() <= names
    assert sum(worker["counters"]["moved"] for worker in runtime.health()["workers"]) >= 220
    runtime.free(seqs)


def test_close_unmaps_what_a_moved_request_has_left(guest_wasm: Path) -> None:
    """Its row was in the segment that is closed first."""

    def maps() -> int:
        return Path("/proc/self/maps").read_text().count(f"aici-{os.getuid()}-{os.getpid()}-")

    before = maps()
    with Runtime(workers=2) as runtime:
        runtime.register(VOCABULARY)
        runtime.tag(runtime.upload(guest_wasm).id, "guest")
        player = Player(runtime)
        for _ in range(2):
            seq = player.start("ok")
            assert player.mid(seq).row is not None
            runtime.move(seq)
        links = list(runtime._links.values())  # somebody still knows them
    assert len(links) == 2 and maps() == before
