"""Hooks of MkDocs: adds pages from outside docs/, adapts links and marks of code blocks, writes llms.txt."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation, Section
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


_navigation: list[Navigation] = []


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> None:
    """Keeps the navigation for llms.txt."""
    _navigation[:] = [nav]


def on_post_build(config: MkDocsConfig) -> None:
    """Writes each page as Markdown beside its HTML, and llms.txt, which lists them for language models."""
    site = Path(config.site_dir)
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    (nav,) = _navigation
    for item in nav.items:
        if isinstance(item, Section):
            lines += ["", f"## {item.title}", ""]
        lines += [_listed(page, site) for page in _pages(item)]
    (site / "llms.txt").write_text("\n".join(lines) + "\n")


def _pages(item: object) -> list[Page]:
    if isinstance(item, Section):
        return [page for child in item.children for page in _pages(child)]
    return [item] if isinstance(item, Page) else []


def _listed(page: Page, site: Path) -> str:
    """Writes a page as Markdown; returns its line: its title, and the first sentence of its text."""
    text = page.markdown or ""
    (site / page.file.src_uri).write_text(text)
    prose = _BLOCK_OR_LINK.sub(lambda match: match["text"] or "", text)
    found = re.search(r"^(?![#!|<*:\-\s])(.+?\.)(?:\s|$)", prose, re.MULTILINE)
    about = found[1] if found else ""
    return f"- [{page.title}]({page.file.src_uri}): {about}".rstrip(": ")
