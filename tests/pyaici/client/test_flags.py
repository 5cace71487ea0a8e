"""Flags of results: holding an end token, and skipping pre_process or post_process of the next step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aicirt.contract.abi import RowKind, Verb
from aicirt.contract.errors import RuntimeFailure
from aicirt.contract.messages import StepInput
from pyaici.client.arguments import MASK_ONLY, Capabilities
from pyaici.client.runtime import Runtime
from pyaici.toolchain import build_controller
from tests.simulation import World

from .conftest import GUESTS, VOCABULARY, Player, thoroughly_real

END = VOCABULARY.eos[0]
PRE, POST = 2, 4


@pytest.fixture(scope="session")
def flags_wasm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_controller(GUESTS / "flags.c", tmp_path_factory.mktemp("flags") / "flags.wasm").path


@pytest.fixture
def runtime(world: World | None, flags_wasm: Path) -> Iterator[Runtime]:
    # high time limits: only controllers that compute for long are late, also in a real worker
    patience = {"step_deadline_ms": 5000, "step_grace_ms": 5000, "pre_ms": 50, "mid_ms": 100, "post_ms": 50}
    with Runtime(workers=2, limits={"max_suspended_steps": 5, **patience}) as runtime:
        runtime.register(VOCABULARY)
        runtime.tag(runtime.upload(flags_wasm).id, "flags")  # daemons share tags: "guest" is another
        yield runtime


class FlagsPlayer(Player):
    """Starts the guest of this module."""

    def start(self, arg: str, prompt: tuple[int, ...] = (1, 2, 3), *, wait: bool = True) -> int:
        self.seqs.append(seq := self.runtime.instantiate("flags", arg, prompt, seed=7, wait=wait))
        return seq


@pytest.fixture
def player(runtime: Runtime) -> Iterator[Player]:
    player = FlagsPlayer(runtime)
    yield player
    player.close()


def calls(player: Player, seq: int) -> list[str]:
    """Returns the callbacks that ran since the last call."""
    return player.logs.pop(seq, "").splitlines()


def critical(player: Player, seq: int) -> bool:
    return seq in player.runtime._live.link(seq).calls.critical


def test_an_end_token_is_held_if_the_result_says_so(player: Player) -> None:
    seq = player.start("a1a0s1e1m0d0")
    results = [player.mid(seq, *tokens) for tokens in [(), (END,), (7,), (8,), (END,), (9,)]]
    assert [result.hold_end for result in results] == [True, False, True, True, False, False]
    assert [result.verb for result in results] == [Verb.SAMPLE] * 2 + [Verb.SPLICE] + [Verb.SAMPLE] * 2 + [
        Verb.SPLICE
    ]
    same = results[4].row
    assert same is not None and (same.kind, same.token) == (RowKind.TOKEN, END)


class _Unaware(Capabilities):
    """The capabilities of an older engine that knows only seven of them."""

    def to_wire(self) -> list[list[int]]:
        return Capabilities.to_wire(self)[:7]


@pytest.mark.parametrize("capabilities", [MASK_ONLY, _Unaware()], ids=["cannot", "unaware"])
def test_an_engine_that_cannot_hold_an_end_token_gets_no_such_flag(
    player: Player, capabilities: Capabilities
) -> None:
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
def test_a_skipped_callback_is_not_called(player: Player, flags: int, called: list[str]) -> None:
    seq = player.start(f"a{flags}a0")
    assert critical(player, seq) and player.runtime.wants_logprobs(seq)
    player.mid(seq)
    assert calls(player, seq) == ["pre 1", "mid 1"]
    assert critical(player, seq) == bool(called)
    assert player.runtime.wants_logprobs(seq) == (not flags & POST)
    player.mid(seq, 5)
    assert calls(player, seq) == [*called, "mid 2"]
    assert critical(player, seq) and player.runtime.wants_logprobs(seq), "the flags apply to one step"
    player.mid(seq, 5)
    assert calls(player, seq) == ["post 3", "pre 3", "mid 3"]


def test_the_client_does_not_wait_for_pre_process_if_all_skip_it(player: Player) -> None:
    """The worker sends no first answer then, so a client that waited for it would wait forever."""
    first, second = player.start("a6"), player.start("a6")
    player.step(first, second)
    step = player.runtime.begin_step([StepInput(first, [5]), StepInput(second, [5])])
    assert not step._parts[0].critical and step.wait_pre() == {}
    assert set(step.wait().mid) == {first, second}
    third = player.start("a0")  # it skips nothing, so the client waits in a step with it
    assert set(player.step(first, second, third).mid) == {first, second, third}
    assert {calls(player, seq)[-1] for seq in (first, second)} == {"mid 3"}
    assert calls(player, third) == ["pre 1", "mid 1"]


def test_flags_of_a_splice_apply_to_the_next_step(player: Player) -> None:
    seq = player.start("s6n6b4a0")
    player.mid(seq)
    assert not critical(player, seq)
    player.mid(seq, ord("x"))
    player.mid(seq)
    calls(player, seq)
    assert critical(player, seq)
    player.mid(seq, ord("x"), backtrack=1)
    assert calls(player, seq) == ["pre 4", "mid 4"]


def test_flags_apply_to_a_suspended_step(player: Player) -> None:
    """`w` skips post_process of the suspended step. The step after it skips nothing."""
    seq = player.start("w4a0")
    player.mid(seq)
    assert player.mid(seq, 5).verb == Verb.SUSPEND
    assert calls(player, seq) == ["pre 1", "mid 1"], "output of a suspended step comes with the next result"
    assert critical(player, seq) and player.runtime.wants_logprobs(seq)
    assert player.mid(seq).verb == Verb.SAMPLE
    assert calls(player, seq) == ["pre 2", "pre 3", "mid 3"]


@pytest.mark.parametrize("arg", ["w0", "w0a2a6", "w4a6a6"])
def test_suspensions_with_steps_in_between_are_not_limited(player: Player, arg: str) -> None:
    """The limit is on consecutive suspensions. A step in between resets it, even if it skips pre_process."""
    seq, suspended = player.start(arg * 12), 0
    result = player.mid(seq)
    for _ in range(60):
        result = player.mid(seq, *[5] * (result.verb == Verb.SAMPLE))
        assert result.error is None
        suspended += result.verb == Verb.SUSPEND
    assert suspended > 10


def test_forks_start_without_flags_and_then_follow_their_own_results(player: Player) -> None:
    seq = player.start("f4a6a0")
    player.mid(seq)
    result = player.step(StepInput(seq, [5]))
    parent = seq
    (child,) = set(result.mid) - {seq}
    assert calls(player, parent) == ["pre 1", "mid 1", "pre 2", "mid 2"]
    assert not critical(player, parent) and not critical(player, child), "both set the flag in mid_process"
    for member in (parent, child):
        calls(player, member)
    player.step(StepInput(parent, [6]), StepInput(child, [7]))
    assert calls(player, parent) == calls(player, child) == ["mid 3"]
    player.step(StepInput(parent, [6]), StepInput(child, [7]))
    assert calls(player, parent) == calls(player, child) == ["post 4", "pre 4", "mid 4"]


@thoroughly_real
def test_a_clone_has_the_flags_of_its_parent(player: Player) -> None:
    seq = player.start("a6a0")
    player.mid(seq)
    clone = player.runtime.clone(seq)
    player.seqs.append(clone)
    assert not critical(player, clone) and not player.runtime.wants_logprobs(clone)
    calls(player, seq)
    player.step(StepInput(seq, [5]), StepInput(clone, [6]))
    assert calls(player, seq) == calls(player, clone) == ["mid 2"]
    assert critical(player, seq) and critical(player, clone)


def test_flags_of_an_unfetched_result_do_not_apply_in_the_client(player: Player) -> None:
    """The client then waits although the worker calls nothing. This costs little time and loses nothing."""
    seq = player.start("a0a6f6")
    player.mid(seq)
    player.runtime.begin_step([StepInput(seq, [5])]).abandon()
    assert critical(player, seq)
    step = player.runtime.begin_step([StepInput(seq)])
    assert step._parts[0].critical and step.wait_pre() == {}
    assert step.wait().mid[seq].verb == Verb.SAMPLE
    assert not critical(player, seq)
    player.runtime.begin_step([StepInput(seq, [5])]).abandon()
    assert critical(player, seq), "as far as the client knows, the sequence may fork in the next step"
    with pytest.raises(RuntimeFailure):
        step.wait()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_flags_of_a_result_do_not_apply_two_steps_later(player: Player, order: tuple[int, int]) -> None:
    """With two steps under way, the flags of the first result applied in the second step."""
    seq = player.start("a0a6f0")
    player.mid(seq)
    steps = [player.runtime.begin_step([StepInput(seq, [5])]) for _ in range(2)]
    for number in order:
        steps[number].wait_pre()
        assert steps[number].wait().mid[seq].verb == Verb.SAMPLE
    assert critical(player, seq), "the sequence will fork, and the client must receive the fork"
    assert len(player.step(StepInput(seq, [5])).mid) == 2


def test_flags_of_a_late_result_apply_when_it_arrives(player: Player) -> None:
    seq = player.start("l6a0")
    results = [player.mid(seq)]
    while results[-1].verb == Verb.LATE:
        assert critical(player, seq)
        results.append(player.mid(seq))
    assert not critical(player, seq)
    assert len(results) > 1 and results[-1].skip_post
    assert calls(player, seq) == ["pre 1", "mid 1"]
    player.mid(seq, 5)
    assert calls(player, seq) == ["mid 2"]


@pytest.mark.parametrize("flags,called", [(0, "post"), (PRE, "post"), (POST, "mid"), (PRE | POST, "mid")])
def test_a_final_report_calls_the_remaining_callback(player: Player, flags: int, called: str) -> None:
    seq = player.start(f"a{flags}")
    player.mid(seq)
    calls(player, seq)
    result = player.mid(seq, 5, final=True)
    assert (result.verb, result.error) == (Verb.STOP, None)
    assert calls(player, seq) == [f"{called} 2"]
    assert not player.runtime.is_live(seq)
    link = next(iter(player.runtime._links.all))
    assert seq not in link.calls._exported and seq not in link.calls.spared


def test_results_of_the_old_size_have_no_flags(player: Player) -> None:
    """Old results have 44 bytes. The runtime must not read flags from the bytes behind them."""
    for arg in ("o7", "z7"):
        seq = player.start(arg)
        for number in (1, 2, 3):
            result = player.mid(seq, *[5] * (number > 1))
            assert result.verb == Verb.SAMPLE and not result.hold_end and not result.skip_post
            assert calls(player, seq)[-2:] == [f"pre {number}", f"mid {number}"]


def test_unknown_flags_are_refused(player: Player) -> None:
    result = player.mid(player.start("aP"))
    assert result.error is not None and result.error.code == "result"
    assert "flags are 0x20, but version 1 has only 0x1f" in str(result.error)
