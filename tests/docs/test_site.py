"""The documentation's site: every page, link, anchor and public name, and no request to another host."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.structure import modules

from .blocks import DOCUMENTS, ROOT

SETTINGS = Path("scripts") / "docs"
#: documents with other paths on the site
RENAMED = {"README.md": "index.html", "docs/guide/README.md": "guide/index.html"}
#: packages with names for other packages of the project only
INTERNAL = {"pyaici.server.apis.messages"}
#: reference page -> its package or module
API = {
    page.stem: re.findall(r"^::: (.+)$", page.read_text(), re.MULTILINE)
    for page in (ROOT / SETTINGS / "api").glob("*.md")
}
#: elements that load something as soon as a page is shown
LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "object": "data"}


class Page(HTMLParser):
    """Anchors, links and loaded files of a page, and the texts of its paragraphs and list items."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.texts: dict[str, list[str]] = defaultdict(list)
        self._open: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if found.get(LOADING.get(tag, "")):
            self.loaded.append(found[LOADING[tag]])
        if tag in ("p", "pre", "code"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            self._open.remove(tag)

    def handle_data(self, text: str) -> None:
        if self._open:
            self.texts[self._open[-1]].append(text)


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    command += ["--config-file", str(root / SETTINGS / "mkdocs.yml"), "--site-dir", str(site)]
    return subprocess.run(
        command,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0 and "WARNING" not in done.stdout, done.stdout
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    """All pages by path."""
    return {path.relative_to(site).as_posix(): Page(path) for path in site.rglob("*.html")}


def test_site_has_every_document(pages: dict[str, Page]) -> None:
    expected = {
        RENAMED.get(name, name.removeprefix("docs/").replace(".md", ".html"))
        if name.startswith("docs/") or name in RENAMED
        else name.lower().replace(".md", ".html")
        for name in DOCUMENTS
    }
    assert set(pages) == expected | {f"api/{name}.html" for name in API} | {"404.html"}


def test_links_and_anchors_resolve(site: Path, pages: dict[str, Page]) -> None:
    broken = []
    for name, page in pages.items():
        if name == "404.html":  # shown at any path, so its links begin with a slash
            continue
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            path = (site / name).parent.joinpath(unquote(parts.path)).resolve() if parts.path else site / name
            if path.is_dir():
                path /= "index.html"
            target = pages.get(path.relative_to(site.resolve()).as_posix())
            anchor = unquote(parts.fragment)
            if not path.is_file() or (anchor and (target is None or anchor not in target.anchors)):
                broken.append(f"{name}: {link}")
    assert broken == []


def test_pages_load_nothing_from_other_hosts(site: Path, pages: dict[str, Page]) -> None:
    loaded = [(name, link) for name, page in pages.items() for link in page.loaded]
    assert len(loaded) > len(pages)
    assert [each for each in loaded if urlsplit(each[1]).netloc] == []
    styles = list(site.rglob("*.css"))
    assert styles
    for style in styles:
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", style.read_text()), style


def test_packages_with_public_names_have_a_page() -> None:
    packages = {
        name
        for name, path in modules().items()
        if name.startswith("pyaici")
        and path.name == "__init__.py"
        and "__all__ =" in (ROOT / path).read_text()
    }
    described = {name for names in API.values() for name in names}
    assert packages - INTERNAL <= described and not INTERNAL & described


@pytest.mark.parametrize("page", API)
def test_every_public_name_is_on_its_page(page: str, pages: dict[str, Page]) -> None:
    module = API[page][0]
    source = importlib.import_module(module)
    names = getattr(source, "__all__", None) or [
        name
        for name, value in vars(source).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module
    ]
    assert names
    anchors = pages[f"api/{page}.html"].anchors
    # a function with the name of its module is listed under its full name
    missing = [name for name in names if not {f"{module}.{name}", f"{module}.{name}.{name}"} & anchors]
    assert missing == []


def test_comments_before_attributes_are_on_the_page(pages: dict[str, Page]) -> None:
    shown = " ".join(pages["api/pyaici.html"].texts["p"])
    assert "number of most likely tokens that the next" in shown


def test_search_finds_guide_and_reference(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    places = {entry["location"] for entry in index["docs"]}
    assert {"guide/first_script.html", "api/pyaici.html#pyaici.Runtime.upload"} <= places


def test_language_models_find_every_page_as_markdown(site: Path) -> None:
    text = (site / "llms.txt").read_text()
    assert text.startswith("# AICI\n\n> Steer a language model token by token")
    found = dict(re.findall(r"^- \[.+?\]\((\S+\.md)\)(?:: (.+))?$", text, re.MULTILINE))
    pages = {RENAMED.get(name, name.removeprefix("docs/")).replace(".html", ".md") for name in DOCUMENTS}
    pages = {name if "/" in name else name.lower() for name in pages} | {f"api/{name}.md" for name in API}
    pages = {"guide/README.md" if name == "guide/index.md" else name for name in pages}
    assert set(found) == pages
    for name in found:
        assert (site / name).read_text().startswith("# "), name
    assert found["faq.md"] and found["index.md"].startswith("Send a small program with an LLM request;")


def test_pages_show_no_markdown(pages: dict[str, Page]) -> None:
    """Lists, code blocks and links that the site's renderer reads differently than code hosts."""
    for name, page in pages.items():
        text = "".join(page.texts["p"])
        assert not re.search(r"```|^ *([-*]|\d+\.) |^\|.*\|$|\]\(|::$", text, re.MULTILINE), name


def test_links_to_sources_are_text(pages: dict[str, Page]) -> None:
    """The link says only "limit", so the site adds the path."""
    assert "controllers/sdk/include/aici/json_schema/limits.hpp" in pages["json_schema.html"].texts["code"]
    own = [link for page in pages.values() for link in page.links if not urlsplit(link).netloc]
    assert not [link for link in own if link.endswith((".hpp", ".h", ".py"))]


@pytest.mark.thorough  # test_links.py finds such mistakes in the sources, and the tests above in the site
def test_mistakes_are_errors(tmp_path: Path) -> None:
    for folder in ("docs", SETTINGS):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    for path in ROOT.glob("*.md"):
        shutil.copy(path, tmp_path)
    for package in ("aicirt", "pyaici"):
        (tmp_path / package).symlink_to(ROOT / package)
    with (tmp_path / "docs" / "glossary.md").open("a") as file:
        file.write("[a](nowhere.md) [b](abi.md#nowhere) [c](../controllers/nowhere.cpp)\n")
    (tmp_path / "docs" / "unlisted.md").write_text("# Not in the navigation\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    for words in ("'nowhere.md'", "'#nowhere'", "'../controllers/nowhere.cpp'", "unlisted.md"):
        assert words in done.stdout, done.stdout
    with (tmp_path / SETTINGS / "api" / "rest.md").open("a") as file:
        file.write("\n::: pyaici.rest.Nowhere\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0 and "pyaici.rest.Nowhere" in done.stdout, done.stdout
