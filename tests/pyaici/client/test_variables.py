"""Variables that controllers write: a step reports each write to the client once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aicirt.contract.abi import Verb
from aicirt.contract.messages import StepInput
from pyaici.client.results import StepResult
from pyaici.client.runtime import Runtime
from pyaici.toolchain import build_controller
from tests.simulation import World

from .conftest import GUESTS, VOCABULARY, thoroughly_real

Variables = dict[int, dict[bytes, bytes]]
WRITER = GUESTS / "writer.c"
#: high time limits, so that only slow controllers are late, also in a real worker
PATIENCE = {
    "step_deadline_ms": 60_000,
    "step_grace_ms": 60_000,
    "pre_ms": 1000,
    "mid_ms": 2000,
    "post_ms": 1000,
}


@pytest.fixture(scope="module")
def writers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Returns the modules by their tags."""
    folder = tmp_path_factory.mktemp("writer")
    (folder / "only.c").write_text("#define MID_ONLY\n" + WRITER.read_text())
    sources = {"writer": WRITER, "mid_only": folder / "only.c"}
    return {tag: build_controller(source, folder / f"{tag}.wasm").path for tag, source in sources.items()}


@pytest.fixture
def runtime(world: World | None, writers: dict[str, Path]) -> Iterator[Runtime]:
    with Runtime(workers=2, limits=PATIENCE) as runtime:
        runtime.register(VOCABULARY)
        for tag, wasm in writers.items():
            runtime.tag(runtime.upload(wasm).id, tag)
        yield runtime


def step(runtime: Runtime, *inputs: StepInput) -> StepResult:
    under_way = runtime.begin_step(inputs)
    under_way.wait_pre()
    return under_way.wait()


def send(seq: int, letter: str = "", **more: bool) -> StepInput:
    return StepInput(seq, [ord(letter)] if letter else [], 0, bool(letter), **more)


@pytest.mark.parametrize(
    ("letter", "written"),
    [
        ("o", {b"post": b"done"}),
        ("e", {b"pre": b"done"}),
        ("m", {b"mid": b"3"}),
        ("b", {b"\xff_\xc3\xa9": b"odd"}),
        ("", {}),
    ],
)
def test_each_write_is_reported_once(runtime: Runtime, letter: str, written: dict[bytes, bytes]) -> None:
    seq, other = (runtime.instantiate("writer", "a", (1, 2)) for _ in range(2))
    assert step(runtime, send(seq), send(other)).variables == {}
    expected: Variables = {seq: written} if written else {}
    assert step(runtime, send(seq, letter), send(other, "a")).variables == expected
    assert step(runtime, send(seq, "a"), send(other, "a")).variables == {}
    assert step(runtime, send(seq, letter)).variables == expected, "writing the same value counts"
    runtime.free([seq, other])


@pytest.mark.parametrize(
    ("letter", "name", "verb"),
    [
        ("x", b"post", Verb.ERROR),
        ("p", b"pre", Verb.STOP),
        ("s", b"mid", Verb.STOP),
        ("t", b"mid", Verb.ERROR),
    ],
)
def test_writes_of_the_last_step_are_reported(runtime: Runtime, letter: str, name: bytes, verb: Verb) -> None:
    seq = runtime.instantiate("writer", "a", (1, 2))
    step(runtime, send(seq))
    under_way = runtime.begin_step([send(seq, letter)])
    verdicts = under_way.wait_pre()
    result = under_way.wait()
    assert (verdicts.get(seq) or result.mid[seq]).verb == verb
    assert list(result.variables) == [seq] and list(result.variables[seq]) == [name]
    assert not runtime.is_live(seq)


@pytest.mark.parametrize(("tag", "letter", "name"), [("writer", "o", b"post"), ("mid_only", "m", b"mid")])
def test_writes_after_the_last_tokens_are_reported(
    runtime: Runtime, tag: str, letter: str, name: bytes
) -> None:
    seq = runtime.instantiate(tag, "a", (1, 2))
    step(runtime, send(seq))
    result = step(runtime, send(seq, letter, final=True))
    assert list(result.variables[seq]) == [name] and not runtime.is_live(seq)


def test_writes_of_a_suspended_sequence_are_reported(runtime: Runtime) -> None:
    seq = runtime.instantiate("writer", "a", (1, 2))
    step(runtime, send(seq))
    under_way = runtime.begin_step([send(seq, "z")])
    assert under_way.wait_pre()[seq].verb == Verb.SUSPEND
    assert under_way.wait().variables == {seq: {b"pre": b"done"}}
    assert step(runtime, send(seq)).variables == {}
    runtime.free([seq])


@thoroughly_real
def test_forks_and_clones_share_the_variables_of_a_request(runtime: Runtime) -> None:
    seq = runtime.instantiate("writer", "a", (1, 2))
    step(runtime, send(seq))
    under_way = runtime.begin_step([send(seq, "f")])
    (child,) = under_way.wait_pre()[seq].children
    ((reporter, written),) = under_way.wait().variables.items()
    assert reporter in (seq, child) and written == {b"first": b"here", b"second": b"here"}
    copy = runtime.clone(child)
    # one of them ends: one report has its last write and the writes of the others
    result = step(runtime, send(seq, "s"), send(child, "m"), send(copy, "o"))
    ((reporter, written),) = result.variables.items()
    assert reporter in (seq, child, copy) and written in (
        {b"mid": value, b"post": b"done"} for value in (b"3", b"last")
    )
    assert step(runtime, send(child, "a"), send(copy, "a")).variables == {}
    runtime.free([child, copy])


def test_writes_between_steps_are_reported_with_the_next_step(runtime: Runtime) -> None:
    for wait in (True, False):
        seq, other = runtime.instantiate("writer", "!", (1, 2), wait=wait), runtime.instantiate("writer", "a")
        reported: Variables = {}
        for _ in range(100):
            assert step(runtime, send(other)).variables == {}, "the writer takes no part in this step"
            result = step(runtime, send(seq))
            reported |= result.variables
            if result.mid[seq].verb != Verb.LATE:
                break
        assert reported == {seq: {b"prompt": b"read"}}
        runtime.free([seq, other])


def test_writes_of_an_abandoned_step_are_reported_later(runtime: Runtime) -> None:
    seq = runtime.instantiate("writer", "a", (1, 2))
    step(runtime, send(seq))
    runtime.begin_step([send(seq, "m")]).abandon()
    reported = [step(runtime, send(seq, letter)).variables for letter in ("o", "a")]
    assert reported == [{seq: {b"mid": b"3", b"post": b"done"}}, {}]
    runtime.free([seq])


def test_large_writes_are_reported_over_several_steps(runtime: Runtime) -> None:
    """No step waits for all large writes, and every write is reported in the end."""
    seqs = [runtime.instantiate("mid_only", "a", (1, 2)) for _ in range(12)]
    step(runtime, *map(send, seqs))
    reported = [set(step(runtime, *(send(seq, "g") for seq in seqs)).variables)]
    while len(reported) < 12 and set().union(*reported) != set(seqs):
        result = step(runtime, *(send(seq, "g") for seq in seqs))
        reported.append(set(result.variables))
        assert all(values == {b"much": bytes(600_000)} for values in result.variables.values())
    assert set().union(*reported) == set(seqs) and len(reported) > 1
    # the writes of sequences that end are all reported at once
    assert set(step(runtime, *(send(seq, "t") for seq in seqs)).variables) == set(seqs)


def test_last_writes_beyond_the_size_of_a_message_are_lost_and_counted(runtime: Runtime) -> None:
    """All sequences still end as they should."""
    seqs = [runtime.instantiate("mid_only", "a", (1, 2)) for _ in range(70)]
    step(runtime, *map(send, seqs))
    first = step(runtime, *(send(seq, "g") for seq in seqs)).variables
    known = {seq for seq, written in first.items() if written}
    result = step(runtime, *(send(seq, "t") for seq in seqs))
    assert {answer.verb for answer in result.mid.values()} == {Verb.ERROR} and len(result.mid) == 70
    lost = set(seqs) - set(result.variables)
    assert all(written[b"mid"] == b"last" for written in result.variables.values())
    assert all((b"much" in written) != (seq in known) for seq, written in result.variables.items())
    counted = sum(worker["counters"].get("variables_untold", 0) for worker in runtime.health()["workers"])
    assert counted == len(lost) > 0
