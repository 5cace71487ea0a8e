"""Small vocabularies: one for tests, and one to replay a recording with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from aicirt.contract.errors import VocabularyError
from pyaici.models.default import fetched_default_models
from pyaici.recording.recording import Recording
from pyaici.tokens import TokenizerBlob, Vocabulary, load_vocabulary

_WORDS = [
    *("the", "a", "an", "and", "or", "of", "to", "in", "on", "at", "is", "it", "was"),
    *("that", "with", "for", "not", "you", "he", "she", "cat", "dog", "mat", "sat", "end", "yes"),
    *("no", "Yes", "No", "The", "It", "He", "I", "name", "age", "one", "two", "three"),
]
#: the same words as in models' vocabularies, mostly with a leading space
_LONGER = [
    *_WORDS,
    *(" " + word for word in _WORDS),
    *("th", "er", "ed", "es", "ing", "ly", "ck", "ll", "oo", "qu"),
    *("10", "19", "20", "00", "000", "  ", "    ", "\n\n", ", ", ". ", '"', '": "', '{"', '"}', "é", "—"),
]


def small_vocabulary() -> Vocabulary:
    """Returns a small vocabulary for tests.

    Tokens 0 to 255 are the bytes, followed by common words and pieces; the last two are <s> and </s>. Text is
    tokenized by longest match.
    """
    longer = list(dict.fromkeys(text.encode() for text in _LONGER if len(text.encode()) > 1))
    tokens = [bytes([byte]) for byte in range(256)] + longer + [b"", b""]
    begin, end = len(tokens) - 2, len(tokens) - 1
    return Vocabulary(
        tokens,
        {begin: "<s>", end: "</s>"},
        eos=(end,),
        bos=begin,
        name="small",
        tokenizer=TokenizerBlob("longest"),
    )


@dataclass(frozen=True)
class ReplayVocabulary:
    """A vocabulary to replay a recording with."""

    vocabulary: Vocabulary
    #: whether it is the recording's own; else it has only the tokens that occur there, and all bytes
    exact: bool
    #: its description for users
    what: str


def replay_vocabulary(
    recording: Recording, model: str | Path | None = None, *, recorded_only: bool = False
) -> ReplayVocabulary:
    """Returns the recording's own vocabulary if it is available, else one of the recorded tokens.

    Looks at the vocabulary of `model`, or else at the small one and that of the default model, if the model
    has been fetched. `recorded_only`: always use the recorded tokens. Raises VocabularyError if `model` has
    another vocabulary than the recording.
    """
    name = recording.vocabulary.name
    if recorded_only:
        return ReplayVocabulary(recorded_tokens(recording), False, _alone(recording))
    if model is not None:
        found = _loaded(model, recording)
        if found.fingerprint != recording.vocabulary.fingerprint:
            raise VocabularyError(
                f"{model} has another vocabulary than the recording ({name!r}); leave --model out to replay "
                "with the recorded tokens only"
            )
        return ReplayVocabulary(found, True, f"of {model}")
    small = replace(small_vocabulary(), turns=recording.vocabulary.turns).cut(recording.vocabulary.size)
    if small.fingerprint == recording.vocabulary.fingerprint:
        return ReplayVocabulary(small, True, "the small vocabulary for tests")
    for path in fetched_default_models():
        found = _loaded(path, recording)
        if found.fingerprint == recording.vocabulary.fingerprint:
            return ReplayVocabulary(found, True, f"of the default model, {path.name}")
    return ReplayVocabulary(recorded_tokens(recording), False, _alone(recording))


def recorded_tokens(recording: Recording) -> Vocabulary:
    """Returns a vocabulary of the tokens that occur in a recording, and a token for each single byte.

    Recorded tokens keep their ids. Bytes without a token take unused ids; the other ids are empty. Text is
    tokenized by longest match, so controllers can force any text, though not tokenized as by the model.
    """
    recorded = recording.vocabulary
    tokens = [b""] * recorded.size
    for token, piece in recorded.tokens.items():
        tokens[token] = piece
    special = dict(recorded.special)
    special.update({token: "</s>" for token in recorded.eos if token not in special and not tokens[token]})
    there = {piece for piece in tokens if len(piece) == 1}
    missing = [bytes([byte]) for byte in range(256) if bytes([byte]) not in there]
    taken = {*recorded.tokens, *special} | ({recorded.bos} if recorded.bos is not None else set())
    free = (token for token in range(recorded.size) if token not in taken)
    for piece, token in zip(missing, free, strict=False):
        tokens[token] = piece
    return Vocabulary(
        tokens,
        special,
        eos=recorded.eos,
        bos=recorded.bos,
        vocab_size=recorded.size,
        name=f"{recorded.name}, recorded tokens",
        tokenizer=TokenizerBlob("longest"),
        turns=recorded.turns,
    )


def _loaded(model: str | Path, recording: Recording) -> Vocabulary:
    """Returns a model's vocabulary, with the recorded turns, which its files alone do not have."""
    found = load_vocabulary(model).cut(recording.vocabulary.size)
    return replace(found, turns=recording.vocabulary.turns)


def _alone(recording: Recording) -> str:
    return (
        f"only the {len(recording.vocabulary.tokens)} recorded tokens of {recording.vocabulary.name!r}, and "
        "all bytes: masks are compared for these tokens only, and splices are compared as text"
    )
