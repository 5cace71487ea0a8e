"""Examples and tables on the pages about the server agree with a real server."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from aicirt.contract import errors
from pyaici.rest import RestClient
from pyaici.scripting.script import InterpreterMissingError
from pyaici.server.answers.known_formats import FORMATS
from pyaici.server.apis.cpc.requests import CertificateFields, CpcRequest, CpcResponse
from pyaici.server.apis.openai.requests import Constrained
from pyaici.server.apis.run.routes import RunRequest
from pyaici.server.apis.sampling import SamplingFields
from pyaici.server.http.users import Role, UserFile
from pyaici.server.serve import PREFIX
from pyaici.server.settings import ServerSettings, read_settings
from pyaici.toolchain import build_controller
from tests.pyaici.server.serving import Serving

from .blocks import DOCUMENTS, ROOT, Block, blocks, matches, run_blocks, run_shell

DOCS = ROOT / "docs"
#: besides docs/server.md
PAGES = [
    "README.md",
    "docs/compatibility.md",
    "docs/openai.md",
    "docs/responses.md",
    "docs/messages.md",
    "docs/ollama.md",
    "docs/cpc.md",
    "docs/recipes.md",
    "docs/migrating.md",
]
#: the server's address on the pages
_ADDRESS = re.compile(r"http://127\.0\.0\.1:(8000|6969)")
#: the token of a server without users
_NO_TOKEN = 'api_key="none"'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the examples run, with the server's file of users."""
    made = tmp_path_factory.mktemp("pages")
    (made / "token").write_text(UserFile(made / "users.json").add("reader", Role.RUN))
    return made


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server that is started as on docs/server.md."""
    options = ("--users", str(folder / "users.json"), "--anonymous", "run")
    origins = ("--cors-origins", "http://localhost:3000")
    # an address without a server
    ollama = ("--ollama-url", "http://127.0.0.1:9")
    with Serving(tmp_path_factory.mktemp("server") / "log", *options, *origins, *ollama) as serving:
        yield serving


# -- examples -----------------------------------------------------------------------------------------


def run_page(page: Path, folder: Path, url: str) -> int:
    """Runs the blocks that need a server and compares the answers; returns the number of blocks.

    Raises AssertionError with the place on the page.
    """
    variables: dict[str, object] = {"__name__": "__main__"}
    count, printed = 0, None
    for block in blocks(page):
        if "answer" in block.words:
            assert printed is not None, f"{block.where}: commands must precede this answer"
            assert answers(block, printed), f"{block.where}: the answer is\n{printed}"
        printed = None
        if block.needs_server:
            text = _ADDRESS.sub(url, block.text)
            if token := os.environ.get("AICI_TOKEN"):
                text = text.replace(_NO_TOKEN, f'api_key="{token}"')
            printed = _run(block, text, folder, variables)
            count += 1
    return count


def _run(block: Block, text: str, folder: Path, variables: dict[str, object]) -> str | None:
    """Runs a block; returns the output of commands, or None for a program."""
    if block.language == "python":
        # keeps the line numbers of the document, so that a traceback refers to them
        exec(compile("\n" * (block.line - 1) + text, str(block.document), "exec"), variables)
        return None
    assert block.language == "sh", f"{block.where}: cannot run blocks in {block.language!r}"
    done = run_shell(f"set -euo pipefail\n{text}", folder)
    assert done.returncode == 0, f"{block.where}: status {done.returncode}\n{done.stdout}"
    return done.stdout


def answers(block: Block, printed: str) -> bool:
    """Returns whether output matches an answer. White space in JSON does not count."""
    if block.language != "json":
        return matches(block.text, printed)
    return matches(_without_blanks(block.text), _without_blanks(printed))


def _without_blanks(text: str) -> str:
    """Removes white space outside strings."""
    return re.sub(r'("(?:[^"\\]|\\.)*")|\s+', lambda found: found[1] or "", text)


@pytest.fixture(scope="module")
def server_page(folder: Path, server: Serving) -> int:
    """Runs docs/server.md, which uploads a controller for other pages; returns the number of its blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run_blocks(DOCS / "server.md", folder)
        return run_page(DOCS / "server.md", folder, server.url)


@pytest.mark.slow
@pytest.mark.usefixtures("server_page")
@pytest.mark.parametrize("name", PAGES)
def test_examples_work(name: str, folder: Path, server: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("AICI_TOKEN", (folder / "token").read_text())
    assert run_page(ROOT / name, folder, server.url) > 0


@pytest.mark.slow
def test_examples_of_the_server_page_work(server_page: int) -> None:
    assert server_page > 0


def test_no_other_page_has_examples_for_a_server() -> None:
    pages = {DOCS / "server.md", *(ROOT / name for name in PAGES)}
    others = set(DOCUMENTS.values()) - pages
    assert [b.where for page in others for b in blocks(page) if b.needs_server or "answer" in b.words] == []


def test_wrong_examples_fail(tmp_path: Path) -> None:
    def page(text: str) -> Path:
        path = tmp_path / "page.md"
        path.write_text(text.replace("'''", "```"))
        return path

    shown = "'''sh server\nprintf '{\"a\": \"http://127.0.0.1:8000\",\\n \"b\": 2}'\n'''\n"
    good = page(shown + "'''json answer\n{\"a\":\"http://there\", \"b\": ...}\n'''\n")
    assert run_page(good, tmp_path, "http://there") == 1
    for wrong in (
        shown + "'''json answer\n{\"a\":\"http://there\", \"b\": 3}\n'''\n",
        shown + "'''json answer\n{\"a\":\"http:// there\", ...}\n'''\n",
        "'''sh server\nfalse\ntrue\n'''\n",
        "'''sh server\nfalse | true\n'''\n",
        "'''python server\nassert False\n'''\n",
        "'''json answer\n{}\n'''\n",
    ):
        with pytest.raises(AssertionError):
            run_page(page(wrong), tmp_path, "http://there")


# -- tables -------------------------------------------------------------------------------------------


def section(page: str, heading: str) -> str:
    """Returns the text of a section with its subsections."""
    text = (DOCS / page).read_text()
    found = re.search(rf"^(#+) {re.escape(heading)}$", text, re.MULTILINE)
    assert found, f"{page} has no section {heading!r}"
    rest = text[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def rows(text: str) -> list[list[str]]:
    """Returns the cells of all tables, without head rows."""
    lines = re.findall(r"^\|.*\|$", text, re.MULTILINE)
    cells = [[cell.strip() for cell in line.strip("|").replace(r"\|", "¦").split("|")] for line in lines]
    dividers = [number for number, row in enumerate(cells) if set(row[0]) == {"-"}]
    return [row for number, row in enumerate(cells) if not {number, number + 1} & set(dividers)]


def names(text: str, column: int = 0) -> list[str]:
    """Returns the texts in backquotes in one column of the tables."""
    return [name for row in rows(text) for name in re.findall("`([^`]+)`", row[column])]


def default(field: FieldInfo) -> str:
    """Returns the default of a field as pages show it."""
    value = field.get_default()
    if field.is_required() or value in (None, [], PydanticUndefined):
        return "required" if field.is_required() else ""
    return f"`{json.dumps(value)}`"


def test_table_of_settings_is_complete() -> None:
    expected = [
        f"| `--{name.replace('_', '-')}` | {default(field)} | {field.description} |".replace("|  |", "| |")
        for name, field in ServerSettings.model_fields.items()
    ]
    found = re.findall(r"^\| `--.*$", section("server_reference.md", "Settings"), re.MULTILINE)
    assert found == expected, "the table of settings should be\n" + "\n".join(expected)


def test_example_of_a_settings_file_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shown,) = [block for block in blocks(DOCS / "server.md") if block.language == "toml"]
    file = tmp_path / "aici.toml"
    file.write_text(shown.text)
    settings = read_settings({}, file)
    assert settings.model_fields_set == set(re.findall(r"^(\w+) =", shown.text, re.MULTILINE))
    (unit,) = [block for block in blocks(DOCS / "server.md") if block.language == "ini"]
    for name in re.findall(rf"{PREFIX}(\w+)=", unit.text):
        assert name.lower() in ServerSettings.model_fields


#: fields of OpenAI's own that our page does not explain
OPENAI = ("temperature", "top_p", "seed")


@pytest.mark.parametrize(
    ("page", "heading", "fields"),
    [
        ("server.md", "The request", RunRequest.model_fields),
        ("openai.md", "Answers of a given form", Constrained.model_fields),
        (
            "openai.md",
            "Choosing among the tokens",
            {
                k: v
                for k, v in SamplingFields.model_fields.items()
                if k not in ("temperature", "top_p", "seed")
            },
        ),
        ("cpc.md", "The request", CpcRequest.model_fields),
        ("cpc.md", "The answer", CpcResponse.model_fields),
        ("cpc.md", "The certificate", CertificateFields.model_fields),
    ],
)
def test_tables_of_fields_are_complete(page: str, heading: str, fields: dict[str, FieldInfo]) -> None:
    """Every field has a row. In tables with three columns, the second one is the default."""
    table = rows(section(page, heading))
    found = {name: row for row in table for name in re.findall("`([^`]+)`", row[0])}
    assert set(found) == set(fields)
    for name, row in found.items():
        if len(row) == 3:
            assert row[1] == default(fields[name]), name


def test_table_of_tool_formats_is_complete() -> None:
    shown = {
        row[0].strip("`"): row[1].strip("`").strip().replace("¦", "|")
        for row in rows(section("openai.md", "Tools"))
        if "`" in row[0]
    }
    assert shown == {name: form.write([("now", {})]).replace("\n", r"\n") for name, form in FORMATS.items()}


def runtime_codes() -> Iterator[str]:
    """Yields the codes of all errors of the runtime."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    yield from (kind.code for kind in kinds if issubclass(kind, errors.AiciError))


def server_codes() -> Iterator[str]:
    """Yields the codes of errors that the server itself returns."""
    for path in (ROOT / "pyaici" / "server").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                values = [word.value for word in node.keywords if word.arg == "code"]
                values += node.args[2:3] if node.func.id == "bad_request" else []
                yield from (value.value for value in values if isinstance(value, ast.Constant))


def test_table_of_error_codes_is_complete() -> None:
    shown = names(section("server_reference.md", "Errors"), 2)
    assert sorted(shown) == sorted({*runtime_codes(), *server_codes(), InterpreterMissingError.code})


@pytest.mark.slow
def test_table_of_metrics_is_complete(server: Serving) -> None:
    server.run(controller="showcase", prompt="Hello", max_tokens=60)
    server.run(controller="regex", controller_arg="a", prompt="Hello")
    found = {re.sub(r"\{.*|_(bucket|sum|count)(?=\{|$)", "", name) for name in server.metrics()}
    found = {re.sub("_(bucket|sum|count)$", "", name) for name in found}
    documented = set(names(section("server_reference.md", "Figures")))
    assert found - documented == set()
    assert documented - found <= {"aici_controller_events_total"}, "the server has no such figures"


def places(value: Any, at: str = "") -> Iterator[str]:
    """Yields the paths of all values in JSON, such as `forks[].text`."""
    if isinstance(value, dict):
        for name, inner in value.items():
            path = f"{at}.{name}" if at else name
            yield path
            # the controller chooses the names of variables
            yield from () if name == "variables" else places(inner, path)
    elif isinstance(value, list):
        for inner in value:
            yield from places(inner, f"{at}[]" if not at.endswith("[]") else at)


def seen(events: Iterable[dict[str, Any]], kind: str) -> set[str]:
    return {path for event in events if event["object"] == kind for path in places(event)}


ASKING = """
from aici import *
async def main():
    await force(str(await call("add", a=1, b=2)))
"""


@pytest.mark.slow
def test_tables_of_event_fields_are_complete(server: Serving, folder: Path) -> None:
    """The fields in events of various runs are those of the tables."""
    guest = build_controller(ROOT / "tests" / "guests" / "guest.c", folder / "guest.wasm").path
    token = run_shell("aici users add guest --role upload --file users.json 2> /dev/null", folder).stdout
    with server.client(token.strip()) as client:
        module = client.post("/v1/controllers", content=guest.read_bytes()).json()["id"]
    runs: list[dict[str, Any]] = [
        {"controller": "showcase", "prompt": "Hello", "max_tokens": 60, "top_logprobs": 2, "details": True},
        {"controller": module, "controller_arg": "mid_trap", "prompt": "x", "max_tokens": 5},
    ]
    events = [event for body in runs for event in server.events(**body)]
    asking = {"language": "python", "source": ASKING}
    with RestClient(server.url) as asker:
        events += asker.run(script=asking, prompt="x", calls={"add": lambda a, b: a + b})
    results = [server.run(**body) for body in runs]
    for heading, found in (
        ("`initial-run`", seen(events, "initial-run")),
        ("`run`", seen(events, "run")),
        ("`run.end`", seen(events, "run.end")),
    ):
        assert set(names(section("server.md", heading))) == found - {"object"}, heading
    whole = seen(results, "run.result")
    assert whole == seen(events, "initial-run") | seen(events, "run.end")
