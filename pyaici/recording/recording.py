"""Recordings of the exchange between engine and controller in one request, and their JSON files."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from aicirt.contract.errors import MALFORMED, AiciError
from aicirt.contract.messages import Truncation
from pyaici.client.arguments import Capabilities, value_bytes, value_json
from pyaici.client.calls import plain
from pyaici.tokens.vocabulary import MAX_TOKENS

#: increased when files of earlier versions can no longer be read
FORMAT = 1


@dataclass(slots=True)
class Sampled:
    """A token was sampled under a row."""

    token: int
    #: kind of the row: all, bitmask, token, sparse or dense
    row: str = "all"
    #: number of tokens that the row allowed
    num_allowed: int = 0
    #: digest of the set of allowed tokens: see `digest_of`
    mask: str = ""
    #: whether the row allowed this token
    allowed: bool = True
    #: the controller's temperature; None = the request's own
    temperature: float | None = None
    #: natural log-probability before masking, and the total probability of the allowed tokens, if known
    logprob: float | None = None
    allowed_mass: float | None = None
    #: (token, log-probability) of the most likely tokens, if the controller asked for them
    top_logprobs: list[tuple[int, float]] | None = None
    #: the controller's options for leaving out tokens; None = all are the request's own
    truncation: Truncation | None = None


@dataclass(slots=True)
class Spliced:
    """The controller backtracked, then appended tokens."""

    backtrack: int
    tokens: list[int]
    #: the tokens that were appended, if the engine had no room for all
    done: list[int] | None = None


@dataclass(slots=True)
class Forked:
    """The controller asked for copies of the sequence: their places in `Recording.sequences`."""

    children: list[int]


@dataclass(slots=True)
class Suspended:
    """The controller skipped rounds in a row."""

    rounds: int = 1


@dataclass(slots=True)
class Looked:
    """The controller looked at the distribution of the next token before it decided."""

    #: (token, log-probability) of the most likely tokens, if it asked for these
    top_logprobs: list[tuple[int, float]] | None = None
    #: else all logits: float32 [V], compressed by zlib
    logits: bytes = b""


Event = Sampled | Spliced | Forked | Suspended | Looked


@dataclass(slots=True)
class RecordedError:
    """The error of a sequence: the code of an AiciError, and its message."""

    code: str
    message: str


@dataclass(slots=True)
class RecordedSequence:
    """A sequence, from its beginning, or from the fork that made it, to its end."""

    #: place of the sequence that it was forked from
    parent: int | None = None
    events: list[Event] = field(default_factory=list)
    #: eos, stop, length, error, or cancelled: the engine freed it
    finish_reason: str = "cancelled"
    error: RecordedError | None = None
    #: what the controller printed
    log: str = ""


@dataclass(slots=True)
class RecordedCall:
    """A call that the controller has made."""

    #: from 1, in the order in which the request has made its calls
    number: int
    name: str
    #: JSON, as the controller wrote it
    arguments: str
    #: events of all sequences, without suspensions, before the answer came
    after: int = 0
    #: from the call to its answer
    seconds: float = 0.0
    #: `{"value": ...}` or `{"error": {"code": ..., "message": ...}}`; None: the request ended before
    result: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The call as people write it."""
        return f"{self.name}({self.arguments})"


@dataclass(slots=True)
class RecordedVocabulary:
    """The vocabulary of the token ids, and the bytes of the tokens in this recording."""

    name: str = ""
    #: `Vocabulary.fingerprint`
    fingerprint: str = ""
    size: int = 0
    eos: tuple[int, ...] = ()
    bos: int | None = None
    #: bytes of the tokens that occur in the recording
    tokens: dict[int, bytes] = field(default_factory=dict)
    #: names of special tokens that occur, and of those that end a text
    special: dict[int, str] = field(default_factory=dict)
    #: `Vocabulary.turns`
    turns: bytes = b""


@dataclass(slots=True)
class Recording:
    """The recording of one request."""

    vocabulary: RecordedVocabulary = field(default_factory=RecordedVocabulary)
    #: as the user named it
    controller: str = ""
    arg: bytes = b""
    #: ids of the prompt's tokens
    prompt: list[int] = field(default_factory=list)
    max_tokens: int = 0
    #: what `aici_random` draws from
    seed: int = 0
    #: `Capabilities.to_wire`
    capabilities: list[list[int]] = field(default_factory=list)
    #: the first is the sequence that the request began with
    sequences: list[RecordedSequence] = field(default_factory=list)
    #: values at the end; all sequences share them
    variables: dict[str, bytes] = field(default_factory=dict)
    #: in the order of their answers; None: nobody answered calls of this request
    calls: list[RecordedCall] | None = None

    @property
    def num_events(self) -> int:
        """How many events all sequences have, without suspensions, which depend on timing."""
        all_events = (event for sequence in self.sequences for event in sequence.events)
        return sum(not isinstance(event, Suspended) for event in all_events)

    def text(self, tokens: list[int]) -> str:
        """Returns the text of tokens of this recording; special tokens appear by name."""
        found = b"".join(
            self.vocabulary.special[token].encode()
            if token in self.vocabulary.special
            else self.vocabulary.tokens.get(token, b"")
            for token in tokens
        )
        return found.decode("utf-8", "replace")


#: the field that identifies the file, with its format
MARK = "aici_transcript"


class TranscriptFileError(AiciError):
    """A transcript file cannot be read or written, or has invalid content."""

    code = "transcript_file"


def write_recording(recording: Recording, path: str | Path) -> None:
    """Writes a recording as JSON. Raises TranscriptFileError."""
    text = json.dumps(to_json(recording), indent=1, ensure_ascii=False, allow_nan=False)
    # lists of numbers on one line: strings in JSON contain no line ends
    text = re.sub(r"\[\n[-\d.e+,\s]*\]", lambda found: " ".join(found[0].split()), text)
    try:
        Path(path).write_text(text + "\n", "utf-8")
    except OSError as error:
        raise TranscriptFileError(f"cannot write {path}: {error.strerror}") from None


def to_json(recording: Recording) -> dict[str, Any]:
    """Returns the content of the file."""
    vocabulary = recording.vocabulary
    return {
        MARK: FORMAT,
        "controller": recording.controller,
        "arg": value_json(recording.arg),
        "prompt": {"text": recording.text(recording.prompt), "tokens": recording.prompt},
        "max_tokens": recording.max_tokens,
        "seed": recording.seed,
        "capabilities": asdict(Capabilities.from_wire(recording.capabilities)),
        "sequences": [_sequence(recording, sequence) for sequence in recording.sequences],
        "variables": {name: value_json(value) for name, value in recording.variables.items()},
        "calls": recording.calls and [_recorded_call(call) for call in recording.calls],
        "vocabulary": {
            "name": vocabulary.name,
            "fingerprint": vocabulary.fingerprint,
            "size": vocabulary.size,
            "eos": list(vocabulary.eos),
            "bos": vocabulary.bos,
            "tokens": {str(token): value_json(piece) for token, piece in vocabulary.tokens.items()},
            "special": {str(token): name for token, name in vocabulary.special.items()},
            "turns": base64.b64encode(vocabulary.turns).decode(),
        },
    }


def _sequence(recording: Recording, sequence: RecordedSequence) -> dict[str, Any]:
    error = sequence.error and {"code": sequence.error.code, "message": sequence.error.message}
    return {
        "parent": sequence.parent,
        "steps": [_event(recording, event) for event in sequence.events],
        "finish_reason": sequence.finish_reason,
        "error": error,
        "log": sequence.log,
    }


def _recorded_call(call: RecordedCall) -> dict[str, Any]:
    known = {"id": call.number, "name": call.name, "arguments": call.arguments}
    return {**known, "after": call.after, "seconds": call.seconds, **(call.result or {})}


def _event(recording: Recording, event: Event) -> dict[str, Any]:
    if isinstance(event, Forked):
        return {"fork": event.children}
    if isinstance(event, Suspended):
        return {"suspend": event.rounds}
    if isinstance(event, Looked):
        logits = base64.b64encode(event.logits).decode()
        return {"look": {"logits": logits} if (top := event.top_logprobs) is None else {"top_logprobs": top}}
    if isinstance(event, Spliced):
        content: dict[str, Any] = {"splice": event.tokens, "text": recording.text(event.tokens)}
        more: dict[str, Any] = {"backtrack": event.backtrack or None, "done": event.done}
    else:
        content = {
            "sample": event.token,
            "text": recording.text([event.token]),
            "row": event.row,
            "num_allowed": event.num_allowed,
            "mask": event.mask,
            "allowed": event.allowed,
        }
        more = {
            "temperature": event.temperature,
            "truncation": None if event.truncation is None else event.truncation.given,
            "logprob": event.logprob,
            "allowed_mass": event.allowed_mass,
            "top_logprobs": event.top_logprobs,
        }
    return {**content, **{name: value for name, value in more.items() if value is not None}}


# -- reading ----------------------------------------------------------------------------------------


def read_recording(path: str | Path) -> Recording:
    """Reads a recording. Raises TranscriptFileError, which names the file."""
    try:
        return from_json(plain(json.loads(Path(path).read_text("utf-8"))))
    except OSError as error:
        raise TranscriptFileError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise TranscriptFileError(f"{path} is not JSON in UTF-8: {error}") from None
    except TranscriptFileError as error:
        raise TranscriptFileError(f"{path}: {error.message}") from None


def from_json(content: Any) -> Recording:
    """Returns the recording from a file's JSON. Raises TranscriptFileError."""
    if not isinstance(content, dict) or MARK not in content:
        raise TranscriptFileError(
            f"this is not a recording: it lacks the member {MARK}; make one with aici run --record"
        )
    if content[MARK] != FORMAT:
        raise TranscriptFileError(
            f"{MARK} is {content[MARK]!r}, but this version reads {FORMAT}: record it anew"
        )
    try:
        words = content["vocabulary"]
        if not 0 < words["size"] <= MAX_TOKENS:
            raise ValueError(f"a vocabulary of {words['size']} tokens")
        return Recording(
            RecordedVocabulary(
                words["name"],
                words["fingerprint"],
                words["size"],
                tuple(words["eos"]),
                words["bos"],
                {int(token): value_bytes(piece) for token, piece in words["tokens"].items()},
                {int(token): name for token, name in words["special"].items()},
                base64.b64decode(words.get("turns", "")),
            ),
            content["controller"],
            value_bytes(content["arg"]),
            list(content["prompt"]["tokens"]),
            content["max_tokens"],
            content["seed"],
            Capabilities(**content["capabilities"]).to_wire(),
            [_read_sequence(sequence) for sequence in content["sequences"]],
            {name: value_bytes(value) for name, value in content["variables"].items()},
            None if (calls := content.get("calls")) is None else [_read_call(call) for call in calls],
        )
    except MALFORMED as error:
        raise TranscriptFileError(f"the recording is damaged: {error!r:.500}; record it anew") from None


def _read_sequence(content: dict[str, Any]) -> RecordedSequence:
    error = content["error"] and RecordedError(content["error"]["code"], content["error"]["message"])
    events = [_read_event(event) for event in content["steps"]]
    return RecordedSequence(content["parent"], events, content["finish_reason"], error, content["log"])


def _read_call(content: dict[str, Any]) -> RecordedCall:
    result: dict[str, Any] = {name: content[name] for name in ("value", "error") if name in content}
    known = content["id"], content["name"], content["arguments"], content["after"], content["seconds"]
    return RecordedCall(*known, result or None)


def _read_event(content: dict[str, Any]) -> Event:
    if "fork" in content:
        return Forked(list(content["fork"]))
    if "suspend" in content:
        return Suspended(content["suspend"])
    if "splice" in content:
        return Spliced(content.get("backtrack", 0), list(content["splice"]), content.get("done"))
    if (look := content.get("look")) is not None:
        return Looked(_top(look.get("top_logprobs")), base64.b64decode(look.get("logits", "")))
    cut = content.get("truncation")
    return Sampled(
        content["sample"],
        content["row"],
        content["num_allowed"],
        content["mask"],
        content["allowed"],
        content.get("temperature"),
        content.get("logprob"),
        content.get("allowed_mass"),
        _top(content.get("top_logprobs")),
        None if cut is None else Truncation(**cut),
    )


def _top(content: list[list[Any]] | None) -> list[tuple[int, float]] | None:
    return None if content is None else [(token, value) for token, value in content]
