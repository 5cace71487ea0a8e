"""Controllers in a loop that samples one token per row: their reports, and the masks of rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicirt.contract.abi import RowKind
from aicirt.contract.errors import (
    AiciError,
    ArgumentError,
    CapabilityError,
    ControllerError,
    LateError,
    ResultError,
    TrapError,
)
from aicirt.contract.messages import StepInput
from pyaici.build import build_controller
from pyaici.client.results import Row
from pyaici.client.runtime import Runtime
from pyaici.engines.lines import Lines, OverruledError, permits
from pyaici.tokens import Vocabulary
from tests.pyaici.engines.batching.scripted import LATE, STOP, Script, ScriptedRuntime, allow, splice
from tests.pyaici.engines.batching.support import BOS, EOS, WIDTH

PROMPT = [BOS, 72, 101, 108]
GUEST = Path(__file__).resolve().parents[2] / "guests" / "guest.c"


def start(script: Script, *tokens: int, key: str = "row", ends: tuple[int, ...] = (EOS,)) -> tuple[Any, Any]:
    runtime = ScriptedRuntime(script=lambda arg, prompt: script)
    lines: Lines[str] = Lines(runtime)  # type: ignore[arg-type]
    lines.start(key, "script", "x", PROMPT, ends)
    for token in tokens:
        lines.hear(key, token)
    return lines, runtime


def forced(row: Row) -> int:
    assert row.kind == RowKind.TOKEN
    return row.token


def test_a_row_is_unchanged_until_a_token_arrives() -> None:
    script = Script(allow(10), allow(20))
    lines, runtime = start(script)
    assert [permits(lines.rows()["row"], t) for t in (9, 10)] == [False, True]
    assert permits(lines.rows()["row"], 10), "a pass whose token was dropped must get the same row"
    assert runtime.steps == 1
    lines.hear("row", 10)
    assert permits(lines.rows()["row"], 20) and runtime.steps == 2
    assert script.reports == [StepInput(100), StepInput(100, [10], sampled=True)]


def test_a_report_is_posted_once() -> None:
    lines, runtime = start(Script(allow(10)))
    lines.post()
    lines.post()
    assert runtime.steps == 1
    lines.rows()
    assert runtime.steps == 1
    lines.post()
    assert runtime.steps == 1, "there is nothing to report"


def test_earlier_tokens_are_reported_one_by_one() -> None:
    script = Script(allow(10), LATE, allow(20, 21), splice([65, 66]), allow(30), splice([67, 68, 69]))
    lines, runtime = start(script, 10, 20, 65, 66, 30, 67)
    assert forced(lines.rows()["row"]) == 68
    reported = [list(report.tokens) for report in script.reports]
    assert reported == [[], [10], [], [20], [65, 66], [30]]
    assert runtime.steps == 6
    lines.hear("row", 68)
    assert forced(lines.rows()["row"]) == 69 and runtime.steps == 6


@pytest.mark.parametrize(
    ("script", "tokens", "words"),
    [
        (Script(allow(10), allow(20)), [10, 21], "token 21 was sampled, which the controller forbade"),
        (Script(splice([65, 66])), [65, 67], "token 67 was sampled where the controller forced 66"),
        (Script(allow(10), STOP), [10, 20], "stopped earlier than before"),
    ],
)
def test_a_controller_that_rejects_its_earlier_text_ends_its_row(
    script: Script, tokens: list[int], words: str
) -> None:
    lines, runtime = start(script, *tokens)
    assert forced(lines.rows()["row"]) == EOS and lines.stopped("row")
    assert isinstance(lines.errors["row"], ResultError) and words in str(lines.errors["row"])
    assert not runtime.live
    lines.drop(["row"])
    assert lines.rows() == {}


def test_sampling_a_forbidden_token_is_an_error() -> None:
    lines, _ = start(Script(allow(10)))
    lines.rows()
    with pytest.raises(OverruledError, match="token 11 was sampled, which the controller forbade"):
        lines.hear("row", 11)


def test_a_stop_forces_the_first_end_token_and_any_end_token_ends_the_row() -> None:
    lines, runtime = start(Script(STOP), ends=(EOS, 5))
    assert forced(lines.rows()["row"]) == EOS
    script = Script(allow(5), allow(6))
    lines, runtime = start(script, ends=(EOS, 5))
    lines.rows()
    lines.hear("row", 5)
    assert lines.rows() == {} and runtime.freed == [100]
    assert script.reports[-1].tokens == [5], "the controller must receive the end token"


def test_rows_can_be_dropped_while_their_controllers_run() -> None:
    scripts = iter([Script(allow(10)), Script(allow(20))])
    runtime = ScriptedRuntime(script=lambda arg, prompt: next(scripts))
    lines: Lines[int] = Lines(runtime)  # type: ignore[arg-type]
    lines.start(1, "script", "x", PROMPT, [EOS])
    lines.start(2, "script", "x", PROMPT, [EOS])
    assert set(lines.rows()) == {1, 2}
    lines.hear(1, 10)
    lines.drop([1])
    lines.hear(2, 20)
    assert set(lines.rows()) == {2} and runtime.freed == [100]
    lines.close()
    assert lines.rows() == {} and not runtime.live


def test_rows_without_a_controller_are_ended() -> None:
    runtime = ScriptedRuntime()
    lines: Lines[int] = Lines(runtime)  # type: ignore[arg-type]
    lines.stop(7, EOS, AiciError("no"))
    lines.hear(7, 3)
    assert forced(lines.rows()[7]) == EOS and str(lines.errors[7]) == "no" and runtime.steps == 0


def test_a_controller_without_progress_ends_its_row() -> None:
    lines, _ = start(Script(splice([])))
    assert forced(lines.rows()["row"]) == EOS and isinstance(lines.errors["row"], LateError)
    lines, _ = start(Script(*[LATE] * 999, allow(10), *[LATE] * 999, allow(11)), 10)
    assert permits(lines.rows()["row"], 11) and lines.errors == {}, "a token must reset the count"


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
        assert all(permits(row, token) for token in yes) and not any(permits(row, token) for token in no), row


# -- with controllers in separate processes ------------------------------------------------------


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    guest = build_controller(GUEST, tmp_path_factory.mktemp("guest") / "guest.wasm").path
    names = {BOS: "<s>", EOS: "</s>"}
    tokens = [bytes([i]) for i in range(256)] + [b"", b""]
    with Runtime(workers=1) as runtime:
        runtime.register(Vocabulary(tokens, names, eos=(EOS,), bos=BOS, vocab_size=WIDTH))
        runtime.tag(runtime.upload(guest).id, "guest")
        yield runtime


def generate(lines: Lines[int], key: int, count: int, seed: int = 0) -> list[int]:
    """Samples among the tokens that the rows permit."""
    random = np.random.default_rng(seed)
    tokens: list[int] = []
    while len(tokens) < count and not (tokens and tokens[-1] == EOS):
        row = lines.rows()[key]
        tokens.append(int(random.choice([t for t in range(WIDTH) if permits(row, t)])))
        lines.hear(key, tokens[-1])
    return tokens


@pytest.mark.parametrize(
    ("module", "arg"), [("regex", "[a-z]{2,5}[0-9]{3}x*"), ("guest", "splice 0"), ("guest", "sparse 9")]
)
def test_a_controller_that_receives_a_text_again_goes_on_as_before(
    runtime: Runtime, module: str, arg: str
) -> None:
    lines: Lines[int] = Lines(runtime)
    lines.start(0, module, arg, PROMPT, [EOS], seed=1)
    text = generate(lines, 0, 12)
    for cut in range(len(text)):
        lines.start(1, module, arg, PROMPT, [EOS], seed=1, wait=False)
        for token in text[:cut]:
            lines.hear(1, token)
        row = lines.rows()[1]
        assert permits(row, text[cut]), (text, cut)
        assert sum(permits(row, t) for t in range(WIDTH)) < WIDTH
        lines.drop([1])
    assert lines.errors == {}
    lines.close()


def test_ends_and_errors_of_real_controllers(runtime: Runtime) -> None:
    lines: Lines[str] = Lines(runtime)
    modes = ["mid_trap", "mid_return_stop", "ok", "prompt_refuse", "fork 2", "suspend", "splice 1"]
    for mode in modes:
        lines.start(mode, "guest", mode, PROMPT, [EOS], wait=False)
    with pytest.raises(ArgumentError):
        lines.start("x", "guest", "init_refuse", PROMPT, [EOS])
    first = lines.rows()
    assert {mode for mode in modes if lines.stopped(mode)} == {"prompt_refuse"} and set(first) == set(modes)
    assert isinstance(lines.errors["prompt_refuse"], ControllerError)
    for mode in modes:
        lines.hear(mode, 20)
    lines.post()
    lines.drop(["prompt_refuse"])
    second = lines.rows()
    ended = {mode for mode in modes if mode in second and second[mode].kind == RowKind.TOKEN}
    assert ended == {"mid_trap", "mid_return_stop", "fork 2", "suspend", "splice 1"}
    assert isinstance(lines.errors["mid_trap"], TrapError) and "mid_return_stop" not in lines.errors
    assert {type(lines.errors[mode]) for mode in ("fork 2", "suspend", "splice 1")} == {CapabilityError}
    assert permits(second["ok"], 20)
    lines.close()
    assert lines.rows() == {}
