"""Controllers in a loop that samples one token per row: their reports, and the masks of rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicirt.contract.abi import RowKind, Verb
from aicirt.contract.errors import (
    ArgumentError,
    CapabilityError,
    ControllerError,
    LivelockError,
    ResultError,
    TrapError,
)
from aicirt.contract.messages import StepInput
from pyaici.client.results import MidResult, Row
from pyaici.client.runtime import Runtime
from pyaici.engines.controlled_rows import ControlledRows, OverruledError
from pyaici.testing.playground import PATIENT
from pyaici.tokens import Vocabulary
from pyaici.toolchain import build_controller
from tests.pyaici.engines.batching.scripted import (
    LATE,
    STOP,
    Script,
    ScriptedRuntime,
    allow,
    anything,
    splice,
)
from tests.pyaici.engines.batching.support import BOS, EOS, WIDTH

PROMPT = [BOS, 72, 101, 108]
GUEST = Path(__file__).resolve().parents[2] / "guests" / "guest.c"


def start(script: Script, *, ends: tuple[int, ...] = (EOS,)) -> tuple[Any, Any]:
    runtime = ScriptedRuntime(script=lambda arg, prompt: script)
    lines: ControlledRows[str] = ControlledRows(runtime)  # type: ignore[arg-type]
    lines.start_controller("row", "script", "x", PROMPT, ends)
    return lines, runtime


def forced(row: Row) -> int:
    assert row.kind == RowKind.TOKEN
    return row.token


def test_a_row_is_unchanged_until_a_token_arrives() -> None:
    script = Script(allow(10), allow(20))
    lines, runtime = start(script)
    assert [lines.rows()["row"].permits(t) for t in (9, 10)] == [False, True]
    assert lines.rows()["row"].permits(10), "a pass whose token was dropped must get the same row"
    assert runtime.steps == 1
    lines.report_token("row", 10)
    assert lines.rows()["row"].permits(20) and runtime.steps == 2
    assert script.reports == [StepInput(100), StepInput(100, [10], sampled=True)]


def test_sampling_a_forbidden_token_is_an_error() -> None:
    lines, _ = start(Script(allow(10)))
    lines.rows()
    with pytest.raises(OverruledError, match="token 11 was sampled, which the controller forbade"):
        lines.report_token("row", 11)


def test_a_splice_is_forced_token_by_token() -> None:
    script = Script(splice([65, 66]), allow(10))
    lines, _ = start(script)
    assert forced(lines.rows()["row"]) == 65
    lines.report_token("row", 65)
    assert forced(lines.rows()["row"]) == 66
    with pytest.raises(OverruledError, match="token 67 was sampled where the controller forced 66"):
        lines.report_token("row", 67)


def test_a_stop_forces_the_first_end_token_and_any_end_token_ends_the_row() -> None:
    lines, runtime = start(Script(STOP), ends=(EOS, 5))
    assert forced(lines.rows()["row"]) == EOS
    script = Script(allow(5), allow(6))
    lines, runtime = start(script, ends=(EOS, 5))
    lines.rows()
    lines.report_token("row", 5)
    assert lines.rows() == {} and runtime.freed == [100]
    assert script.reports[-1].tokens == [5], "the controller must receive the end token"


def test_rows_can_be_dropped_while_their_controllers_run() -> None:
    scripts = iter([Script(allow(10)), Script(allow(20))])
    runtime = ScriptedRuntime(script=lambda arg, prompt: next(scripts))
    lines: ControlledRows[int] = ControlledRows(runtime)  # type: ignore[arg-type]
    lines.start_controller(1, "script", "x", PROMPT, [EOS])
    lines.start_controller(2, "script", "x", PROMPT, [EOS])
    assert set(lines.rows()) == {1, 2}
    lines.report_token(1, 10)
    lines.drop([1])
    lines.report_token(2, 20)
    assert set(lines.rows()) == {2} and runtime.freed == [100]
    lines.close()
    assert lines.rows() == {} and not runtime.live


def test_a_controller_without_progress_ends_its_row() -> None:
    lines, _ = start(Script(splice([])))
    assert forced(lines.rows()["row"]) == EOS and isinstance(lines.errors["row"], LivelockError)
    lines, _ = start(Script(*[LATE] * 999, allow(10), *[LATE] * 999, allow(11)))
    lines.rows()
    lines.report_token("row", 10)
    assert lines.rows()["row"].permits(11) and lines.errors == {}, "a token must reset the count"


def test_reports_are_posted_once_all_rows_of_a_pass_have_their_tokens() -> None:
    runtime = ScriptedRuntime(script=lambda arg, prompt: Script(anything()))
    lines: ControlledRows[int] = ControlledRows(runtime)  # type: ignore[arg-type]
    for key in range(3):
        lines.start_controller(key, "script", "x", PROMPT, [EOS])
    for read in (lines.rows, lambda: [lines.row(key) for key in range(3)]):
        read()
        steps = runtime.steps
        lines.report_token(0, 65)
        lines.report_token(1, 65)
        assert runtime.steps == steps
        lines.report_token(2, 65)
        assert runtime.steps == steps + 1, "controllers must work while the caller does something else"
        read()
        assert runtime.steps == steps + 1


def test_a_row_without_a_token_delays_reports_only_once() -> None:
    runtime = ScriptedRuntime(script=lambda arg, prompt: Script(anything()))
    lines: ControlledRows[int] = ControlledRows(runtime)  # type: ignore[arg-type]
    for key in range(2):
        lines.start_controller(key, "script", "x", PROMPT, [EOS])
    lines.row(0), lines.row(1)
    lines.report_token(0, 65)  # the other row has been deferred
    assert runtime.steps == 1
    lines.row(0)
    assert runtime.steps == 2
    lines.report_token(0, 65)
    assert runtime.steps == 3


def test_copies_of_rows_go_their_own_ways() -> None:
    lines, runtime = start(Script(splice([65, 66]), anything()))
    lines.rows()
    lines.report_token("row", 65)
    lines.settle()
    lines.copy_row("row", "copy")
    lines.report_token("copy", 66)
    assert forced(lines.rows()["row"]) == 66 and lines.rows()["copy"].kind == RowKind.ALL
    lines.drop(["copy"])
    assert runtime.freed == [101] and set(lines.rows()) == {"row"}
    stopped, _ = start(Script(MidResult(Verb.ERROR, error=ResultError("no"))))
    stopped.rows()
    stopped.copy_row("row", "copy")
    assert stopped.stopped("copy") and stopped.errors["copy"] is stopped.errors["row"]


def test_permits_for_every_kind_of_row() -> None:
    tokens, none = np.array([3, 9, 3, 5], np.uint32), -np.inf
    bias = np.array([1, 2, 1, none], np.float32)
    for row, yes, no in (
        (Row(RowKind.ALL), [0, 300], []),
        (Row(RowKind.TOKEN, token=7), [7], [0, 8]),
        (Row(RowKind.BITMASK, bits=np.array([1, 1 << 31], np.uint32)), [0, 63], [1, 31, 62, 64, 1000]),
        (Row(RowKind.SPARSE, default=none, tokens=tokens, bias=bias), [3, 9], [0, 5]),
        (Row(RowKind.SPARSE, default=0.0, tokens=tokens, bias=bias), [0, 3, 9], [5]),
        (Row(RowKind.DENSE, bias=np.array([none, -3], np.float32)), [1], [0, 2]),
    ):
        assert all(row.permits(token) for token in yes) and not any(row.permits(token) for token in no), row


# -- with controllers in separate processes ------------------------------------------------------


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    guest = build_controller(GUEST, tmp_path_factory.mktemp("guest") / "guest.wasm").path
    names = {BOS: "<s>", EOS: "</s>"}
    tokens = [bytes([i]) for i in range(256)] + [b"", b""]
    with Runtime(workers=1, limits=PATIENT) as runtime:
        runtime.register(Vocabulary(tokens, names, eos=(EOS,), bos=BOS, vocab_size=WIDTH))
        runtime.tag(runtime.upload(guest).id, "guest")
        yield runtime


def test_ends_and_errors_of_real_controllers(runtime: Runtime) -> None:
    lines: ControlledRows[str] = ControlledRows(runtime)
    modes = ["mid_trap", "mid_return_stop", "ok", "fork 2", "suspend", "splice 1"]
    for mode in modes:
        lines.start_controller(mode, "guest", mode, PROMPT, [EOS])
    for refusal, error in (("init_refuse", ArgumentError), ("prompt_refuse", ControllerError)):
        with pytest.raises(error):
            lines.start_controller(refusal, "guest", refusal, PROMPT, [EOS])
    assert set(lines.rows()) == set(modes) and not any(map(lines.stopped, modes))
    for mode in modes:
        lines.report_token(mode, 20)
    second = lines.rows()
    ended = {mode for mode in modes if mode in second and second[mode].kind == RowKind.TOKEN}
    assert ended == {"mid_trap", "mid_return_stop", "fork 2", "suspend", "splice 1"}
    assert isinstance(lines.errors["mid_trap"], TrapError) and "mid_return_stop" not in lines.errors
    assert {type(lines.errors[mode]) for mode in ("fork 2", "suspend", "splice 1")} == {CapabilityError}
    assert second["ok"].permits(20)
    lines.close()
    assert lines.rows() == {}
