"""Replays a recording: runs a controller in the real runtime with the recorded tokens."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import nan
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from zlib import decompressobj

import numpy as np

from aicirt.contract.abi import LIST_CALLS, OWN_NAME, RECEIVE, SEND, Verb
from aicirt.contract.errors import MALFORMED, ControllerError, counted
from aicirt.contract.messages import StepInput
from aicirt.settings import MAX_CALL_NAME, MAX_OFFERED
from pyaici.client.arguments import Capabilities
from pyaici.client.calls import CallEvent, Offer
from pyaici.client.results import Look, MidResult, StepResult
from pyaici.recording.recorder import RecordingRuntime, allowed_by
from pyaici.recording.recording import (
    Event,
    Forked,
    Looked,
    RecordedCall,
    RecordedSequence,
    Recording,
    Sampled,
    Spliced,
    Suspended,
    TranscriptFileError,
)
from pyaici.recording.story import differences, lines_of, quoted
from pyaici.recording.vocabulary import ReplayVocabulary, replay_vocabulary
from pyaici.scripting.call import find_call, recorded_call
from pyaici.testing.playground import PATIENT
from pyaici.tokens import Vocabulary

#: number of allowed tokens that are shown if the recorded one is not allowed
_SHOWN = 8
#: the most rounds for each event of the recording: ends a controller that only waits
_ROUNDS = 20
#: the longest that a replay sleeps at a time while all sequences wait
_SLEEP_SECONDS = 0.05
#: how long a replay waits in all for calls that should have arrived, and for anything to happen before it
#: gives an answer early
_LAG_SECONDS = 1.0


@dataclass(slots=True)
class Replay:
    """The result of a replay."""

    recording: Recording
    #: the recording of the replay itself
    now: Recording
    vocabulary: ReplayVocabulary
    #: steps in which the controller does not allow the recorded token, or needs one more than was sampled;
    #: and calls that the recording does not have
    problems: list[str] = field(default_factory=list)
    #: a diff, with "-" for the recording and "+" for now
    differences: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether the replay equals the recording."""
        return not (self.problems or self.differences)

    def __str__(self) -> str:
        return "\n".join([*self.problems, *self.differences]) or "no difference"


def replay(
    recording: Recording,
    controller: str | Path | None = None,
    *,
    model: str | Path | None = None,
    masks: bool = False,
    recorded_only: bool = False,
    **arg: Any,
) -> Replay:
    """Replays a recording in a runtime of its own, without the model.

    `controller`: a script, a Wasm file or the name of a bundled controller; by default as in the recording.
    It gets the recorded argument (a script: the recorded value) unless there is an `arg`. `model`: a folder
    with the tokenizer, see `replay_vocabulary`. `masks`: also compare which tokens were allowed, which needs
    the model's vocabulary. `recorded_only`: use only the recorded tokens as vocabulary.

    Raises VocabularyError, and UnknownControllerError or ScriptFileError if the controller is not found. An
    error of the controller is part of the result. Raises TranscriptFileError if the recording contradicts
    itself.
    """
    try:
        chosen = replay_vocabulary(recording, model, recorded_only=recorded_only)
        name = recording.controller if controller is None else controller
        if arg:
            wasm, argument = find_call(name, arg["arg"])
        else:
            wasm, argument = recorded_call(name, recording.arg)
        with RecordingRuntime(workers=1, limits=PATIENT) as runtime:
            runtime.register(chosen.vocabulary)
            player = _Player(runtime, chosen.vocabulary, recording)
            player.run(str(wasm), argument)
            now = player.now
        now.controller, now.vocabulary.name = recording.controller, recording.vocabulary.name
        compared = _comparable(recording, now, player.cut)
        stories = [lines_of(one, ids=chosen.exact, masks=masks and chosen.exact) for one in compared]
        return Replay(recording, now, chosen, player.problems, differences(*stories))
    except MALFORMED as error:
        raise TranscriptFileError(f"the recording is damaged: {error!r:.500}; record it anew") from error


def _comparable(before: Recording, now: Recording, cut: set[int]) -> tuple[Recording, Recording]:
    """Returns both recordings without the consequences of cut sequences, so that the cause is visible."""
    if not cut:
        return before, now
    sides = []
    for one in (before, now):
        sequences = []
        for number, pair in enumerate(zip(before.sequences, now.sequences, strict=False)):
            sequence = one.sequences[number]
            if number in cut:
                events = sequence.events[: min(len(side.events) for side in pair)]
                sequence = RecordedSequence(sequence.parent, events, "compared up to here")
            sequences.append(sequence)
        sides.append(replace(one, sequences=sequences, variables={}))
    return sides[0], sides[1]


class _Line:
    """A sequence of the replay: its recorded events, and the position among them."""

    def __init__(self, recorded: RecordedSequence, number: int, tokens: list[int], prompt_size: int) -> None:
        self.recorded = recorded
        #: its place among the sequences of the replay
        self.number = number
        self.name = f"#{number}"
        self.tokens = tokens
        self.prompt_size = prompt_size
        self.at = 0
        self.steps = 0
        self.report: StepInput | None = None
        #: whether it waits until `Runtime.woken` names it
        self.parked = False

    def take_event(self, kind: type[Event]) -> Event | None:
        """Returns the next recorded event if it is of this kind; skips other events to find a sample."""
        at = self.at
        events = self.recorded.events
        while at < len(events) and (
            (isinstance(events[at], Suspended) and kind is not Suspended)
            or (kind is Sampled and not isinstance(events[at], Sampled))
        ):
            at += 1
        if at == len(events) or not isinstance(events[at], kind):
            return None
        self.at = at + 1
        return events[at]

    @property
    def is_over(self) -> bool:
        return all(isinstance(event, Suspended) for event in self.recorded.events[self.at :])


class _Tools:
    """Answers calls as recorded, each when as much has happened as before the recorded answer."""

    def __init__(self, runtime: RecordingRuntime, recorded: list[RecordedCall]) -> None:
        self._runtime = runtime
        self._recorded = recorded
        self._arrived: SimpleQueue[CallEvent] = SimpleQueue()
        #: places of recorded calls that were made again, and ids of those that wait
        self._made: set[int] = set()
        self._waiting: dict[int, str] = {}
        self._stalled_since = time.monotonic()
        *others, own = offered = _offered(recorded)
        self._names = {RECEIVE} | {call["name"] for calls in offered for call in calls}
        #: the name of the run, under which it gets its messages
        self._run, *receivers = _runs(recorded)
        for calls in others:
            runtime.answerer.offer(calls, self._collect, for_all=True)
        for name in receivers:
            runtime.answerer.offer([], lambda *_: None, name=name)
        self._offer = runtime.answerer.offer(own, self._collect, name=self._run)
        self.token = self._offer.token

    def _collect(self, _: Offer, event: CallEvent) -> None:
        if event.code is None and (event.mine or event.name == RECEIVE):
            self._arrived.put(event)
            self._runtime.ring()

    def give_due(self, where: str, *, stalled: bool) -> list[str]:
        """Answers the calls whose time has come; returns the problems with those that are not recorded.

        `stalled`: nothing else happens. If it goes on for longer than a call took, the call is answered, too.
        """
        problems = []
        if not stalled or not self._arrived.empty():
            self._stalled_since = time.monotonic()
        while not self._arrived.empty():
            event = self._arrived.get()
            if (place := self._find_recorded(event)) is None:
                problems.append(self._refuse(where, event))
            else:
                self._made.add(place)
                self._waiting[place] = event.id
        quiet = time.monotonic() - self._stalled_since - _LAG_SECONDS
        for place in sorted(self._waiting):  # in the order of the answers
            call = self._recorded[place]
            if call.result is None or (call.name == RECEIVE and "error" in call.result):
                continue  # it ends by itself, as it did
            if call.after > self._runtime.num_events and quiet < call.seconds:
                continue
            self._stalled_since, quiet = time.monotonic(), -_LAG_SECONDS
            id = self._waiting.pop(place)
            if call.name == RECEIVE:
                self._runtime.answerer.send(self._run, call.result["value"])
            elif (error := call.result.get("error")) is not None:
                self._offer.refuse(id, error["code"], error["message"])
            else:
                self._offer.answer(id, call.result["value"])
        return problems

    def lags(self, coming: int) -> bool:
        """Returns whether a call is yet to arrive whose recorded answer came before `coming` more events."""
        limit = self._runtime.num_events + coming
        return any(
            call.result is not None and call.after < limit and call.name in self._names
            for place, call in enumerate(self._recorded)
            if place not in self._made
        )

    def _find_recorded(self, event: CallEvent) -> int | None:
        """Returns the place of the recorded call with the same name and arguments, or None.

        If there are several, the one with the same number is preferred: forks make calls in any order.
        """
        content = event.name, _parsed(event.arguments)
        equal = [
            place
            for place, call in enumerate(self._recorded)
            if place not in self._made and (call.name, _parsed(call.arguments)) == content
        ]
        return min(equal, key=lambda place: self._recorded[place].number != event.number, default=None)

    def _refuse(self, where: str, event: CallEvent) -> str:
        """Answers a call that is not recorded, and returns the problem."""
        self._offer.refuse(event.id, "not_recorded", "the recording has no call with these arguments")
        asked = RecordedCall(event.number, event.name, event.arguments.decode("utf-8", "replace")).text
        there = [call.text for call in self._recorded if call.number == event.number]
        instead = f"call {event.number} was {there[0]}" if there else f"it has {len(self._recorded)} calls"
        return f"{where}: the controller makes the call {asked}, which the recording does not have: {instead}"


def _offered(recorded: list[RecordedCall]) -> list[list[dict[str, Any]]]:
    """Returns the descriptions of the calls that there were, as far as known; each list fits in an offer."""
    listed = [call.result["value"] for call in recorded if call.name == LIST_CALLS and call.result]
    if listed:
        calls = listed[0]
    else:  # also those that were unknown, whose answers are recorded
        names = dict.fromkeys(call.name for call in recorded if not call.name.startswith("aici."))
        calls = [{"name": name} for name in names if 0 < len(name) <= MAX_CALL_NAME]
    return [calls[at : at + MAX_OFFERED] for at in range(0, len(calls), MAX_OFFERED)] or [[]]


def _runs(recorded: list[RecordedCall]) -> list[str]:
    """Returns the name of the run, and those of others to which it has sent messages."""
    values = [(call, call.result["value"]) for call in recorded if call.result and "value" in call.result]
    own = next((value for call, value in values if call.name == OWN_NAME), "replayed")
    sent = [json.loads(call.arguments)["run"] for call, _ in values if call.name == SEND]
    return [own, *(name for name in dict.fromkeys(sent) if name != own)]


def _parsed(arguments: str | bytes) -> Any:
    """Returns the value of arguments in JSON, or other arguments as they are."""
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments if isinstance(arguments, bytes) else arguments.encode()


class _Player:
    """Stands in for the engine that made the recording, of whichever kind, and does what that one did."""

    def __init__(self, runtime: RecordingRuntime, vocabulary: Vocabulary, recording: Recording) -> None:
        self._runtime = runtime
        self._vocabulary = vocabulary
        self._recording = recording
        self.problems: list[str] = []
        #: numbers of sequences that could not go on as recorded
        self.cut: set[int] = set()
        self._lines: dict[int, _Line] = {}
        #: the last reports of sequences that the engine has ended: sent with the next step, as engines do
        self._ending: list[StepInput] = []
        self._numbers = 0
        self._tools: _Tools | None = None
        self._patience = _LAG_SECONDS
        self.now = Recording()

    def run(self, wasm: str, arg: str | bytes) -> None:
        """Plays the recording to its end; the result is in `now`."""
        recording = self._recording
        module = self._runtime.upload(wasm).id
        self._runtime.record(wasm, recording.max_tokens)
        if recording.calls is not None:
            self._tools = _Tools(self._runtime, recording.calls)
        try:
            seq = self._runtime.instantiate(
                module,
                arg,
                recording.prompt,
                capabilities=Capabilities.from_wire(recording.capabilities),
                seed=recording.seed,
                calls="" if self._tools is None else self._tools.token,
            )
        except ControllerError as error:  # the runtime has recorded it
            if recording.sequences[0].error is None:
                self.problems.append(f"#0 does not start now: {error.code}: {error.message}")
                self.cut.add(0)
        else:
            self._add_sequence(seq, 0, list(recording.prompt), len(recording.prompt))
            events = sum(
                event.rounds if isinstance(event, Suspended) else 1
                for sequence in recording.sequences
                for event in sequence.events
            )
            rounds = _ROUNDS * (events + 10)
            while rounds and (self._lines or self._ending):
                if self._can_step():
                    rounds -= 1
                    self._step()
            for line in self._lines.values():
                self.problems.append(f"{line.name} has not ended long after the end of the recording")
                self.cut.add(line.number)
            self._runtime.free(list(self._lines))
        self.now = self._runtime.take()

    def _add_sequence(self, seq: int, place: int | None, tokens: list[int], prompt_size: int) -> None:
        recorded = RecordedSequence() if place is None else self._recording.sequences[place]
        self._lines[seq] = _Line(recorded, self._numbers, tokens, prompt_size)
        self._numbers += 1

    def _can_step(self) -> bool:
        """Answers calls; returns whether there is something to do, else sleeps for a moment."""
        stalled = not self._ending and all(line.parked for line in self._lines.values())
        if self._tools is not None:
            where = ", ".join(f"{line.name}, step {line.steps}" for line in self._lines.values())
            self.problems += self._tools.give_due(where, stalled=stalled)
            coming = sum(line.report is not None for line in self._lines.values())
            if self._patience > 0 and self._tools.lags(coming):
                start = time.monotonic()
                self._runtime.sleep(_SLEEP_SECONDS)
                self._patience -= time.monotonic() - start
                return False
        if stalled:
            self._runtime.sleep(_SLEEP_SECONDS)
        for seq in self._runtime.woken():
            if seq in self._lines:
                self._lines[seq].parked = False
        return bool(self._ending) or not all(line.parked for line in self._lines.values())

    def _step(self) -> None:
        active = {seq: line for seq, line in self._lines.items() if not line.parked}
        inputs = [line.report or StepInput(seq) for seq, line in active.items()]
        for line in active.values():
            line.report = None
        step = self._runtime.begin_step([*inputs, *self._ending])
        self._ending = []
        for seq, verdict in step.wait_pre().items():
            if seq not in self._lines:
                continue
            line = self._lines[seq]
            if verdict.verb == Verb.FORK:
                known = line.take_event(Forked)
                places = known.children if isinstance(known, Forked) else []
                for number, child in enumerate(verdict.children):
                    place = places[number] if number < len(places) else None
                    self._add_sequence(child, place, line.tokens.copy(), line.prompt_size)
            elif verdict.verb == Verb.SUSPEND:
                line.take_event(Suspended)
                line.parked = verdict.waits
            else:
                del self._lines[seq]
        self._act(step.wait())

    def _act(self, result: StepResult) -> None:
        for seq, answer in result.mid.items():
            line = self._lines.get(seq)
            if line is None or answer.verb == Verb.LATE:
                continue
            line.steps += 1
            if answer.verb == Verb.SAMPLE:
                line.report = self._sample(seq, line, answer)
            elif answer.verb == Verb.SPLICE:
                line.report = self._splice(seq, line, answer)
            elif isinstance(answer, Look):
                line.report = self._show(seq, line, answer)
            if line.report is None:  # the sequence has ended, or cannot go on
                del self._lines[seq]
                self._runtime.free([seq])
            elif self._ends(line, answer):
                self._ending.append(line.report._replace(final=True))
                del self._lines[seq]

    def _ends(self, line: _Line, answer: MidResult) -> bool:
        """Returns whether the engine ends the sequence after its report: at an end token or its length."""
        assert line.report is not None
        tokens = line.report.tokens
        if tokens and tokens[-1] in self._vocabulary.eos and not answer.hold_end:
            return True
        full = len(line.tokens) - line.prompt_size >= self._recording.max_tokens
        return full or (line.recorded.finish_reason == "length" and line.is_over)

    def _sample(self, seq: int, line: _Line, answer: MidResult) -> StepInput | None:
        assert answer.row is not None
        event = line.take_event(Sampled)
        allowed = allowed_by(answer.row, self._vocabulary.vocab_size)
        if not isinstance(event, Sampled):
            more = " in a fork that the recording does not have" if not line.recorded.events else ""
            self.problems.append(
                f"{line.name}, step {line.steps}: the controller lets the model continue{more}, but the "
                f"recording has no further sample; it allows {_some(allowed, self._vocabulary)}"
            )
            self.cut.add(line.number)
            return None
        if not allowed[event.token]:
            self.problems.append(
                f"{line.name}, step {line.steps}: {quoted(self._recording.text([event.token]))} was sampled, "
                f"which the controller does not allow now: it allows {_some(allowed, self._vocabulary)}"
            )
            self.cut.add(line.number)
            return None
        line.tokens.append(event.token)
        logprob = nan if event.logprob is None else event.logprob
        mass = nan if event.allowed_mass is None else event.allowed_mass
        return StepInput(seq, [event.token], 0, True, logprob, mass, event.top_logprobs)

    def _show(self, seq: int, line: _Line, answer: Look) -> StepInput | None:
        event = line.take_event(Looked)
        if isinstance(event, Looked) and (event.top_logprobs is None) == (answer.logits is not None):
            if answer.logits is None:
                return StepInput(seq, top_logprobs=event.top_logprobs)
            unpacked = decompressobj().decompress(event.logits, answer.logits.nbytes + 4)
            shown = np.frombuffer(unpacked, np.float32)
            if len(shown) == len(answer.logits):
                answer.logits[:] = shown
                return StepInput(seq, top_logprobs=[])
        wanted = "all logits" if answer.logits is not None else counted(answer.top_logprobs, "likely token")
        self.problems.append(
            f"{line.name}, step {line.steps}: the controller looks at {wanted}, which the recording does not "
            "have here"
        )
        self.cut.add(line.number)
        return None

    def _splice(self, seq: int, line: _Line, answer: MidResult) -> StepInput:
        event = line.take_event(Spliced)
        tokens = list(answer.ff_tokens)
        if answer.backtrack:
            del line.tokens[-answer.backtrack :]
            line.prompt_size = min(line.prompt_size, len(line.tokens))
        room = self._recording.max_tokens - (len(line.tokens) - line.prompt_size)
        tokens = tokens[: max(room, 0)]
        if isinstance(event, Spliced) and event.done is not None and answer.ff_tokens == event.tokens:
            tokens = event.done
        line.tokens += tokens
        return StepInput(seq, tokens, answer.backtrack)


def _some(allowed: np.ndarray[Any, np.dtype[np.bool_]], vocabulary: Vocabulary) -> str:
    """Describes a set of tokens: their number and some of them, printable text first."""
    tokens = np.flatnonzero(allowed)
    names: Mapping[int, str] = vocabulary.special_names
    texts = [vocabulary.token_bytes(int(token)).decode("utf-8", "replace") for token in tokens]
    texts = sorted(filter(None, texts), key=lambda text: (not text.isprintable(), "\ufffd" in text))
    shown = [quoted(text) for text in texts[:_SHOWN]]
    shown += [names[token] for token in map(int, tokens) if token in names][: _SHOWN - len(shown)]
    more = ", ..." if len(tokens) > len(shown) else ""
    count = "no token" if not len(tokens) else f"{len(tokens)} token{'s' * (len(tokens) > 1)}"
    return count + (f": {', '.join(shown)}{more}" if shown else "")
