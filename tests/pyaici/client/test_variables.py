"""Variables that controllers write: the client is told of each once, whenever it was written."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aicirt.contract.abi import Verb
from aicirt.contract.messages import StepInput
from pyaici.build import build_controller
from pyaici.client.results import StepResult
from pyaici.client.runtime import Runtime

from .conftest import GUESTS, VOCABULARY

Told = dict[int, dict[bytes, bytes]]
WRITER = GUESTS / "writer.c"
#: of a machine that does other things as well: nobody is late who does not have to be
PATIENCE = {
    "step_deadline_ms": 60_000,
    "step_grace_ms": 60_000,
    "pre_ms": 1000,
    "mid_ms": 2000,
    "post_ms": 1000,
}


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    folder = tmp_path_factory.mktemp("writer")
    (folder / "only.c").write_text("#define MID_ONLY\n" + WRITER.read_text())
    with Runtime(workers=2, limits=PATIENCE) as runtime:
        runtime.register(VOCABULARY)
        for tag, source in (("writer", WRITER), ("mid_only", folder / "only.c")):
            runtime.tag(runtime.upload(build_controller(source, folder / f"{tag}.wasm").path).id, tag)
        yield runtime


def step(runtime: Runtime, *inputs: StepInput) -> StepResult:
    under_way = runtime.begin_step(inputs)
    under_way.wait_pre()
    return under_way.wait()


def say(seq: int, letter: str = "", **more: bool) -> StepInput:
    return StepInput(seq, [ord(letter)] if letter else [], 0, bool(letter), **more)


@pytest.mark.parametrize(
    ("letter", "told"),
    [
        ("o", {b"post": b"done"}),
        ("e", {b"pre": b"done"}),
        ("m", {b"mid": b"3"}),
        ("b", {b"\xff_\xc3\xa9": b"odd"}),
        ("", {}),
    ],
)
def test_each_is_told_once(runtime: Runtime, letter: str, told: dict[bytes, bytes]) -> None:
    seq, other = (runtime.instantiate("writer", "a", (1, 2)) for _ in range(2))
    assert step(runtime, say(seq), say(other)).variables == {}
    expected: Told = {seq: told} if told else {}
    assert step(runtime, say(seq, letter), say(other, "a")).variables == expected
    assert step(runtime, say(seq, "a"), say(other, "a")).variables == {}
    assert step(runtime, say(seq, letter)).variables == expected, "the same value is news again"
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
def test_last_moments_are_told(runtime: Runtime, letter: str, name: bytes, verb: Verb) -> None:
    seq = runtime.instantiate("writer", "a", (1, 2))
    step(runtime, say(seq))
    under_way = runtime.begin_step([say(seq, letter)])
    verdicts = under_way.wait_pre()
    result = under_way.wait()
    assert (verdicts.get(seq) or result.mid[seq]).verb == verb
    assert list(result.variables) == [seq] and list(result.variables[seq]) == [name]
    assert not runtime.is_live(seq)


@pytest.mark.parametrize(("tag", "letter", "name"), [("writer", "o", b"post"), ("mid_only", "m", b"mid")])
def test_what_the_last_tokens_make_of_them(runtime: Runtime, tag: str, letter: str, name: bytes) -> None:
    seq = runtime.instantiate(tag, "a", (1, 2))
    step(runtime, say(seq))
    result = step(runtime, say(seq, letter, final=True))
    assert list(result.variables[seq]) == [name] and not runtime.is_live(seq)


def test_one_that_is_suspended_writes(runtime: Runtime) -> None:
    seq = runtime.instantiate("writer", "a", (1, 2))
    step(runtime, say(seq))
    under_way = runtime.begin_step([say(seq, "z")])
    assert under_way.wait_pre()[seq].verb == Verb.SUSPEND
    assert under_way.wait().variables == {seq: {b"pre": b"done"}}
    assert step(runtime, say(seq)).variables == {}
    runtime.free([seq])


def test_forks_and_copies_are_one_request(runtime: Runtime) -> None:
    seq = runtime.instantiate("writer", "a", (1, 2))
    step(runtime, say(seq))
    under_way = runtime.begin_step([say(seq, "f")])
    (child,) = under_way.wait_pre()[seq].children
    ((teller, told),) = under_way.wait().variables.items()
    assert teller in (seq, child) and told == {b"first": b"here", b"second": b"here"}
    copy = runtime.clone(child)
    # one of them ends: its last words, and those of others behind them, are told together
    result = step(runtime, say(seq, "s"), say(child, "m"), say(copy, "o"))
    ((teller, told),) = result.variables.items()
    assert teller in (seq, child, copy) and told in (
        {b"mid": value, b"post": b"done"} for value in (b"3", b"last")
    )
    assert step(runtime, say(child, "a"), say(copy, "a")).variables == {}
    runtime.free([child, copy])


def test_what_is_written_between_steps_comes_with_the_next(runtime: Runtime) -> None:
    for wait in (True, False):
        seq, other = runtime.instantiate("writer", "!", (1, 2), wait=wait), runtime.instantiate("writer", "a")
        told: Told = {}
        for _ in range(100):
            assert step(runtime, say(other)).variables == {}, "it takes no part"
            result = step(runtime, say(seq))
            told |= result.variables
            if result.mid[seq].verb != Verb.LATE:
                break
        assert told == {seq: {b"prompt": b"read"}}
        runtime.free([seq, other])


def test_what_a_step_tells_that_was_abandoned_is_not_lost(runtime: Runtime) -> None:
    seq = runtime.instantiate("writer", "a", (1, 2))
    step(runtime, say(seq))
    runtime.begin_step([say(seq, "m")]).abandon()
    told = [step(runtime, say(seq, letter)).variables for letter in ("o", "a")]
    assert told == [{seq: {b"mid": b"3", b"post": b"done"}}, {}]
    runtime.free([seq])


def test_much_is_told_in_several_steps(runtime: Runtime) -> None:
    """Nobody's step waits for all that others write, and nobody is forgotten."""
    seqs = [runtime.instantiate("mid_only", "a", (1, 2)) for _ in range(12)]
    step(runtime, *map(say, seqs))
    told = [set(step(runtime, *(say(seq, "g") for seq in seqs)).variables)]
    while len(told) < 12 and set().union(*told) != set(seqs):
        result = step(runtime, *(say(seq, "g") for seq in seqs))
        told.append(set(result.variables))
        assert all(values == {b"much": bytes(600_000)} for values in result.variables.values())
    assert set().union(*told) == set(seqs) and len(told) > 1
    # the last words of all of them are told at once
    assert set(step(runtime, *(say(seq, "t") for seq in seqs)).variables) == set(seqs)


def test_more_last_words_than_one_message_holds(runtime: Runtime) -> None:
    """What is lost is counted, and the sequences end as they should."""
    seqs = [runtime.instantiate("mid_only", "a", (1, 2)) for _ in range(70)]
    step(runtime, *map(say, seqs))
    known = {seq for seq, told in step(runtime, *(say(seq, "g") for seq in seqs)).variables.items() if told}
    result = step(runtime, *(say(seq, "t") for seq in seqs))
    assert {answer.verb for answer in result.mid.values()} == {Verb.ERROR} and len(result.mid) == 70
    lost = set(seqs) - set(result.variables)
    assert all(told[b"mid"] == b"last" for told in result.variables.values())
    assert all((b"much" in told) != (seq in known) for seq, told in result.variables.items())
    counted = sum(worker["counters"].get("variables_untold", 0) for worker in runtime.health()["workers"])
    assert counted == len(lost) > 0
