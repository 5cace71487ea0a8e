"""A controller's fault ends its own sequence with an error that names it. Other sequences are unaffected."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from aicirt.contract.abi import Verb
from aicirt.contract.errors import AiciError, ArgumentError, ForkLimitError, TimeLimitError
from aicirt.contract.messages import StepInput
from pyaici.client.results import MidResult
from pyaici.toolchain import build_controller
from tests.simulation import World

from .conftest import Player, also_real, guest_runtime

#: mode of guest.c -> (code of the error, words in its message)
REFUSED = {
    "init_refuse": ("argument", "aici_init returned 1"),
    "init_fail": ("argument", "no such luck"),
    "init_stop": ("argument", "stopped in aici_init"),
    "init_exit 3": ("argument", "status 3"),
    "init_trap": ("trap", "unreachable"),
    "init_loop": ("time_limit", "aici_init used"),
    "init_stack": ("trap", "stack"),
    "init_variable": ("argument", "aici_init_prompt"),
    "prompt_refuse": ("failed", "aici_init_prompt returned 1"),
    "prompt_fail": ("failed", "no such luck"),
    "prompt_trap": ("trap", "unreachable"),
    "prompt_loop": ("time_limit", "aici_init_prompt used"),
    "prompt_stack": ("trap", "stack"),
}
ENDED = {
    "pre_trap": ("trap", "aici_pre_process trapped"),
    "pre_loop": ("time_limit", "aici_pre_process used"),
    "pre_stack": ("trap", "stack"),
    "pre_fail": ("failed", "no such luck"),
    "pre_exit 4": ("failed", "status 4"),
    "pre_bad_pointer": ("result", "aici_pre_result: 12 bytes at address 4294967280"),
    "pre_bad_size": ("result", "aici_pre_result: size is 4"),
    "pre_bad_verb": ("result", "verb 4 is not"),
    "post_trap": ("trap", "aici_post_process trapped"),
    "post_loop": ("time_limit", "aici_post_process used"),
    "post_stack": ("trap", "stack"),
    "post_fail": ("failed", "no such luck"),
    "post_bad_pointer": ("result", "aici_post_result"),
    "post_bad_size": ("result", "size is 4"),
    "post_bad_verb": ("result", "verb 5 is not"),
    "pre_tokenize 30": ("time_limit", "of it in host functions, the limit is"),
    "post_tokenize 30": ("time_limit", "of it in host functions, the limit is"),
    "mid_trap": ("trap", "aici_mid_process trapped"),
    "mid_stack": ("trap", "stack"),
    "mid_fail": ("failed", "no such luck"),
    "mid_exit 5": ("failed", "status 5"),
    "mid_bad_pointer": ("result", "aici_mid_result"),
    "mid_bad_size": ("result", "size is 8"),
    "mid_bad_verb": ("result", "verb 17 is not"),
    "mid_bad_row": ("result", "row: 40 bytes at address 4294967280"),
    "mid_short_row": ("result", "row_len is 1 words; 10"),
    "mid_bad_kind": ("result", "no row kind 9"),
    "mid_empty_mask": ("empty_mask", "allows no token"),
    "mid_padding_mask": ("empty_mask", "allows no token"),
    "mid_infinite_temperature": ("result", "temperature is inf"),
    "temperature -7": ("result", "temperature is -0.7"),
    "token 300": ("result", "token 300 is not below 300"),
    "sparse 300": ("result", "sparse token 300"),
    "sparse_nan 9": ("result", "NaN"),
    "sparse_many 9": ("result", "1000 sparse entries"),
    "sparse_default 9": ("result", "row_default is 3.0"),
    "sparse_empty 9": ("empty_mask", "allows no token"),
    "dense_inf": ("result", "+inf"),
    "dense_short": ("result", "row_len is 5"),
    "dense_empty": ("empty_mask", "allows no token"),
    "splice 100": ("result", "backtrack is 100"),
    "splice_token": ("result", "ff_token 2147483647 is not below 300"),
    "splice_long": ("result", "1000000 ff_tokens"),
    "splice_pointer": ("result", "ff_tokens: 8 bytes"),
    "memory_bomb": ("memory_limit", "memory"),
    "wild_read": ("result", "outside the memory"),
    "wild_source": ("result", "no source 99"),
    "wild_tokenize": ("result", "outside the memory"),
    "wild_name": ("result", "outside the memory"),
    "long_name": ("result", "variable name of 8192 bytes"),
    "variable_flood": ("variable_limit", "1024 variables"),
    "variable_grow": ("variable_limit", "1048576"),
    "variable_op": ("result", "no operation 7"),
    "fork 17": ("fork_limit", "17 live sequences"),
}


@pytest.mark.parametrize("mode", REFUSED)
def test_a_bad_start_is_refused(player: Player, mode: str) -> None:
    code, words = REFUSED[mode]
    with pytest.raises(AiciError) as caught:
        player.start(mode)
    assert (caught.value.code, words in str(caught.value)) == (code, True), repr(caught.value)
    # another sequence still starts
    assert player.mid(player.start("ok")).verb == Verb.SAMPLE


def witness(player: Player, mode: str | None) -> tuple[list[object], AiciError | None]:
    """Runs a well-behaved sequence next to one of `mode`.

    Returns the rows and the log of the first, and the error that ended the second.
    """
    good = player.start("print")
    bad = player.start(mode) if mode else None
    seen: list[object] = []
    error = None
    for number in range(16):
        inputs = [StepInput(good, tokens=[number] if number else [])]
        if bad is not None:
            inputs.append(StepInput(bad, tokens=[1] if number else []))
        result = player.step(*inputs)
        row = result.mid[good].row
        assert row is not None and row.bits is not None
        seen.append(row.bits.tolist())
        if bad is not None and result.mid[bad].verb == Verb.ERROR:
            assert number >= 1
            error, bad = result.mid[bad].error, None
    seen.append(player.logs.pop(good))
    return seen, error


@also_real
def test_a_fault_in_a_real_worker_ends_one_sequence(player: Player) -> None:
    for mode in ("mid_trap", "pre_loop", "mid_empty_mask"):
        code, words = ENDED[mode]
        good, bad = player.start("ok"), player.start(mode)
        player.answers(good, bad)
        result = player.answers(StepInput(good, [1]), StepInput(bad, [1]))
        error = result[bad].error
        assert error is not None and error.code == code and words in str(error)
        assert result[good].verb == Verb.SAMPLE
        player.runtime.free([good])


@pytest.mark.parametrize("mode", ENDED)
def test_only_the_faulty_sequence_ends(player: Player, mode: str) -> None:
    code, words = ENDED[mode]
    seen, error = witness(player, mode)
    assert error is not None
    assert (error.code, words in str(error)) == (code, True), repr(error)
    assert seen == witness(player, None)[0]


@pytest.mark.parametrize("mode", ["mid_loop", "mid_tokenize 9999"])
def test_an_endless_mid_process_is_late_and_then_ends(player: Player, mode: str) -> None:
    bad, good = player.start(mode), player.start("ok")
    player.step(bad, good)
    verbs = []
    while not verbs or verbs[-1] == Verb.LATE:
        result = player.step(StepInput(good, tokens=[1]), StepInput(bad))
        assert result.mid[good].verb in (Verb.SAMPLE, Verb.LATE), "late on a busy machine"
        verbs.append(result.mid[bad].verb)
    # the number of late steps depends on how long a step takes: the limit is on CPU time
    assert len(verbs) > 1 and verbs[-1] == Verb.ERROR
    error = result.mid[bad].error
    assert isinstance(error, TimeLimitError) and "aici_mid_process used" in str(error)
    assert error.detail["used_ms"] >= 220, "20 ms in each of 11 steps"
    assert "ms per step, and may be late in 10 steps in a row" in str(error)
    assert ("of it in host functions" in str(error)) == (mode != "mid_loop")


def test_a_mid_process_that_ends_with_its_slice_has_the_same_error(world: World, guest_wasm: Path) -> None:
    with guest_runtime(guest_wasm, mid_ms=1, max_late_steps=0) as runtime:
        player = Player(runtime)
        for _ in range(50):
            seq = player.start("mid_loop")
            result = player.mid(seq)
            while result.verb != Verb.ERROR:
                result = player.mid(seq)
            assert isinstance(result.error, TimeLimitError)
            player.close()


def test_other_sequences_do_not_wait_for_a_slow_mid_process(player: Player) -> None:
    """The engine gets the rows that are ready shortly after it asks."""
    slow, good = player.start("mid_slow 10"), player.start("ok")
    player.step(slow, good)
    waits: list[float] = []
    results: list[MidResult] = []
    while not results or results[-1].verb == Verb.LATE:
        report = StepInput(slow) if results else StepInput(slow, [1])
        step = player.runtime.begin_step([report, StepInput(good, [1])])
        step.wait_pre()
        start = time.monotonic()
        mid = step.wait().mid
        waits.append(time.monotonic() - start)
        assert mid[good].verb == Verb.SAMPLE
        results.append(mid[slow])
    assert results[-1].verb == Verb.SAMPLE
    assert len(results) > 3 and sorted(waits)[len(waits) // 2] < 0.02, "it needs tens of milliseconds"


def test_a_slow_sequence_alone_in_a_step_is_waited_for(world: World, guest_wasm: Path) -> None:
    with guest_runtime(guest_wasm, mid_ms=1000, step_deadline_ms=60_000) as runtime:
        slow = runtime.instantiate("guest", "mid_slow 30")
        steps = [StepInput(slow), StepInput(slow, [1]), StepInput(slow, [1])]
        assert [runtime.begin_step([step]).wait().mid[slow].verb for step in steps] == [Verb.SAMPLE] * 3


def test_a_slow_mid_process_is_late_and_goes_on(player: Player) -> None:
    slow = player.start("mid_slow 10")  # some tens of milliseconds
    player.mid(slow)
    results = [player.mid(slow, 1)]
    while results[-1].verb == Verb.LATE:
        results.append(player.mid(slow))
    assert results[0].verb == Verb.LATE and results[-1].verb == Verb.SAMPLE
    assert player.mid(slow, 1).verb == Verb.SAMPLE


def test_a_fork_bomb_ends_at_the_limit(player: Player) -> None:
    live = {player.start("fork_bomb")}
    player.step(*live)
    errors: list[AiciError] = []
    for _ in range(8):
        step = player.runtime.begin_step([StepInput(seq) for seq in live])
        pre = step.wait_pre()
        player.seqs += [child for verdict in pre.values() for child in verdict.children]
        result = step.wait()
        errors += [v.error for v in pre.values() if v.error is not None]
        live = {seq for seq, mid in result.mid.items() if mid.verb == Verb.SAMPLE}
        assert len(live) <= 16
        if errors:
            break
    assert errors and all(isinstance(error, ForkLimitError) for error in errors)


def rounds(player: Player, seq: int) -> tuple[list[Verb], AiciError | None]:
    """Steps a sequence without tokens until it ends. Returns the verbs and the error."""
    player.mid(seq)
    verbs, error = [], None
    while Verb.ERROR not in verbs and len(verbs) < 50:
        result = player.mid(seq)
        verbs.append(result.verb)
        error = result.error
    return verbs, error


def test_endless_empty_splices_are_a_livelock(player: Player) -> None:
    verbs, error = rounds(player, player.start("splice_nothing"))
    assert verbs == [Verb.SPLICE] * 8 + [Verb.ERROR]
    assert error is not None and error.code == "livelock" and "8 rounds" in str(error)


def test_empty_splices_with_tokens_in_between_are_no_livelock(player: Player) -> None:
    seq = player.start("splice_nothing")
    player.mid(seq)
    for number in range(30):
        result = player.mid(seq, *([1] if number % 8 == 0 else []))
        assert result.verb == Verb.SPLICE, number


def test_endless_suspension_is_a_livelock_even_if_variables_are_written(player: Player) -> None:
    verbs, error = rounds(player, player.start("suspend_write"))
    assert verbs == [Verb.SUSPEND] * 8 + [Verb.ERROR]
    assert error is not None and error.code == "livelock"


def test_a_relay_of_forks_is_a_livelock(player: Player) -> None:
    """Each child replaces its parent, so no sequence lives for long."""
    seq = player.start("relay")
    player.mid(seq)
    verbs, error = [], None
    while Verb.ERROR not in verbs and len(verbs) < 50:
        step = player.runtime.begin_step([StepInput(seq)])
        (child,) = step.wait_pre()[seq].children
        player.seqs.append(child)
        result = step.wait().mid
        assert result[seq].verb == Verb.STOP
        verbs.append(result[child].verb)
        seq, error = child, result[child].error
    assert verbs == [Verb.SPLICE] * 8 + [Verb.ERROR]
    assert error is not None and error.code == "livelock"


def test_waiting_for_an_idle_sequence_is_a_livelock(player: Player) -> None:
    seq = player.start("wait")
    player.mid(seq)
    step = player.runtime.begin_step([StepInput(seq)])
    (child,) = step.wait_pre()[seq].children
    player.seqs.append(child)
    step.wait()
    errors: dict[int, AiciError | None] = {}
    for _ in range(20):
        going = [s for s in (seq, child) if s not in errors]
        if going:
            result = player.step(*going).mid
            errors |= {s: result[s].error for s in going if result[s].verb == Verb.ERROR}
    assert {s: error and error.code for s, error in errors.items()} == {seq: "livelock", child: "livelock"}


def test_a_flood_of_output_is_cut(player: Player) -> None:
    seq = player.start("log_flood")
    player.mid(seq)
    result = player.mid(seq, 1)
    while result.verb == Verb.LATE:
        result = player.mid(seq)
    assert result.verb == Verb.SAMPLE
    text = player.logs[seq]
    assert text.startswith("00000000 flood\n") and len(text) < 70_000
    assert "bytes of output dropped" in text


_PRINTS_AND_FAILS = """
#include <aici.h>
#include <stdio.h>
AICI_CONTROLLER
static aici_step_arg arg = {sizeof arg};
static aici_mid_result result = {sizeof result, AICI_SAMPLE, AICI_ROW_ALL};
AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }
AICI_EXPORT(aici_init) int aici_init(uint32_t size) {
    printf("in init\\n");
    if (size) aici_fail("no such luck", 12);
    return 0;
}
AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) {
    printf("in mid\\n");
    aici_fail("no such luck", 12);
    return &result;
}
"""


def test_an_error_carries_the_log(player: Player, tmp_path: Path) -> None:
    source = tmp_path / "fails.c"
    source.write_text(_PRINTS_AND_FAILS)
    module = player.runtime.upload(build_controller(source, tmp_path / "fails.wasm").path).id
    with pytest.raises(ArgumentError, match="no such luck") as caught:
        player.runtime.instantiate(module, "x")
    assert caught.value.detail["log"] == "in init\n"
    error = player.mid(player.runtime.instantiate(module, "")).error
    assert error is not None and error.detail["log"] == "in init\nin mid\n"


def idle_worker(player: Player) -> dict[str, int]:
    """Waits until the worker has freed all sequences, and returns its health.

    Messages and health calls take different channels, so the worker may answer before it has freed them.
    """
    while (worker := player.runtime.health()["workers"][0])["sequences"]:
        time.sleep(0.01)
    return worker  # type: ignore[no-any-return]


def descriptors_and_maps(player: Player, pid: int) -> tuple[int, int]:
    """Counts those of a worker that has freed all guests: the numbers have stayed the same for some time."""
    process, counts = Path(f"/proc/{pid}"), []
    while len(counts) < 5 or len(set(counts[-5:])) > 1:
        player.runtime.health()  # after each call, the worker frees guests
        maps = (process / "maps").read_text().splitlines()
        counts.append((len(list((process / "fd").iterdir())), len(maps)))
    return counts[-1]


def test_failed_sequences_leak_no_descriptors_and_no_memory_maps(player: Player) -> None:
    """The worker keeps no sequence of a failed guest, and its descriptors and memory maps do not grow."""
    counts = []
    for _ in range(3):
        for mode in ("mid_trap", "fork 5", "pre_loop", "mid_bad_row", "prompt_trap"):
            try:
                seq = player.start(mode)
                player.mid(seq)
                player.mid(seq, 1)
            except AiciError:
                continue
        player.close()
        player.mid(player.start("ok"))
        player.close()
        worker = idle_worker(player)
        if os.getuid():  # the worker is not dumpable: only root may look
            continue
        counts.append(descriptors_and_maps(player, worker["pid"]))
    assert counts[1:2] == counts[2:3]
    assert player.runtime.health()["restarts"] == 0
