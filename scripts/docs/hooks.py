"""Hooks of MkDocs: adds pages from outside docs/, and adapts links and marks of code blocks."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
#: a fenced block, or a link
_BLOCK_OR_LINK = re.compile(
    r"^(?P<open> *```)(?P<language>[\w+-]*)[^\n`]*(?P<block>\n.*?^ *``` *$)"
    r"|\[(?P<text>(?:[^\[\]`]|`[^`]*`)+)\]\((?P<target>[^)\s]+)\)",
    re.MULTILINE | re.DOTALL,
)


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Adds the pages in the root, of which README.md is the first page, and those in api/."""
    for path in ROOT.glob("*.md"):
        name = "index.md" if path.name == "README.md" else path.name.lower()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    for path in (HERE / "api").glob("*.md"):
        files.append(File.generated(config, f"api/{path.name}", abs_src_path=str(path)))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Points links at the site's pages. A link to another file of the repository becomes text.

    Also removes the words after a block's language (see tests/docs/blocks.py), which MkDocs does not know. A
    broken link stays, so that MkDocs reports it.
    """
    source = Path(page.file.abs_src_path or "").parent
    pages = {file.abs_src_path: file.src_uri for file in files}

    def rewrite(match: re.Match[str]) -> str:
        if match["open"]:
            return match["open"] + match["language"] + match["block"]
        path, mark, anchor = match["target"].partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return match[0]
        place = (source / path).resolve()
        if uri := pages.get(str(place)):
            here = posixpath.dirname(page.file.src_uri)
            return f"[{match['text']}]({posixpath.relpath(uri, here or '.')}{mark}{anchor})"
        if place.exists() and place.is_relative_to(ROOT):
            name = f"`{place.relative_to(ROOT)}`"
            return match["text"] if place.name in match["text"] else f"{match['text']} ({name})"
        return match[0]

    return _BLOCK_OR_LINK.sub(rewrite, markdown)
