"""Finds docstrings and comments that are not in plain English, as far as a program can check.

``python -m tests.plain_english PATH...`` prints a line for each finding.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.structure import statements_in

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
#: a string, in which "#" begins no comment, or a comment; a tenth of the time of `tokenize`
_COMMENT = re.compile(
    r"""(?:'{3}(?:\\.|[^\\])*?'{3}|\"{3}(?:\\.|[^\\])*?\"{3}|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*")"""
    r"|(?P<comment>#[^\n]*)",
    re.DOTALL,
)
_SENTENCE_END = re.compile(r"(?<=[.!?:;])\s|\n\s*\n|\n\s*[-*] |\n\s*\d+\. ")


def texts(source: str) -> Iterator[tuple[int, str, bool]]:
    """Yields (line, text, whether it is a docstring) for every docstring and every block of comments."""
    for node in statements_in(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if (text := ast.get_docstring(node)) is not None:
                # the docstring of a property may begin with "Whether"
                property_ = any(ast.unparse(one) == "property" for one in getattr(node, "decorator_list", ()))
                yield node.body[0].lineno, text.removeprefix("Whether ") if property_ else text, True
    block: list[str] = []
    begin = last = line = at = 0
    for found in _COMMENT.finditer(source):
        if found["comment"] is None:
            continue
        line, at = line + source.count("\n", at, found.start()), found.start()
        if block and line != last + 1:
            yield begin + 1, "\n".join(block), False
            block = []
        begin = begin if block else line
        last = line
        block.append(found["comment"].lstrip("#: "))
    if block:
        yield begin + 1, "\n".join(block), False


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
