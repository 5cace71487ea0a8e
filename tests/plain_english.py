"""Finds docstrings and comments that are not in plain English, as far as a program can check.

``python -m tests.plain_english PATH...`` prints a line for each finding.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: words that must not begin a docstring, which begins with a verb or a noun
FRAGMENT = re.compile(
    r"(It|Its|They|Their|That|What|Who|Whose|Whom|Of|As|Where|Which|Those|These|One|Whether)\b"
)
#: unusual words, each with advice
WORDS = {
    r"\bshall\b": "must, should, or the plain verb",
    r"\bwhoever\b": "the caller, the owner, any client",
    r"\b(that|which|what) (is|are) none\b": "say what is invalid",
    r"\bof its own accord\b": "by itself, automatically",
    r"\bnot (there )?any more\b": "no longer, has been removed",
    r"\bsomebody else's\b": "another owner's",
    r"\bnobody's\b": "say who",
    r"\bput(s|ting)? off\b": "deferred",
    r"\bnonsense\b": "malformed, invalid",
    r"\bwalls\b": "layers of the sandbox",
    r"\btelling propert(y|ies)\b": "discriminator",
}
LONGEST_SENTENCE = 40
_SENTENCE_END = re.compile(r"(?<=[.!?:;])\s|\n\s*\n|\n\s*[-*] |\n\s*\d+\. ")


def texts(source: str) -> Iterator[tuple[int, str, bool]]:
    """Yields (line, text, whether it is a docstring) for every docstring and every block of comments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if (text := ast.get_docstring(node)) is not None:
                # the docstring of a property may begin with "Whether"
                property_ = any(ast.unparse(one) == "property" for one in getattr(node, "decorator_list", ()))
                yield node.body[0].lineno, text.removeprefix("Whether ") if property_ else text, True
    block: list[str] = []
    begin = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if block and token.start[0] != last + 1:
            yield begin, "\n".join(block), False
            block = []
        begin = begin if block else token.start[0]
        last = token.start[0]
        block.append(token.string.lstrip("#: "))
    if block:
        yield begin, "\n".join(block), False


def problems(source: str) -> Iterator[tuple[int, str]]:
    """Yields (line, problem with advice)."""
    for line, text, is_docstring in texts(source):
        if is_docstring and (found := FRAGMENT.match(text)):
            yield line, f"begins with {found[0]!r}: begin with a verb, or with the noun that it is about"
        for pattern, instead in WORDS.items():
            if found := re.search(pattern, text, re.IGNORECASE):
                yield line, f"says {found[0]!r}: write {instead}"
        # code is no prose
        prose = re.sub(r"::\n(\n|    .*\n)+|``[^`]*``|`[^`]*`", "x", text + "\n")
        for sentence in _SENTENCE_END.split(prose):
            if len(sentence.split()) > LONGEST_SENTENCE:
                yield line, f"has a sentence of {len(sentence.split())} words: at most {LONGEST_SENTENCE}"


def main() -> int:
    count = 0
    for argument in sys.argv[1:]:
        place = Path(argument)
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            for line, problem in problems(path.read_text()):
                print(f"{path}:{line}: {problem}")
                count += 1
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
