"""Files, sections, scripts and commands that the documents mention exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyaici.cli.__main__ import parser

from .blocks import DOCUMENTS, ROOT

by_name = pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS.keys())


def anchors(document: Path) -> set[str]:
    """Returns the anchors that a renderer makes from the headings."""
    headings = re.findall(r"^#+ +(.*?) *$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(document: Path) -> Iterator[str]:
    text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    yield from re.findall(r"\]\(([^)\s]+)\)", text)


@by_name
def test_targets_of_links_exist(document: Path) -> None:
    for link in links(document):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        assert target.exists(), f"{document.name} links to {link}"
        if anchor:
            assert anchor in anchors(target), f"{document.name} links to {link}, but there is no such heading"


@by_name
def test_scripts_and_modules_exist(document: Path) -> None:
    text = document.read_text()
    for script in re.findall(r"(?:\./)?(scripts/\w+\.sh|\.ci/run)", text):
        assert (ROOT / script).is_file(), script
    for module in re.findall(r"python -m ([a-z][\w.]*)", text):
        if module.split(".")[0] in {"aicirt", "pyaici", "lab"}:
            path = ROOT / module.replace(".", "/")
            assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module


@by_name
def test_commands_exist(document: Path) -> None:
    """`aici WORD` in code is a command."""
    (commands,) = (a.choices for a in parser()._actions if a.choices is not None)
    assert {"new", "build", "check", "run", "list", "upload", "tag", "runtime"} <= set(commands)
    code = re.findall(r"`([^`\n]+)`|^ *\$? *(aici .*)$", document.read_text(), re.MULTILINE)
    for inline, line in code:
        for word in re.findall(r"(?:^|&& |; )aici ([a-z]+)", inline or line):
            assert word in commands, f"{document.name}: aici {word}"


def test_guide_lists_its_chapters_and_each_links_to_the_next() -> None:
    contents = DOCUMENTS["docs/guide/README.md"]
    chapters = re.findall(r"^\d+\. \[.*?\]\((\w+\.md)\): ", contents.read_text(), re.MULTILINE)
    assert sorted(chapters) == sorted(p.name for p in contents.parent.iterdir() if p != contents)
    for name, following in zip([contents.name, *chapters], [*chapters, contents.name], strict=True):
        last = (contents.parent / name).read_text().splitlines()[-1]
        assert re.findall(r"\]\((.*?)\)", last) == [following], f"{name} ends with {last!r}"
        for number, link in re.findall(
            r"\[[Cc]hapter (\d+)\]\((\w+\.md)", (contents.parent / name).read_text()
        ):
            assert chapters[int(number) - 1] == link, f"{name} calls {link} chapter {number}"
