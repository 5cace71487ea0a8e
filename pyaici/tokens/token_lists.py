"""Vocabularies from lists of tokens as bytes: tiktoken's encodings and rank files, tekken.json, RWKV World.

All but RWKV World are byte pair encodings whose token ids are merge ranks; its tokenizer takes the longest
match.
"""

from __future__ import annotations

import ast
import base64
import binascii
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aicirt.contract.errors import VocabularyError
from pyaici.tokens.vocabulary import MAX_TOKENS, TokenizerBlob, Vocabulary, tokens_by_id


def vocabulary_from_ranks(
    ranks: Mapping[bytes, int],
    *,
    name: str,
    pattern: str | None = None,
    special: Mapping[str, int] | None = None,
    eos: tuple[int, ...] = (),
    bos: int | None = None,
    pad: int | None = None,
    unk: int | None = None,
    vocab_size: int = 0,
) -> Vocabulary:
    """Returns the vocabulary of a byte pair encoding whose token ids are merge ranks.

    `pattern` is the regular expression that splits text into words; without it the runtime
    tokenizes by longest match. `vocab_size` is the width of the logits, if it is larger than the highest
    id plus 1. Raises VocabularyError if ranks are not unique, or if a special token has the id of a rank.
    """
    if not ranks:
        raise VocabularyError(f"{name}: the encoding has no ranks")
    first, end = min(ranks.values()), max(ranks.values()) + 1
    if len(set(ranks.values())) != len(ranks):
        raise VocabularyError(f"{name}: ranks must be unique")
    special_names = {token: text for text, token in (special or {}).items()}
    pieces = {token: piece for piece, token in ranks.items()}
    tokens = tokens_by_id({**pieces, **{token: pieces.get(token, b"") for token in special_names}})
    blob = TokenizerBlob()
    if pattern is not None:
        spec = {"pattern": oniguruma_pattern(pattern), "first": first, "end": end}
        blob = TokenizerBlob("ranks", json.dumps(spec).encode())
    return Vocabulary(
        tokens=tokens,
        special_names=special_names,
        eos=eos,
        bos=bos,
        pad=pad,
        unk=unk,
        vocab_size=vocab_size,
        name=name,
        tokenizer=blob,
    )


def vocabulary_from_encoding(encoding: Any) -> Vocabulary:
    """Returns the vocabulary of a `tiktoken.Encoding`, in which `<|endoftext|>`, if present, ends a text."""
    special = dict(encoding._special_tokens)
    end = special.get("<|endoftext|>")
    return vocabulary_from_ranks(
        encoding._mergeable_ranks,
        name=encoding.name,
        pattern=encoding._pat_str,
        special=special,
        eos=() if end is None else (end,),
        vocab_size=encoding.n_vocab,
    )


def read_rank_file(path: Path) -> dict[bytes, int]:
    """Returns token bytes -> rank from a .tiktoken file, whose lines are base64, a space and the rank.

    Raises VocabularyError with the number of an invalid line.
    """
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line:
            continue
        try:
            piece, rank = line.split()
            ranks[base64.b64decode(piece, validate=True)] = int(rank)
        except (ValueError, binascii.Error) as error:
            raise VocabularyError(f"{path}, line {number}: expected base64 and a rank ({error})") from error
    return ranks


# -- tiktoken's regular expressions -------------------------------------------------------------------------

_COUNT = re.compile(r"\{\d+(?:,\d*)?\}")
_FLAGS = re.compile(r"\(\?(?!i:)[a-zA-Z-]+[:)]")


def oniguruma_pattern(pattern: str) -> str:
    r"""Returns the same pattern for Oniguruma, which differs from tiktoken's `fancy_regex` in three places.

    - `$` and `^` match at line boundaries in Oniguruma, but at the ends of the text in `fancy_regex`.
    - The plus in `\p{N}{1,3}+` repeats in Oniguruma, but makes the count possessive in `fancy_regex`.
      Oniguruma writes that as the atomic group `(?>\p{N}{1,3})`.

    Raises VocabularyError for inline flags other than `(?i:`, because Oniguruma reads their letters
    differently.
    """
    if flags := _FLAGS.search(pattern):
        raise VocabularyError(
            f"the pattern of the encoding has flags {flags[0]!r} at {flags.start()}: only (?i: is supported"
        )
    out: list[str] = []
    starts: list[int] = []  # indices in `out` at which open groups begin
    atom = 0  # index in `out` at which the last atom begins
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "(":
            starts.append(len(out))
            out.append(char)
        elif char == ")":
            atom = starts.pop()
            out.append(char)
        elif char in "|*+?":
            out.append(char)
        elif count := _COUNT.match(pattern, at):
            out.append(count[0])
            at = count.end()
            if pattern[at : at + 1] == "+":
                out[atom:] = ["(?>", *out[atom:], ")"]
                at += 1
            continue
        else:
            atom = len(out)
            end = _atom_end(pattern, at)
            text = pattern[at:end]
            out.append({"$": r"\z", "^": r"\A"}.get(text, text))
            at = end
            continue
        at += 1
    return "".join(out)


def _atom_end(pattern: str, at: int) -> int:
    """Returns the index after the character, escape or class that begins at `at`."""
    if pattern[at] == "\\":
        if pattern[at + 1 : at + 2] in ("p", "P", "x") and pattern[at + 2 : at + 3] == "{":
            return pattern.index("}", at) + 1
        return at + 2
    if pattern[at] != "[":
        return at + 1
    depth = 0
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 1
        elif pattern[at] == "[":
            depth += 1
        elif pattern[at] == "]":
            depth -= 1
            if not depth:
                return at + 1
        at += 1
    raise VocabularyError("the pattern of the encoding has a character class without its closing bracket")


# -- tekken.json, Mistral's tokenizer files -----------------------------------------------------------------

#: special tokens by id, for files that do not list them
_UNLISTED = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]"),
    *("[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"),
)


def is_tekken(spec: Any) -> bool:
    """Returns whether parsed JSON is a tekken file."""
    return isinstance(spec, dict) and "vocab" in spec and "default_vocab_size" in (spec.get("config") or {})


def vocabulary_from_tekken(spec: dict[str, Any], name: str) -> Vocabulary:
    """Returns the vocabulary of a parsed tekken.json.

    The special tokens have the lowest ids; the id of any other token is its rank plus their number.
    The file holds more ranks than the model has tokens; surplus ranks are dropped.
    Raises VocabularyError, and the errors of wrong types, if parts are missing or invalid.
    """
    config = spec["config"]
    num_special = int(config["default_num_special_tokens"])
    vocab_size = int(config["default_vocab_size"])
    listed = spec.get("special_tokens") or [
        {"rank": rank, "token_str": text} for rank, text in enumerate(_UNLISTED[:num_special])
    ]
    special = {f"<SPECIAL_{rank}>": rank for rank in range(min(num_special, MAX_TOKENS))}
    for entry in listed:
        special.pop(f"<SPECIAL_{entry['rank']}>", None)
        special[entry["token_str"]] = int(entry["rank"])
    ranks = {
        base64.b64decode(entry["token_bytes"]): num_special + int(entry["rank"])
        for entry in spec["vocab"]
        if entry["rank"] < vocab_size - num_special
    }
    return vocabulary_from_ranks(
        ranks,
        name=name,
        pattern=str(config["pattern"]),
        special=special,
        eos=(special["</s>"],) if "</s>" in special else (),
        bos=special.get("<s>"),
        pad=special.get("<pad>"),
        unk=special.get("<unk>"),
        vocab_size=vocab_size,
    )


# -- RWKV World ---------------------------------------------------------------------------------------------

#: id of the end of a text; RWKV World files begin with id 1
_END = 0


def vocabulary_from_rwkv(path: Path, name: str) -> Vocabulary:
    """Reads the vocabulary from a file with an id, a Python literal and its length in bytes on each line.

    The literal is a string or bytes. The tokenizer of these models takes the longest match. Their logits
    are wider (65536) than the file. Raises VocabularyError with the line number.
    """
    found: dict[int, bytes] = {}
    for number, line in enumerate(path.read_text("utf-8").split("\n"), 1):
        if not line.strip():
            continue
        try:
            token, rest = line.split(" ", 1)
            literal, length = rest.rsplit(" ", 1)
            value = ast.literal_eval(literal)
            piece = value.encode() if isinstance(value, str) else bytes(value)
            if len(piece) != int(length):
                raise ValueError(f"the literal has {len(piece)} bytes, but the line says {length}")
            found[int(token)] = piece
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
            raise VocabularyError(
                f"{path}, line {number}: expected an id, a literal and a length ({error})"
            ) from error
    if not found or min(found) <= _END:
        raise VocabularyError(f"{path}: ids must begin at {_END + 1}")
    return Vocabulary(
        tokens=tokens_by_id(found),
        special_names={_END: "<|endoftext|>"},
        eos=(_END,),
        name=name,
        tokenizer=TokenizerBlob("longest"),
    )
