"""Recordings: their contents, files, and the changes that a replay detects."""

from __future__ import annotations

import json
import threading
import tracemalloc
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace as replaced
from pathlib import Path

import pytest

from aicirt.contract.errors import RuntimeFailure, VocabularyError
from aicirt.contract.messages import StepInput
from lab.system.waiting import PATIENCE
from pyaici.client.arguments import ALL, MASK_ONLY, Capabilities
from pyaici.client.step import Step
from pyaici.recording.recorder import RecordingRuntime
from pyaici.recording.recording import (
    Forked,
    Looked,
    RecordedCall,
    Sampled,
    Spliced,
    TranscriptFileError,
    to_json,
)
from pyaici.recording.story import lines_of
from pyaici.recording.vocabulary import small_vocabulary
from pyaici.testing import Playground, Recording, Transcript, read_recording, replay, write_recording
from pyaici.tokens.turns import Role, Turns

SCRIPT = """
from aici import *
async def main():
    await force("A")
    animal = await gen(choice=["cat", "dog"])
    print("found", animal, arg)
    mine = await fork(2)
    await force(str(mine))
    if mine > 0:
        set_var("said", str(mine))
        await gen(max_tokens=1)
        stop()
    await wait("said")
    await gen(stop=".", max_tokens=5)
"""


@pytest.fixture(scope="module")
def playground() -> Iterator[Playground]:
    with Playground() as playground:
        yield playground


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("s.py").write_text(SCRIPT)
    return Path("s.py")


@pytest.fixture
def recording(playground: Playground, script: Path) -> Recording:
    return playground.record(script, "cat is on the mat.", prompt="Hello ", arg={"x": 1})


def edit(script: Path, before: str, after: str) -> None:
    text = script.read_text()
    assert before in text
    script.write_text(text.replace(before, after, 1))


def test_recording_contains_all_events(playground: Playground, recording: Recording) -> None:
    transcript = playground.play("s.py", "cat is on the mat.", prompt="Hello ", arg={"x": 1})
    assert len(recording.sequences) == len(transcript.all) == 2
    first, second = recording.sequences
    sampled = [event for event in first.events if isinstance(event, Sampled)]
    assert recording.text([event.token for event in sampled]) == "cat is on the mat."
    assert all(event.allowed for event in sampled)
    assert (sampled[0].row, sampled[0].num_allowed) == ("bitmask", 2)
    assert sampled[0].mask != sampled[1].mask == sampled[2].mask
    (forked,) = (event for event in first.events if isinstance(event, Forked))
    assert forked.children == [1] and second.parent == 0
    spliced = [event for event in first.events if isinstance(event, Spliced)]
    assert spliced[-1].backtrack == 1, "the full stop is removed"
    assert (first.log, first.finish_reason, second.finish_reason) == (transcript.log, "stop", "stop")
    assert recording.variables == transcript.variables == {"said": b"1"}
    assert recording.text(recording.prompt) == "Hello "


@pytest.mark.parametrize("only", [False, True])
def test_replay_of_an_unchanged_script_passes(recording: Recording, tmp_path: Path, only: bool) -> None:
    write_recording(recording, tmp_path / "r.json")
    read = read_recording(tmp_path / "r.json")
    assert read == recording
    done = replay(read, recorded_only=only, masks=not only)
    assert done.passed, str(done)
    assert done.vocabulary.exact is not only


def test_options_of_sampling_are_recorded_and_compared(playground: Playground, script: Path) -> None:
    script.write_text(
        "from aici import *\n"
        "async def main():\n    await gen(max_tokens=2, temperature=0.5, min_p=0.25, top_k=3)\n"
    )
    recording = playground.record(script, "ab")
    write_recording(recording, Path("r.json"))
    (sequence,) = json.loads(Path("r.json").read_text())["sequences"]
    assert sequence["steps"][0]["truncation"] == {"top_k": 3, "min_p": 0.25}
    assert replay(read_recording("r.json"), masks=True).passed
    edit(script, "min_p=0.25", "top_p=0.5")
    different = str(replay(recording))
    assert "with top_k 3, min_p 0.25" in different and "with top_p 0.5, top_k 3" in different


def test_sampled_token_that_is_now_forbidden_is_a_problem(recording: Recording, script: Path) -> None:
    edit(script, '"cat"', '"cow"')
    done = replay(recording)
    assert done.problems == [
        '#0, step 2: "cat" was sampled, which the controller does not allow now: it allows '
        '2 tokens: "c", "dog"'
    ]
    assert done.differences == [], "consequences of a problem are not shown"


def test_controller_that_wants_more_tokens_than_sampled_is_a_problem(
    recording: Recording, script: Path
) -> None:
    edit(script, 'stop=".", max_tokens=5', "max_tokens=9")
    (problem,) = replay(recording).problems
    assert "the controller lets the model continue, but the recording has no further sample" in problem


def test_mask_that_allows_more_counts_only_with_masks(recording: Recording, script: Path) -> None:
    edit(script, '["cat", "dog"]', '["cat", "dog", "the"]')
    assert replay(recording).passed
    done = replay(recording, masks=True)
    changed = [line for line in done.differences if line[0] in "+-"]
    assert len(changed) == 2 and "2 allowed" in changed[0] and "allowed, mask" in changed[1]


@pytest.mark.parametrize(
    ("before", "after", "minus", "plus"),
    [
        ('force("A")', 'force("B")', 'forced "A"', 'forced "B"'),
        ('"found"', '"saw"', "printed: found cat", "printed: saw cat"),
        ("fork(2)", "fork(3)", "forked: #1", "forked: #1, #2"),
        ('"said", str(mine)', '"said", "x" + str(mine)', 'said = "1"', 'said = "x1"'),
        ('await gen(stop=".", max_tokens=5)', 'await gen(stop=".", max_tokens=5)\n    x', "stop", "error"),
    ],
)
def test_replay_compares_splices_output_forks_variables_and_ends(
    recording: Recording, script: Path, before: str, after: str, minus: str, plus: str
) -> None:
    edit(script, before, after)
    for only in (False, True):
        done = replay(recording, recorded_only=only)
        assert not done.passed
        if before != "fork(2)":  # the new fork asks for tokens that were never sampled
            assert any(line.startswith("-") and minus in line for line in done.differences), str(done)
            assert any(line.startswith("+") and plus in line for line in done.differences), str(done)
        else:
            assert "in a fork that the recording does not have" in done.problems[0]


def test_replay_can_use_another_argument(recording: Recording) -> None:
    done = replay(recording, arg=5)
    assert [line for line in done.differences if line[0] in "+-"] == [
        "-  printed: found cat {'x': 1}",
        "+  printed: found cat 5",
    ]


def test_script_that_cannot_start_is_a_problem(recording: Recording, script: Path) -> None:
    script.write_text("x = (")
    (problem,) = replay(recording).problems
    assert "#0 does not start now: argument: " in problem and "SyntaxError" in problem


def test_errors_are_recorded_and_replayed(playground: Playground, script: Path) -> None:
    script.write_text("nothing_here")
    refused = playground.record(script)
    assert refused.sequences[0].finish_reason == "error"
    assert refused.sequences[0].error is not None and refused.sequences[0].error.code == "argument"
    assert replay(refused).passed
    script.write_text(SCRIPT)
    assert not replay(refused).passed


@pytest.mark.parametrize(
    ("controller", "arg", "wish"),
    [("regex", "[a-z]+ and [0-9]{2}", "you and 42"), ("showcase", b"", "yes"), ("uppercase", b"", "ABC x")],
)
def test_bundled_controllers_can_be_replayed(controller: str, arg: str, wish: str) -> None:
    # a new runtime, as in a replay, since a controller may print the request's number
    with Playground() as playground:
        recording = playground.record(controller, wish, arg=arg, prompt="Say: ")
    done = replay(recording, masks=True)
    assert done.passed, str(done)
    if controller != "showcase":  # showcase prints the number of tokens
        done = replay(recording, recorded_only=True)
        assert done.passed, str(done)


def test_replay_uses_the_recorded_limits_and_capabilities(playground: Playground) -> None:
    short = playground.record("uppercase", "ABCDEF", max_tokens=3)
    assert short.sequences[0].finish_reason == "length"
    assert replay(short).passed
    masked = playground.record("regex", "12", arg="[0-9]+", capabilities=MASK_ONLY)
    assert Capabilities.from_wire(masked.capabilities) == MASK_ONLY
    assert replay(masked).passed


def test_replay_reports_the_same_in_each_step(
    playground: Playground, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork that reaches its limit sends its last report with the next step of the other one."""
    steps: list[object] = []
    begin_step = RecordingRuntime.begin_step

    def listen(runtime: RecordingRuntime, inputs: Sequence[StepInput]) -> Step:
        steps.append([(one.tokens, one.backtrack, one.sampled, one.final) for one in inputs])
        return begin_step(runtime, inputs)

    script.write_text(
        "from aici import *\nasync def main():\n"
        "    if await fork(2):\n        await force('one two three')\n    await gen(max_tokens=9)\n"
    )
    monkeypatch.setattr(RecordingRuntime, "begin_step", listen)
    recording = playground.record(script, "cat is on the mat.", max_tokens=4)
    assert [sequence.finish_reason for sequence in recording.sequences] == ["length", "length"]
    recorded, steps[:] = steps.copy(), []
    assert replay(recording).passed
    assert steps == recorded and len(steps) == 5


@pytest.mark.parametrize("only", [False, True])
def test_chat_that_grows_is_replayed_with_the_recorded_template(
    script: Path, tmp_path: Path, only: bool
) -> None:
    vocabulary = small_vocabulary()
    (end,), user, answer = vocabulary.eos, Role.USER, Role.ASSISTANT
    pieces = {(answer, user): [end, b"\nuser: "], (user, answer): [end, b"\nanswer:"]}
    script.write_text(
        "from aici import *\nasync def main():\n    await user('yes')\n    await gen(max_tokens=4)\n"
    )
    with Playground(replaced(vocabulary, turns=Turns(pieces).to_bytes())) as chats:
        recording = chats.record(script, " the cat", prompt=[end, *chats.tokenize(b"\nanswer:")])
    write_recording(recording, tmp_path / "r.json")
    done = replay(read_recording(tmp_path / "r.json"), recorded_only=only)
    assert done.passed and done.vocabulary.exact != only


CALLING = """
from aici import *
async def main():
    city = await gen(choice=["Oslo", "Bergen"])
    first, slow = call("weather", city=city), call("slow")
    await force(": ")
    print((await first)["sky"], await slow)
    try:
        await call("fails")
    except CallError as error:
        print(error.code, error)
    try:
        await call("nobody", 1)
    except CallError as error:
        print(error.code)
    print([each["name"] for each in await call("aici.calls")])
"""


def _fails() -> None:
    raise ValueError("no luck")


def _calling(playground: Playground, script: Path) -> Recording:
    script.write_text(CALLING)
    written = threading.Event()

    def weather(city: str) -> dict[str, str]:
        written.set()
        return {"sky": f"clear in {city}"}

    calls = {"weather": weather, "slow": lambda: written.wait(PATIENCE), "fails": _fails}
    return playground.record(script, "Oslo", calls=calls)


def test_calls_are_recorded_with_their_answers_and_replayed_without_tools(
    playground: Playground, script: Path, tmp_path: Path
) -> None:
    recording = _calling(playground, script)
    assert recording.calls is not None
    made = sorted(recording.calls, key=lambda call: call.number)
    assert [call.text for call in made] == [
        'weather({"city": "Oslo"})',
        "slow({})",
        "fails({})",
        "nobody(1)",
        "aici.calls({})",
    ]
    assert (made[0].result, made[1].result) == ({"value": {"sky": "clear in Oslo"}}, {"value": True})
    assert made[2].result == {"error": {"code": "failed", "message": "ValueError: no luck"}}
    assert made[3].result is not None and made[3].result["error"]["code"] == "unknown_call"
    write_recording(recording, tmp_path / "r.json")
    read = read_recording(tmp_path / "r.json")
    assert read == recording
    done = replay(read)
    assert done.passed, str(done)
    assert done.now.sequences[0].log == recording.sequences[0].log


def test_call_that_was_not_recorded_is_a_problem(playground: Playground, script: Path) -> None:
    recording = _calling(playground, script)
    edit(script, "city=city", 'city=city + "!"')
    (problem,) = replay(recording).problems
    assert problem.startswith("#0, step ")
    assert 'the controller makes the call weather({"city": "Oslo!"}), which the recording does not' in problem
    assert 'call 1 was weather({"city": "Oslo"})' in problem
    edit(script, 'city=city + "!"', "city=city")
    edit(script, 'await call("fails")', "await force('!')")
    done = replay(recording)
    assert done.problems == [] and "-called fails({})" in done.differences


WHEN = """
from aici import *
async def main():
    seen = call("seen")
    try:
        await call("late").wait(0.02)
    except CallError as error:
        await force(error.code)
    for _ in range(5):
        await force(".")
    print(seen.done)
    await call("go")
    print(await seen)
    mine = await fork(3)
    await force(str(await call("double", n=mine)))
"""


def test_answers_of_a_replay_come_when_they_came(playground: Playground, script: Path) -> None:
    """A call that was too late is too late again, and one that came after five texts comes after them."""
    script.write_text(WHEN)
    go, end = threading.Event(), threading.Event()
    calls = {"seen": lambda: go.wait(PATIENCE), "late": lambda: end.wait(PATIENCE), "go": go.set}
    try:
        recording = playground.record(script, calls={**calls, "double": lambda n: 2 * n})
    finally:
        end.set()
    assert recording.sequences[0].log == "False\nTrue\n"
    done = replay(recording)
    assert done.passed, str(done)


TALKING = """
from aici import *
async def main():
    print(await call("aici.run"))
    while (said := await receive()) is not None:
        await force(said + ": ")
        await gen(max_tokens=1)
    await send("other", {"done": True})
    try:
        await send("nobody", 1)
    except CallError as error:
        print(error.code)
"""


def test_messages_are_replayed_without_the_others(playground: Playground, script: Path) -> None:
    script.write_text(TALKING)
    with playground.runtime.answerer.offer([], lambda *_: None, name="other"):
        recording = playground.record(script, "ab", messages=["one", "two"])
    assert recording.sequences[0].log == "played\nunknown_run\n"
    assert [call.name for call in recording.calls or ()] == [
        "aici.run",
        *("aici.receive", "aici.receive", "aici.receive"),
        *("aici.send", "aici.send"),
    ]
    done = replay(recording)
    assert done.passed, str(done)
    assert done.now.sequences[0].log == recording.sequences[0].log


def test_calls_of_an_offer_from_before_are_not_left_out(playground: Playground) -> None:
    runtime = playground.runtime
    with runtime.answerer.offer([{"name": "weather"}], lambda *_: None) as offer:
        runtime.record("pyctrl", 9)
        with pytest.raises(RuntimeFailure, match="cannot be recorded"):
            runtime.instantiate("pyctrl", b"", [0], calls=offer.token)
    with pytest.raises(RuntimeFailure, match="nothing has been recorded"):
        runtime.take()


def test_capabilities_survive_serialization() -> None:
    for one in (ALL, MASK_ONLY, Capabilities(fork=False, top_logprobs=3)):
        assert Capabilities.from_wire(one.to_wire()) == one


def test_other_vocabulary_is_reported(recording: Recording, tmp_path: Path) -> None:
    recording.vocabulary.fingerprint = "another"
    recording.vocabulary.name = "theirs"
    done = replay(recording)
    assert done.passed and not done.vocabulary.exact
    assert "only the" in done.vocabulary.what and "'theirs'" in done.vocabulary.what
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(VocabularyError):
        replay(recording, model=tmp_path)


def test_invalid_recording_files_are_refused(recording: Recording, tmp_path: Path) -> None:
    def refusal(text: str) -> str:
        (tmp_path / "r.json").write_text(text)
        with pytest.raises(TranscriptFileError) as caught:
            read_recording(tmp_path / "r.json")
        return str(caught.value)

    assert "is not JSON" in refusal("{")
    assert "this is not a recording" in refusal("{}")
    assert "aici_transcript is 7, but this version reads 1" in refusal('{"aici_transcript": 7}')
    assert "record it anew" in refusal('{"aici_transcript": 1}')
    assert "is not JSON" in refusal("[" * 100_000)
    large = json.dumps(to_json(recording)).replace(
        f'"size": {recording.vocabulary.size}', '"size": 99999999999'
    )
    assert "a vocabulary of 99999999999 tokens" in refusal(large)
    with pytest.raises(TranscriptFileError, match="cannot read"):
        read_recording(tmp_path / "gone.json")
    with pytest.raises(TranscriptFileError, match="cannot write"):
        write_recording(recording, tmp_path)
    write_recording(recording, tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text())["sequences"][1]["parent"] == 0


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        ("sequences", []),
        ("max_tokens", "9"),
        ("calls", [RecordedCall(1, "aici.send", "{", result={"value": None})]),
        ("calls", [RecordedCall(1, "aici.calls", "{}", result={"value": [1]})]),
    ],
)
def test_damaged_recordings_are_not_replayed(recording: Recording, part: str, wrong: object) -> None:
    setattr(recording, part, wrong)
    with pytest.raises(TranscriptFileError, match="the recording is damaged"):
        replay(recording)


def test_recorder_records_only_when_asked(playground: Playground) -> None:
    with pytest.raises(RuntimeFailure, match="nothing has been recorded"):
        playground.runtime.take()
    before: Transcript = playground.play("yesno", "Yes")
    assert before.text == "Yes"
    recording = playground.record("yesno", "Yes")
    assert recording.controller == "yesno" and any("sampled" in line for line in lines_of(recording))


LOOKING = """
from aici import *
async def main():
    seen = await distribution()
    print(seen.likely(1), round(seen.entropy, 3), await likely(2))
    await sample(temperature=0)
"""


def test_what_a_controller_has_seen_is_recorded(playground: Playground, tmp_path: Path) -> None:
    """Also in the file. A controller that looks elsewhere cannot go on."""
    path, file = tmp_path / "looks.py", tmp_path / "looks.json"
    path.write_text(LOOKING)
    write_recording(playground.record(path, "cat."), file)
    recording = read_recording(file)
    looks = [event for event in recording.sequences[0].events if isinstance(event, Looked)]
    assert [look.top_logprobs is None for look in looks] == [True, False] and len(
        looks[1].top_logprobs or ()
    ) == 2
    assert replay(recording, path).passed
    path.write_text(LOOKING.replace("await distribution()", "Distribution(await likely(2))"))
    assert "looks at 2 likely tokens, which the recording does not have here" in str(replay(recording, path))


def test_logits_that_would_fill_the_memory_are_not_unpacked(playground: Playground, tmp_path: Path) -> None:
    path = tmp_path / "looks.py"
    path.write_text(LOOKING)
    recording = playground.record(path, "cat.")
    look = next(event for event in recording.sequences[0].events if isinstance(event, Looked))
    look.logits = zlib.compress(bytes(100 << 20), 1)
    tracemalloc.start()
    try:
        done = replay(recording, path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "looks at all logits, which the recording does not have here" in str(done)
    assert peak < 50 << 20
