"""Every verb, row kind and argument field."""

from __future__ import annotations

import math
import time
from pathlib import Path

import numpy as np
import pytest

from aicirt.contract.abi import RowKind, Verb
from aicirt.contract.errors import (
    ControllerError,
    ResultError,
    UnknownControllerError,
    UnknownSequenceError,
    VocabularyError,
)
from aicirt.contract.messages import StepInput, Truncation
from pyaici.client.arguments import MASK_ONLY
from pyaici.client.channel import MAX_UNCLAIMED
from pyaici.client.runtime import Runtime
from pyaici.toolchain import build_controller

from .conftest import Player, also_real


def allowed(bits: np.ndarray) -> list[int]:
    return np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little")).tolist()


def test_each_step_has_its_own_mask(player: Player) -> None:
    seq = player.start("ok")
    for number in range(1, 30):
        result = player.mid(seq, *([5] if number > 1 else []))
        assert result.verb == Verb.SAMPLE and result.row is not None and result.row.bits is not None
        assert result.row.kind == RowKind.BITMASK
        assert result.row.bits.shape == (10,) and result.row.bits.dtype == np.uint32
        assert allowed(result.row.bits) == sorted({1 + number % 8, 20})


def test_a_row_is_unchanged_until_the_next_step_of_its_sequence(player: Player) -> None:
    one, two = player.start("ok"), player.start("ok")
    row = player.mid(one).row
    assert row is not None and row.bits is not None
    before = row.bits.copy()
    for _ in range(600):  # more than there are rows
        player.mid(two)
    assert (row.bits == before).all()


@pytest.mark.parametrize(
    "mode,kind,value",
    [("all", RowKind.ALL, None), ("token 42", RowKind.TOKEN, 42)],
)
def test_rows_without_memory(player: Player, mode: str, kind: RowKind, value: int | None) -> None:
    seq = player.start(mode)
    player.mid(seq)
    row = player.mid(seq, 1).row
    assert row is not None and row.kind == kind
    assert value is None or row.token == value


def test_sparse_rows(player: Player) -> None:
    seq = player.start("sparse 9")
    player.mid(seq)
    row = player.mid(seq, 1).row
    assert row is not None and row.kind == RowKind.SPARSE and row.default == -math.inf
    assert row.tokens is not None and row.bias is not None
    assert (row.tokens.tolist(), row.bias.tolist()) == ([3, 9], [0.5, -1.0])


def test_dense_rows(player: Player) -> None:
    seq = player.start("dense")
    player.mid(seq)
    for _ in range(20):  # more than there are dense rows
        row = player.mid(seq, 1).row
        assert row is not None and row.kind == RowKind.DENSE and row.bias is not None
        assert row.bias.tolist() == list(range(300))


@also_real
def test_many_sequences_have_dense_rows_at_a_time(player: Player) -> None:
    seqs = [player.start("dense") for _ in range(40)]
    for tokens in ([], [1], [2]):
        result = player.runtime.begin_step([StepInput(seq, tokens) for seq in seqs]).wait()
        assert [result.mid[seq].error for seq in seqs] == [None] * 40
    assert [mid.row.kind for mid in result.mid.values() if mid.row] == [RowKind.DENSE] * 40


def test_a_row_can_be_repeated_without_copying(player: Player) -> None:
    seq = player.start("same")
    first = player.mid(seq).row
    again = player.mid(seq, 1).row
    assert first is not None and again is not None and again.bits is first.bits


@pytest.mark.parametrize("tenths,expected", [(0, None), (7, 0.7), (-10, 0.0)])
def test_temperature(player: Player, tenths: int, expected: float | None) -> None:
    seq = player.start(f"temperature {tenths}")
    player.mid(seq)
    row = player.mid(seq, 1).row
    assert row is not None and row.temperature == pytest.approx(expected)


@also_real
def test_the_controller_receives_all_fields_of_a_token_report(player: Player) -> None:
    seq = player.start("report 3")
    player.mid(seq)
    player.mid(seq, 65, sampled=True, logprob=-1.5, allowed_mass=0.25, top_logprobs=[(66, -0.5), (65, -1.5)])
    player.mid(seq, 70, 71, backtrack=1)
    assert player.logs[seq].splitlines() == [
        "post: -0 +1 first 65 sampled 1 logprob -1.50 mass 0.25 top 2",
        "top: 66 -0.50",
        "post: -1 +2 first 70 sampled 0 logprob nan mass nan top 0",
    ]


def test_only_controllers_with_post_process_want_logprobs(player: Player, tmp_path: Path) -> None:
    runtime, seq = player.runtime, player.start("ok")
    child = runtime.clone(seq)
    player.seqs.append(child)
    assert runtime.wants_logprobs(seq) and runtime.wants_logprobs(child)
    lone = tmp_path / "lone.c"
    lone.write_text(
        '#include "aici.h"\n'
        "AICI_CONTROLLER\n"
        "static aici_step_arg arg = {sizeof arg};\n"
        "static aici_mid_result result = {sizeof result, AICI_SAMPLE, AICI_ROW_ALL};\n"
        "AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }\n"
        "AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) { return &result; }\n"
    )
    built = build_controller(lone, tmp_path / "lone.wasm")
    plain = runtime.instantiate(runtime.upload(built.path).id)
    assert not runtime.wants_logprobs(plain)
    runtime.free([plain])
    with pytest.raises(UnknownSequenceError):
        runtime.wants_logprobs(plain)


_SAMPLES = r"""
#include <unistd.h>
#include "aici.h"
AICI_CONTROLLER
static aici_step_arg arg = {sizeof arg};
static aici_mid_result result = {sizeof result, AICI_SAMPLE, AICI_ROW_ALL};
AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }
AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) { %s return &result; }
"""


@pytest.mark.parametrize(
    "what,repeatable",
    [
        ("", True),
        ('aici_var_get("a", 1, 0); aici_fail("no", 2);', True),
        ('aici_var_write("a", 1, "b", 1, AICI_SET, AICI_ANY_VERSION);', False),
        ("static char seed; getentropy(&seed, 1);", False),
        ('aici_call("a", 1, "1", 1);', False),
    ],
    ids=["pure", "reads", "writes", "random", "calls"],
)
def test_a_controller_without_side_effects_is_repeatable(
    player: Player, tmp_path: Path, what: str, repeatable: bool
) -> None:
    runtime, source = player.runtime, tmp_path / "source.c"
    source.write_text(_SAMPLES % what)
    seq = runtime.instantiate(runtime.upload(build_controller(source, tmp_path / "source.wasm").path).id)
    player.seqs.append(seq)
    assert runtime.is_repeatable(seq) == repeatable


def test_a_controller_with_more_callbacks_is_not_repeatable(player: Player) -> None:
    seq = player.start("ok")
    assert not player.runtime.is_repeatable(seq)
    player.mid(seq)
    player.seqs.append(player.runtime.clone(seq))
    assert not player.runtime.is_repeatable(player.seqs[-1])


def test_a_temperature_may_be_any_positive_number(player: Player) -> None:
    seq = player.start("temperature_largest")
    player.mid(seq)
    row = player.mid(seq, 1).row
    assert row is not None and row.temperature == pytest.approx(3e38)


@pytest.mark.parametrize(
    "argument,expected",
    [
        ("top_p 5", Truncation(top_p=0.5)),
        ("top_k 40", Truncation(top_k=40)),
        ("top_k -1", Truncation(top_k=0xFFFFFFFF)),
        ("min_p 1", Truncation(min_p=float(np.float32(0.1)))),
        ("typical_p 10", Truncation(typical_p=1.0)),
        ("top_n_sigma 15", Truncation(top_n_sigma=1.5)),
        ("without_truncation", None),
    ],
)
def test_options_that_leave_out_tokens(player: Player, argument: str, expected: Truncation | None) -> None:
    seq = player.start(argument)
    assert (first := player.mid(seq).row) is not None and first.truncation is None
    row = player.mid(seq, 1).row
    assert row is not None and row.truncation == expected


@pytest.mark.parametrize(
    "argument,message",
    [
        ("top_p 11", "top_p is 1.1; it must be 0 (the request's) to 1"),
        ("min_p -1", "min_p is -0.1"),
        ("min_p_nan", "min_p is nan"),
        ("typical_p 20", "typical_p is 2"),
        ("top_n_sigma -5", "top_n_sigma is -0.5; it must be 0 (the request's) or positive"),
        ("top_n_sigma_inf", "top_n_sigma is inf"),
    ],
)
def test_options_out_of_range_end_their_own_sequence(player: Player, argument: str, message: str) -> None:
    seq, other = player.start(argument), player.start("ok")
    player.mid(seq)
    player.mid(other)
    error = player.mid(seq, 1).error
    assert isinstance(error, ResultError) and message in error.message
    assert player.mid(other, 1).verb == Verb.SAMPLE


def test_options_out_of_range_take_no_row(player: Player) -> None:
    for _ in range(300):  # more than there are mask rows
        seq = player.start("top_p 11")
        player.mid(seq)
        assert isinstance(player.mid(seq, 1).error, ResultError)
        player.runtime.free([seq])


def test_requested_top_logprobs_are_cut_to_its_limit(player: Player) -> None:
    seq = player.start("top 1000")
    player.mid(seq)
    row = player.mid(seq, 1).row
    assert row is not None and row.top_logprobs == 64


def test_splice(player: Player) -> None:
    seq = player.start("splice 3")
    player.mid(seq)
    result = player.mid(seq, 1)
    assert (result.verb, result.backtrack, result.ff_tokens) == (Verb.SPLICE, 3, [7, 8])


def test_backtrack_may_reach_into_the_prompt_but_not_beyond(player: Player) -> None:
    seq, beyond = player.start("splice 4"), player.start("splice 5")
    player.step(seq, beyond)
    result = player.step(StepInput(seq, tokens=[1]), StepInput(beyond, tokens=[1]))
    assert result.mid[seq].backtrack == 4  # three tokens of the prompt and one generated token
    assert result.mid[beyond].verb == Verb.ERROR
    assert "backtrack is 5, but the sequence has 4 tokens" in str(result.mid[beyond].error)


def test_many_tokens_in_one_step(player: Player) -> None:
    seq = player.start("tokens")
    player.mid(seq)
    player.mid(seq, *range(1, 101))
    assert player.logs[seq].splitlines() == [
        "0 tokens (0), sum 0, inline 0",
        "100 tokens (100), sum 5050, inline 2",
    ]


@also_real
def test_fork(player: Player) -> None:
    seq = player.start("fork 3")
    player.mid(seq)
    step = player.runtime.begin_step([StepInput(seq, tokens=[1])])
    pre = step.wait_pre()
    assert pre[seq].verb == Verb.FORK and len(pre[seq].children) == 2
    player.seqs += pre[seq].children
    family = [seq, *pre[seq].children]
    result = step.wait()
    assert set(result.mid) == set(family)
    masks = [m.row.bits.tolist() for m in result.mid.values() if m.row is not None and m.row.bits is not None]
    assert len(masks) == 3 and masks[0] == masks[1] == masks[2]
    assert all(m.verb == Verb.SAMPLE for m in player.answers(*family).values())


def test_a_guest_knows_its_own_number_and_its_fork_group(player: Player) -> None:
    runtime = player.runtime
    seq = player.start("group")
    player.mid(seq)
    assert player.logs[seq] == f"group of 1: {seq}; I am {seq}\n"
    clone = runtime.clone(seq)
    player.seqs.append(clone)
    player.step(seq, clone)
    assert player.logs[clone] == f"group of 1: {clone}; I am {clone}\n"


@pytest.mark.parametrize("count,verb", [(0, Verb.STOP), (1, Verb.SAMPLE)])
def test_fork_of_none_stops_and_of_one_continues(player: Player, count: int, verb: Verb) -> None:
    seq = player.start(f"fork {count}")
    player.mid(seq)
    assert player.mid(seq, 1).verb == verb


def test_suspend_skips_the_round(player: Player) -> None:
    seq, other = player.start("suspend"), player.start("ok")
    player.step(seq, other)
    result = player.step(seq, StepInput(other, tokens=[1]))
    assert result.mid[seq].verb == Verb.SUSPEND and result.mid[other].verb == Verb.SAMPLE


def test_a_step_with_only_suspended_sequences_is_a_deadlock_in_the_end(player: Player) -> None:
    seq = player.start("suspend")
    player.mid(seq)
    verbs = [player.mid(seq).verb for _ in range(6)]
    assert verbs == [Verb.SUSPEND] * 5 + [Verb.ERROR]
    with pytest.raises(UnknownSequenceError):
        player.runtime.begin_step([StepInput(seq)])


@pytest.mark.parametrize(
    "mode", ["pre_return_stop", "post_return_stop", "mid_return_stop", "pre_stop", "post_stop"]
)
def test_stop(player: Player, mode: str) -> None:
    seq = player.start(mode)
    player.mid(seq)
    result = player.mid(seq, 1)
    assert (result.verb, result.error) == (Verb.STOP, None)
    with pytest.raises(UnknownSequenceError):
        player.runtime.begin_step([StepInput(seq)])


@pytest.mark.parametrize("mode", ["mid_stop", "mid_exit 0"])
def test_stop_by_a_function_call(player: Player, mode: str) -> None:
    seq = player.start(mode)
    player.mid(seq)
    assert player.mid(seq, 1).verb == Verb.STOP


def test_output_of_both_streams_arrives(player: Player) -> None:
    seq = player.start("print")
    player.mid(seq)
    player.mid(seq, 1)
    assert player.logs[seq] == "step 2\nto stderr\n"


def test_the_prompt_is_read(player: Player) -> None:
    prompt = tuple(i % 300 for i in range(100_000))
    seq = player.start("prompt_sum", prompt)
    player.mid(seq)
    assert player.logs[seq] == f"100000 tokens, 400000 bytes, sum {sum(prompt) % 2**32}\n"


def test_any_bytes_can_be_tokenized(player: Player) -> None:
    seq = player.start("tokenize")
    player.mid(seq)
    player.mid(seq, 1)
    assert player.logs[seq] == "tokenized into 2: 257 255\na zero byte cannot be spelled\n"


@pytest.mark.parametrize("mode", ["init_tokenize 10", "prompt_tokenize 10", "mid_tokenize 1"])
def test_text_may_be_tokenized_in_init_init_prompt_and_mid_process(player: Player, mode: str) -> None:
    seq = player.start(mode)
    player.mid(seq)
    assert player.mid(seq, 1).verb == Verb.SAMPLE


def test_a_guest_cannot_open_files(player: Player) -> None:
    seq = player.start("fopen")
    player.mid(seq)
    player.mid(seq, 1)
    assert player.logs[seq] == "fopen: refused\n"


def test_capabilities_are_reported_and_enforced(player: Player) -> None:
    seq = player.start("capabilities")
    player.mid(seq)
    player.mid(seq, 1)
    assert player.logs[seq] == "0 1 1 1 1 1 64 1 1 16 1 \n"
    runtime = player.runtime
    for mode, words in [("fork 2", "fork"), ("suspend", "suspend sequences"), ("splice 1", "backtrack")]:
        limited = runtime.instantiate("guest", mode, (1, 2), capabilities=MASK_ONLY)
        player.seqs.append(limited)
        player.mid(limited)
        result = player.mid(limited, 1)
        assert result.verb == Verb.ERROR and result.error is not None
        assert result.error.code == "capability" and words in str(result.error)


def test_a_clone_goes_on_after_its_parent_is_freed(player: Player) -> None:
    seq = player.start("ok")
    for _ in range(3):
        player.mid(seq, 1)
    clone = player.runtime.clone(seq)
    player.seqs.append(clone)
    player.runtime.free([seq])
    row = player.mid(clone, 1).row
    assert row is not None and row.bits is not None and allowed(row.bits) == [5, 20]


def test_unknown_modules_and_sequences_are_refused(player: Player) -> None:
    with pytest.raises(UnknownControllerError, match="nonsense"):
        player.runtime.instantiate("nonsense")
    with pytest.raises(UnknownSequenceError, match="123456"):
        player.runtime.begin_step([StepInput(123456)])
    with Runtime() as empty, pytest.raises(VocabularyError, match="register"):
        empty.instantiate("guest")


def test_a_final_report_delivers_the_last_tokens_and_ends_the_sequence(player: Player) -> None:
    seq = player.start("report 0")
    player.mid(seq)
    result = player.mid(seq, 65, final=True)
    assert (result.verb, result.error, result.row) == (Verb.STOP, None, None)
    assert player.logs[seq].startswith("post: -0 +1 first 65")
    with pytest.raises(UnknownSequenceError):
        player.runtime.begin_step([StepInput(seq)])
    for arg in ("mid_trap", "pre_trap"):  # neither callback is called after the final report
        other = player.start(arg)
        player.mid(other)
        assert player.mid(other, 65, final=True).verb == Verb.STOP
    failing = player.start("post_trap")
    player.mid(failing)
    result = player.mid(failing, 65, final=True)
    assert result.verb == Verb.ERROR and result.error is not None and result.error.code == "trap"


def test_unfetched_steps_do_not_use_up_rows(player: Player) -> None:
    seq = player.start("ok")
    for _ in range(700):  # there are 256 rows
        player.runtime.begin_step([StepInput(seq, tokens=[1])]).wait_pre()
    result = player.mid(seq)
    assert result.verb == Verb.SAMPLE


def test_a_start_without_waiting_is_late_until_init_prompt_ends(player: Player) -> None:
    """Other sequences go on meanwhile."""
    mate = player.start("ok")
    player.mid(mate)
    slow = player.start("prompt_slow 60", wait=False)
    assert player.runtime.is_live(slow)
    results = []
    while not results or results[-1].verb == Verb.LATE:
        result = player.step(StepInput(mate, [1]), StepInput(slow))
        assert result.mid[mate].verb == Verb.SAMPLE
        results.append(result.mid[slow])
    assert len(results) > 1
    row = results[-1].row
    assert row is not None and row.bits is not None
    assert allowed(row.bits) == [2, 20], "the mask must be that of the first step"
    assert player.mid(slow, 2).verb == Verb.SAMPLE


@pytest.mark.parametrize("steps_meanwhile", [True, False])
def test_a_start_without_waiting_reports_its_failure_in_a_step(player: Player, steps_meanwhile: bool) -> None:
    bad = player.start("prompt_refuse", wait=False)
    if not steps_meanwhile:
        time.sleep(0.1)
    results = [player.mid(bad)]
    while results[-1].verb == Verb.LATE:
        results.append(player.mid(bad))
    error = results[-1].error
    assert error is not None and error.code == "failed" and "aici_init_prompt returned 1" in str(error)
    assert not player.runtime.is_live(bad)
    loop = player.start("prompt_loop", wait=False)
    results = [player.mid(loop)]
    while results[-1].verb == Verb.LATE:
        results.append(player.mid(loop))
    error = results[-1].error
    assert error is not None and error.code == "time_limit" and "aici_init_prompt used" in str(error)
    assert "per step" not in str(error), "that is the limit of mid_process"


def test_copies_can_be_asked_for_while_init_prompt_runs(player: Player) -> None:
    """Copies are made after it. Other sequences go on meanwhile."""
    runtime, mate = player.runtime, player.start("ok")
    slow = player.start("prompt_slow 60", wait=False)
    copies = [runtime.begin_clone(slow) for _ in range(2)]
    early = [runtime.cloned(copies[0])]
    while not early[-1]:
        assert player.step(StepInput(mate, [1] if len(early) > 1 else [])).mid[mate].verb == Verb.SAMPLE
        early.append(runtime.cloned(copies[0]))
    assert len(early) > 1, "init_prompt takes longer than asking"
    assert runtime.cloned(copies[1], 10)
    player.seqs += copies
    result = player.step(slow, *copies)
    for seq in (slow, *copies):
        row = result.mid[seq].row
        assert row is not None and row.bits is not None and allowed(row.bits) == [2, 20]


def test_no_answer_is_lost_if_many_copies_are_asked_for(player: Player) -> None:
    """A client keeps few messages that nobody waits for; answers for copies are not among them."""
    runtime = player.runtime
    seq = player.start("ok", wait=False)
    copies = [runtime.begin_clone(seq) for _ in range(MAX_UNCLAIMED + 40)]
    for copy in reversed(copies):  # the last answer is read first, past all others
        assert runtime.cloned(copy, 20)
    player.seqs += copies
    assert {mid.verb for mid in player.step(*copies).mid.values()} <= {Verb.SAMPLE, Verb.LATE}
    assert not runtime._live.copying


def test_a_failure_of_init_prompt_is_that_of_the_copies_too(player: Player) -> None:
    bad = player.start("prompt_refuse", wait=False)
    copy = player.runtime.begin_clone(bad)
    with pytest.raises(ControllerError, match="aici_init_prompt returned 1"):
        player.runtime.cloned(copy, 10)
    with pytest.raises(UnknownSequenceError, match="being copied"):
        player.runtime.cloned(copy)
    assert player.mid(bad).verb == Verb.ERROR


@pytest.mark.parametrize("arg", ["ok", "prompt_loop"])
def test_the_end_of_a_sequence_ends_the_copies_asked_for(player: Player, arg: str) -> None:
    runtime = player.runtime
    before = runtime.health()["workers"][0]["sequences"]
    seq = player.start(arg, wait=False)
    copy = runtime.begin_clone(seq)
    runtime.free([seq])
    with pytest.raises(UnknownSequenceError, match="being copied"):
        runtime.cloned(copy)
    player.mid(player.start("ok"))  # the worker has read all messages before
    assert runtime.health()["workers"][0]["sequences"] == before + 1


def test_a_start_without_waiting_can_be_freed(player: Player) -> None:
    for _ in range(20):
        player.runtime.free([player.start("prompt_loop", wait=False)])
    seq = player.start("ok", wait=False)
    while player.mid(seq).verb == Verb.LATE:
        pass
    assert sum(worker["sequences"] for worker in player.runtime.health()["workers"]) == 1
