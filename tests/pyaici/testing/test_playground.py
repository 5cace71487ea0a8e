"""The playground behaves like an engine: results, logs, and the information that controllers get."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aicirt.contract.abi import RowKind, Verb
from aicirt.contract.errors import ArgumentError, DeadlockError, ModuleError, UnknownControllerError
from aicirt.contract.messages import StepInput
from pyaici.client import step as client_step
from pyaici.client.arguments import MASK_ONLY
from pyaici.client.control import Daemon
from pyaici.client.results import MidResult
from pyaici.client.step import Step
from pyaici.testing import Playground, Transcript, Wish, small_vocabulary
from pyaici.tokens import Vocabulary
from pyaici.toolchain import build_controller
from tests.thorough import cases

GUESTS = Path(__file__).resolve().parents[2]
Play = Callable[..., Transcript]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("guests")
    build_controller(GUESTS / "controllers" / "guests" / "script.cpp", folder / "script.wasm")
    build_controller(GUESTS / "guests" / "guest.c", folder / "guest.wasm")
    build_controller(GUESTS / "guests" / "flags.c", folder / "flags.wasm")
    return folder


@pytest.fixture(scope="module")
def playground() -> Iterator[Playground]:
    # limits are high, since a virtual machine charges a guest for time that its host takes away
    with Playground(limits={"max_suspended_steps": 5, "pre_ms": 50, "post_ms": 50}) as playground:
        yield playground


@pytest.fixture
def play(playground: Playground, folder: Path) -> Play:
    """Returns a function that plays commands of tests/controllers/guests/script.cpp."""

    def run(*lines: str, wish: str = "", **options: object) -> Transcript:
        return playground.play(folder / "script.wasm", wish, arg="\n".join(lines), **options)  # type: ignore[arg-type]

    return run


def free_steps(count: int) -> list[str]:
    return ["pre go", "mid any", *["post go", "pre go", "mid any"] * (count - 1)]


def test_unconstrained_text_equals_the_wish(play: Play, playground: Playground) -> None:
    transcript = play(*free_steps(10), wish="the cat sat.")
    assert (transcript.text, transcript.history) == ("the cat sat.", "the cat sat.")
    assert (transcript.finish_reason, transcript.error, transcript.suspended) == ("eos", None, 0)
    expected = [*playground.tokenize(b"the cat sat."), *playground.vocabulary.eos]
    assert transcript.tokens == expected
    reported = [
        line.split("=")[1].split() for line in transcript.log.splitlines() if line.startswith("post=")
    ]
    assert [int(token) for line in reported for token in line] == expected, "eos is reported too"


def test_prompts_are_texts_or_tokens(play: Play) -> None:
    for prompt in ("the cat", [256, 312]):
        log = play("pre go", "mid stop", prompt=prompt).log
        assert log.startswith("prompt=256 312 \n")
    begin = small_vocabulary().bos
    assert play("pre go", "mid stop").log.startswith(f"prompt={begin} \n"), "no model reads an empty text"


def test_history_shows_samples_and_splices_in_order(play: Play) -> None:
    vocabulary = small_vocabulary()
    cat = vocabulary.tokens.index(b" cat")
    lines = [*free_steps(2), "post go", "pre go", f"mid splice 1 {cat} 33", "post go", "pre go", "mid stop"]
    transcript = play(*lines, wish="the dog")
    assert transcript.history == "the dog<- dog>{ cat!}" and transcript.text == "the cat!"
    assert [a.verb for a in transcript.answers] == [Verb.SAMPLE, Verb.SAMPLE, Verb.SPLICE, Verb.STOP]
    assert transcript.log.splitlines()[-2].startswith(f"post={cat} 33")
    assert "sampled=0 backtrack=1" in transcript.log.splitlines()[-1]


@pytest.mark.parametrize(
    ("splice", "history"),
    [
        ("0 98", "a{b}c"),
        ("0 120", "a{x}bc"),
        ("0", "abc"),
        ("1", "a<-a>abc"),
        ("1 120", "a<-a>{x}bc"),
        ("1 97", "a<-a>{a}bc"),
    ],
)
def test_model_continues_its_wish_after_forced_removed_and_replaced_text(
    play: Play, splice: str, history: str
) -> None:
    lines = ["pre go", "mid set 97", "post go", "pre go", f"mid splice {splice}"]
    if splice != "0":  # else there is nothing to process
        lines.append("post go")
    lines += ["pre fork 2", "mid any", *["post go", "pre go", "mid any"] * 4]
    played = play(*lines, wish="abc", prompt="the cat")
    assert [one.history for one in played.all] == [history] * 2


def test_rows_of_every_kind_restrict_the_text(play: Play) -> None:
    rows = ["set 120 121", "force 122", "sparse 97 98", "dense", "given 65 66", "same"]
    lines = [f"mid {row}" for row in rows]
    script = [part for line in lines for part in ("pre go", line, "post go")]
    transcript = play(*script, "pre go", "mid stop", wish="yab")
    kinds = [a.row.kind for a in transcript.answers if a.row is not None]
    assert kinds == [RowKind.BITMASK, RowKind.TOKEN, RowKind.SPARSE, RowKind.DENSE, *[RowKind.BITMASK] * 2]
    assert transcript.text[:4] == "yzab" and set(transcript.text[4:]) <= {"A", "B"}
    given = transcript.answers[4].row
    assert given is not None and given.bits is not None and given.temperature == 0.5
    assert np.flatnonzero(np.unpackbits(given.bits.view(np.uint8), bitorder="little")).tolist() == [65, 66]
    assert "mass=1.00" in transcript.log.splitlines()[9], "the dense row allows all tokens"


def test_logprob_mass_and_top_tokens_are_reported(play: Play, playground: Playground) -> None:
    transcript = play("pre go", "mid given 98 99", "post go", "pre go", "mid stop", wish="abc")
    line = transcript.log.splitlines()[-1]
    x = playground_logprobs("abc", playground.vocabulary, temperature=0.5)
    allowed = np.exp(x[[98, 99]]).sum()
    token = transcript.tokens[0]
    assert f"logprob={x[token]:.2f} mass={allowed:.2f} " in line
    assert f" 97:{x[97]:.2f} 98:{x[98]:.2f} 99:{x[99]:.2f} " in line


def playground_logprobs(text: str, vocabulary: Vocabulary, temperature: float) -> np.ndarray:
    logits = Wish(text, vocabulary).logits(0) / temperature
    return logits - np.log(np.exp(logits).sum())


def test_forks_end_independently_and_suspended_steps_are_counted(play: Play) -> None:
    transcript = play("pre fork 3", "mid any", "post go", "pre go", "mid any", wish="a")
    assert [t.text for t in transcript.all] == ["a"] * 3
    assert all(t.forks == [] and t.finish_reason == "eos" for t in transcript.forks)
    assert len({t.log for t in transcript.all}) == 3, "each fork prints its own number"
    waiting = play("pre suspend", "pre suspend", "pre go", "mid stop")
    assert (waiting.suspended, waiting.finish_reason) == (2, "stop")


def test_log_of_a_fork_begins_at_the_fork(play: Play) -> None:
    first, fork = play(*free_steps(1), "post go", "pre fork 2", "mid stop", wish="ab").all
    assert first.log.startswith("prompt=") and "post=97" in first.log
    assert fork.log and "prompt=" not in fork.log and "post=" not in fork.log


def test_temperature_depends_on_the_seed_and_the_fork(play: Play) -> None:
    lines = ["pre fork 4", *free_steps(30)[1:]]
    texts = [t.text for t in play(*lines, wish="abcdefgh", temperature=8.0, seed=5).all]
    assert len(set(texts)) > 1
    assert [t.text for t in play(*lines, wish="abcdefgh", temperature=8.0, seed=5).all] == texts
    assert [t.text for t in play(*lines, wish="abcdefgh", temperature=8.0, seed=6).all] != texts


def test_every_reason_for_the_end_of_a_text(play: Play, playground: Playground, folder: Path) -> None:
    assert (play(*free_steps(9), wish="abcdef", max_tokens=3).text) == "abc"
    assert play(*free_steps(9), wish="abcdef", max_tokens=3).finish_reason == "length"
    cut = play("pre go", "mid splice 0 65 66 67 68", "post go", "pre go", "mid any", max_tokens=3)
    assert (cut.text, cut.finish_reason) == ("ABC", "length") and "post=65 66 67 " in cut.log
    end = playground.vocabulary.eos[0]
    spliced = play("pre go", f"mid splice 0 65 {end}", "post go", "pre go", "mid any")
    assert (spliced.text, spliced.finish_reason) == ("A", "eos")
    failed = play("pre go", "mid fail because")
    assert (failed.finish_reason, str(failed.error)) == ("error", "because")
    stopped = play("pre go", "mid any", "post stop", wish="ab")
    assert (stopped.text, stopped.finish_reason) == ("a", "stop")
    deadlock = playground.play(folder / "guest.wasm", "ab", arg="suspend")
    assert isinstance(deadlock.error, DeadlockError) and deadlock.text
    idle = ["pre go", "mid splice 0"] * 21
    assert play(*idle, max_tokens=2).finish_reason == "work"


def test_held_end_lets_the_controller_continue(playground: Playground, folder: Path) -> None:
    (end,) = playground.vocabulary.eos

    def held(arg: str, **options: object) -> Transcript:
        return playground.play(folder / "flags.wasm", "ab", arg=arg, **options)  # type: ignore[arg-type]

    back = held("e1b0a0")
    assert (back.text, back.history, back.finish_reason) == ("xab", "<->{x}ab", "eos")
    assert (held("e1x0").tokens, held("e1x0").finish_reason) == ([end], "stop")
    assert (held("e0x0").tokens, held("e0x0").finish_reason) == ([end], "eos")
    assert (held("d1s0x0").text, held("d0s0x0").finish_reason) == ("x", "eos")
    assert held("e1", max_tokens=1).finish_reason == "length"
    assert held("e1x0", capabilities=MASK_ONLY).finish_reason == "eos"


@pytest.fixture
def steps(playground: Playground, monkeypatch: pytest.MonkeyPatch) -> list[list[StepInput]]:
    """The reports of each step that the test's controllers get."""
    steps: list[list[StepInput]] = []
    begin_step = playground.runtime.begin_step

    def listen(inputs: Sequence[StepInput]) -> Step:
        steps.append(list(inputs))
        return begin_step(inputs)

    monkeypatch.setattr(playground.runtime, "begin_step", listen)
    return steps


def test_logprobs_are_not_sent_when_post_process_is_skipped(
    playground: Playground, folder: Path, steps: list[list[StepInput]]
) -> None:
    playground.play(folder / "flags.wasm", "abcd", arg="a0a4k4x0")
    logprobs = [item.logprob for inputs in steps for item in inputs if item.sampled]
    assert [value == value for value in logprobs] == [True, False, True]


def test_last_tokens_are_reported_in_the_next_step_of_the_others(
    play: Play, playground: Playground, steps: list[list[StepInput]]
) -> None:
    (end,) = playground.vocabulary.eos
    lines = ["pre fork 2", f"mid set 97 {end}", "post go", "pre go", "mid any", "post go"]
    played = play(*lines, wish="a", temperature=4.0, seed=2)
    assert sorted((one.text, one.finish_reason) for one in played.all) == [("", "eos"), ("a", "eos")]
    assert [[item.final for item in inputs] for inputs in steps] == [[False], [False, True], [True]]


#: of the property test
EXAMPLES = cases(20, 40)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000), temperature=st.sampled_from([0.0, 5.0]))
def test_skipping_callbacks_changes_no_answers(
    playground: Playground, folder: Path, seed: int, temperature: float
) -> None:
    """Uses guests whose answers depend on all the information they get, whichever callback gets it first."""
    plain, skipping = (
        playground.play(
            folder / "flags.wasm", "the end", arg=f"{mode}{seed}", temperature=temperature, max_tokens=30
        )
        for mode in "#+"
    )
    assert len(plain.all) == len(skipping.all)
    for one, other in zip(plain.all, skipping.all, strict=True):
        assert (one.tokens, one.history, one.finish_reason) == (
            other.tokens,
            other.history,
            other.finish_reason,
        )
        assert one.error is None and one.suspended == other.suspended
        assert _answers(one) == _answers(other)
    calls = ["".join(transcript.log for transcript in one.all) for one in (plain, skipping)]
    for callback in ("pre", "post"):
        assert calls[0].count(callback) >= calls[1].count(callback)


def _answers(transcript: Transcript) -> list[object]:
    """Returns the answers, without those that were late on a busy machine."""
    return [
        (answer.verb, answer.hold_end, answer.backtrack, answer.ff_tokens, _row(answer))
        for answer in transcript.answers
        if answer.verb != Verb.LATE
    ]


def _row(answer: MidResult) -> object:
    row = answer.row
    return row and (row.kind, None if row.bits is None else row.bits.tolist())


def test_missing_capabilities_and_invalid_controllers_are_errors(
    play: Play, playground: Playground, tmp_path: Path
) -> None:
    refused = play("pre fork 2", capabilities=MASK_ONLY)
    assert refused.error is not None and refused.error.code == "capability"
    with pytest.raises(ArgumentError, match="refused"):
        play("refuse")
    with pytest.raises(UnknownControllerError, match="nowhere"):
        playground.play("nowhere.wasm")
    wrong = tmp_path / "wrong.wasm"
    wrong.write_bytes(b"\0asm")
    with pytest.raises(ModuleError):
        playground.play(wrong)


def test_no_sequence_is_left_in_the_runtime(play: Play, playground: Playground) -> None:
    play("pre fork 3", *free_steps(4)[1:], wish="abc")
    play("pre go", "mid fail because")
    assert playground.runtime._live == {}


def test_results_do_not_depend_on_the_speed_of_the_machine(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that gets no CPU for longer than an engine waits makes no sequence late."""
    monkeypatch.setattr(client_step, "LATE_SECONDS", 0.0)
    lines = ["pre fork 2", "mid any", *["post go", "pre go", "mid any"] * 60]
    with Playground() as playground:
        (worker,) = playground.runtime.health()["workers"]
        before = playground.runtime.health()["workers"][0]["counters"]
        over = threading.Event()

        def interrupt() -> None:
            while not over.wait(random.uniform(0, 0.003)):
                os.kill(worker["pid"], signal.SIGSTOP)
                over.wait(0.12)
                os.kill(worker["pid"], signal.SIGCONT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            played = playground.play(folder / "script.wasm", "a" * 80, arg="\n".join(lines)).all
        finally:
            over.set()
            thread.join()
        counters = playground.runtime.health()["workers"][0]["counters"]
    assert [len(transcript.tokens) for transcript in played] == [61, 61]
    assert [transcript.suspended for transcript in played] == [0, 0]
    assert all(len(transcript.answers) == 61 for transcript in played)
    assert counters.get("late") == before.get("late")


def test_module_needs_neither_torch_nor_an_extra() -> None:
    heavy = {"torch", "transformers", "tokenizers", "rich", "gguf", "jinja2", "fastapi"}
    code = f"import pyaici.testing, sys; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_playground_has_its_own_limits_beside_a_shared_daemon(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With $AICI_SOCKET it used the daemon there, and ignored its limits."""
    with Daemon(workers=1) as daemon:
        monkeypatch.setenv("AICI_SOCKET", str(daemon.socket_path))
        with Playground(limits={"log_bytes": 40}) as playground:
            assert playground.runtime.health()["pid"] != daemon.pid
