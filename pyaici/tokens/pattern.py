"""Converts regular expressions of tiktoken encodings to the dialect of the `tokenizers` package."""

from __future__ import annotations

import re

from aicirt.contract.errors import VocabularyError

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
