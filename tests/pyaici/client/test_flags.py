"""What results say about an end token and about the next step: flags, through real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aicirt.contract.abi import RowKind, Verb
from aicirt.contract.errors import RuntimeFailure
from aicirt.contract.messages import StepInput
from pyaici.build import build_controller
from pyaici.client.capabilities import MASK_ONLY, Capabilities
from pyaici.client.results import MidResult
from pyaici.client.runtime import Runtime

from .conftest import GUESTS, VOCABULARY, Player

END = VOCABULARY.eos[0]
PRE, POST = 2, 4


@pytest.fixture(scope="session")
def flags_wasm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_controller(GUESTS / "flags.c", tmp_path_factory.mktemp("flags") / "flags.wasm").path


@pytest.fixture(scope="module")
def runtime(flags_wasm: Path) -> Iterator[Runtime]:
    # on a busy machine nobody shall be late, or out of time, who does not compute for long
    patience = {"step_deadline_ms": 5000, "step_grace_ms": 5000, "pre_ms": 50, "mid_ms": 100, "post_ms": 50}
    with Runtime(workers=2, limits={"max_suspended_steps": 5, **patience}) as runtime:
        runtime.register(VOCABULARY)
        runtime.tag(runtime.upload(flags_wasm).id, "flags")  # daemons share tags: "guest" is another
        yield runtime


class FlagsPlayer(Player):
    """With the guest of this module."""

    def start(self, arg: str, prompt: tuple[int, ...] = (1, 2, 3), *, wait: bool = True) -> int:
        self.seqs.append(seq := self.runtime.instantiate("flags", arg, prompt, seed=7, wait=wait))
        return seq


@pytest.fixture
def player(runtime: Runtime) -> Iterator[Player]:
    player = FlagsPlayer(runtime)
    yield player
    player.close()


def calls(player: Player, seq: int) -> list[str]:
    """What has been called since the last time."""
    return player.logs.pop(seq, "").splitlines()


def critical(player: Player, seq: int) -> bool:
    return seq in player.runtime._live.link(seq).critical


def test_an_end_is_held_where_the_result_says_so(player: Player) -> None:
    seq = player.start("a1a0s1e1m0d0")
    results = [player.mid(seq, *tokens) for tokens in [(), (END,), (7,), (8,), (END,), (9,)]]
    assert [result.hold_end for result in results] == [True, False, True, True, False, False]
    assert [result.verb for result in results] == [Verb.SAMPLE] * 2 + [Verb.SPLICE] + [Verb.SAMPLE] * 2 + [
        Verb.SPLICE
    ]
    same = results[4].row
    assert same is not None and (same.kind, same.token) == (RowKind.TOKEN, END)


class _Unaware(Capabilities):
    """Of an engine from before there was this capability, which names seven."""

    def to_wire(self) -> list[list[int]]:
        return Capabilities.to_wire(self)[:7]


@pytest.mark.parametrize("capabilities", [MASK_ONLY, _Unaware()], ids=["cannot", "unaware"])
def test_an_engine_that_cannot_hold_it_is_not_told(player: Player, capabilities: Capabilities) -> None:
    seq = player.runtime.instantiate("flags", "a7", (1,), capabilities=capabilities)
    player.seqs.append(seq)
    result = player.mid(seq)
    assert not result.hold_end and result.skip_post
    assert not critical(player, seq)


@pytest.mark.parametrize(
    "flags,called",
    [
        (0, ["post 2", "pre 2"]),
        (PRE, ["post 2"]),
        (POST, ["pre 2"]),
        (PRE | POST, []),
        (7, []),
    ],
)
def test_what_is_skipped_is_not_called(player: Player, flags: int, called: list[str]) -> None:
    seq = player.start(f"a{flags}a0")
    assert critical(player, seq) and player.runtime.wants_logprobs(seq)
    player.mid(seq)
    assert calls(player, seq) == ["pre 1", "mid 1"]
    assert critical(player, seq) == bool(called)
    assert player.runtime.wants_logprobs(seq) == (not flags & POST)
    player.mid(seq, 5)
    assert calls(player, seq) == [*called, "mid 2"]
    assert critical(player, seq) and player.runtime.wants_logprobs(seq), "it counts for one step"
    player.mid(seq, 5)
    assert calls(player, seq) == ["post 3", "pre 3", "mid 3"]


def test_nobody_waits_where_all_is_skipped(player: Player) -> None:
    """The worker sends no first answer then: one that waits for it would wait for ever."""
    spared, other = player.start("a6"), player.start("a6")
    player.step(spared, other)
    step = player.runtime.begin_step([StepInput(spared, [5]), StepInput(other, [5])])
    assert not step._parts[0].critical and step.wait_pre() == {}
    assert set(step.wait().mid) == {spared, other}
    late = player.start("a0")  # with it in the step they all wait
    assert set(player.step(spared, other, late).mid) == {spared, other, late}
    assert {calls(player, seq)[-1] for seq in (spared, other)} == {"mid 3"}
    assert calls(player, late) == ["pre 1", "mid 1"]


def test_a_splice_that_skips(player: Player) -> None:
    seq = player.start("s6n6b4a0")
    player.mid(seq)
    assert not critical(player, seq)
    player.mid(seq, ord("x"))
    player.mid(seq)
    calls(player, seq)
    assert critical(player, seq)
    player.mid(seq, ord("x"), backtrack=1)
    assert calls(player, seq) == ["pre 4", "mid 4"]


def test_a_suspended_step_comes_between(player: Player) -> None:
    """`w` skips post_process of the step that is suspended; the one after it is as exported."""
    seq = player.start("w4a0")
    player.mid(seq)
    assert player.mid(seq, 5).verb == Verb.SUSPEND
    assert calls(player, seq) == ["pre 1", "mid 1"], "what was suspended prints with its next answer"
    assert critical(player, seq) and player.runtime.wants_logprobs(seq)
    assert player.mid(seq).verb == Verb.SAMPLE
    assert calls(player, seq) == ["pre 2", "pre 3", "mid 3"]


@pytest.mark.parametrize("arg", ["w0", "w0a2a6", "w4a6a6"])
def test_suspended_now_and_then(player: Player, arg: str) -> None:
    """The limit is of rounds in a row: it goes on between them, also where pre_process is not asked."""
    seq, suspended = player.start(arg * 12), 0
    result = player.mid(seq)
    for _ in range(60):
        result = player.mid(seq, *[5] * (result.verb == Verb.SAMPLE))
        assert result.error is None
        suspended += result.verb == Verb.SUSPEND
    assert suspended > 10


def test_forks_begin_as_exported_and_go_on_by_their_own_results(player: Player) -> None:
    seq = player.start("f4a6a0")
    player.mid(seq)
    result = player.step(StepInput(seq, [5]))
    parent = seq
    (child,) = set(result.mid) - {seq}
    assert calls(player, parent) == ["pre 1", "mid 1", "pre 2", "mid 2"]
    assert not critical(player, parent) and not critical(player, child), "both have said so in mid_process"
    for member in (parent, child):
        calls(player, member)
    player.step(StepInput(parent, [6]), StepInput(child, [7]))
    assert calls(player, parent) == calls(player, child) == ["mid 3"]
    player.step(StepInput(parent, [6]), StepInput(child, [7]))
    assert calls(player, parent) == calls(player, child) == ["post 4", "pre 4", "mid 4"]


def test_a_clone_is_called_as_its_parent_would_be(player: Player) -> None:
    seq = player.start("a6a0")
    player.mid(seq)
    clone = player.runtime.clone(seq)
    player.seqs.append(clone)
    assert not critical(player, clone) and not player.runtime.wants_logprobs(clone)
    calls(player, seq)
    player.step(StepInput(seq, [5]), StepInput(clone, [6]))
    assert calls(player, seq) == calls(player, clone) == ["mid 2"]
    assert critical(player, seq) and critical(player, clone)


def test_an_answer_that_nobody_fetched_says_nothing(player: Player) -> None:
    """The client waits then, where the worker calls nothing: that costs a moment, and nothing is lost."""
    seq = player.start("a0a6f6")
    player.mid(seq)
    player.runtime.begin_step([StepInput(seq, [5])]).abandon()
    assert critical(player, seq)
    step = player.runtime.begin_step([StepInput(seq)])
    assert step._parts[0].critical and step.wait_pre() == {}
    assert step.wait().mid[seq].verb == Verb.SAMPLE
    assert not critical(player, seq)
    player.runtime.begin_step([StepInput(seq, [5])]).abandon()
    assert critical(player, seq), "it may fork in the next step, for all that is known here"
    with pytest.raises(RuntimeFailure):
        step.wait()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_an_answer_says_nothing_of_later_steps(player: Player, order: tuple[int, int]) -> None:
    """Two steps are under way: what the first answer skips has been skipped in the second one."""
    seq = player.start("a0a6f0")
    player.mid(seq)
    steps = [player.runtime.begin_step([StepInput(seq, [5])]) for _ in range(2)]
    for number in order:
        steps[number].wait_pre()
        assert steps[number].wait().mid[seq].verb == Verb.SAMPLE
    assert critical(player, seq), "it will fork, which must be heard"
    assert len(player.step(StepInput(seq, [5])).mid) == 2


def test_a_late_one_counts_when_it_is_heard(player: Player) -> None:
    seq = player.start("l6a0")
    results: list[MidResult] = []
    while not results or results[-1].verb == Verb.LATE:
        results.append(player.mid(seq))
        assert critical(player, seq) == (results[-1].verb == Verb.LATE)
    assert len(results) > 1 and results[-1].skip_post
    assert calls(player, seq) == ["pre 1", "mid 1"]
    player.mid(seq, 5)
    assert calls(player, seq) == ["mid 2"]


@pytest.mark.parametrize("flags,called", [(0, "post"), (PRE, "post"), (POST, "mid"), (PRE | POST, "mid")])
def test_the_end_is_told_by_what_is_called(player: Player, flags: int, called: str) -> None:
    seq = player.start(f"a{flags}")
    player.mid(seq)
    calls(player, seq)
    result = player.mid(seq, 5, final=True)
    assert (result.verb, result.error) == (Verb.STOP, None)
    assert calls(player, seq) == [f"{called} 2"]
    assert not player.runtime.is_live(seq)
    assert seq not in (link := next(iter(player.runtime._links.values()))).exports and seq not in link.spared


def test_old_results_have_no_flags(player: Player) -> None:
    """Of 44 bytes: what is behind them, if there is anything, is not theirs."""
    for arg in ("o7", "z7"):
        seq = player.start(arg)
        for number in (1, 2, 3):
            result = player.mid(seq, *[5] * (number > 1))
            assert result.verb == Verb.SAMPLE and not result.hold_end and not result.skip_post
            assert calls(player, seq)[-2:] == [f"pre {number}", f"mid {number}"]


def test_other_flags_are_refused(player: Player) -> None:
    result = player.mid(player.start("a8"))
    assert result.error is not None and result.error.code == "result"
    assert "flags are 0x8; version 1 has 0x7" in str(result.error)
