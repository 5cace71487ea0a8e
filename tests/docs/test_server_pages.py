"""What the pages on the server show is what a real one does: every example, every table."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from aicirt.contract import errors
from pyaici.build import build_controller
from pyaici.server.apis.cpc.requests import CertificateFields, CpcRequest, CpcResponse
from pyaici.server.apis.openai.requests import _NEUTRAL, Constrained
from pyaici.server.apis.openai.tools import FORMATS
from pyaici.server.apis.run.routes import RunRequest
from pyaici.server.http.users import Role, UserFile
from pyaici.server.program import PREFIX
from pyaici.server.settings import ServerSettings, read_settings
from tests.pyaici.server.serving import Serving

from .blocks import Block, blocks, matches, run_blocks, run_shell

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
#: besides docs/server.md
PAGES = ["README.md", "docs/openai.md", "docs/messages.md", "docs/cpc.md"]
#: where the pages say that the server is
_ADDRESS = re.compile(r"http://127\.0\.0\.1:(8000|6969)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the examples run; the server reads its file of users there."""
    made = tmp_path_factory.mktemp("pages")
    (made / "token").write_text(UserFile(made / "users.json").add("reader", Role.RUN))
    return made


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """As docs/server.md starts it."""
    options = ("--users", str(folder / "users.json"), "--anonymous", "run")
    origins = ("--cors-origins", "http://localhost:3000")
    # nobody is there, whoever else uses this machine
    ollama = ("--ollama-url", "http://127.0.0.1:9")
    with Serving(tmp_path_factory.mktemp("server") / "log", *options, *origins, *ollama) as serving:
        yield serving


# -- examples -----------------------------------------------------------------------------------------


def run_page(page: Path, folder: Path, url: str) -> int:
    """Runs what needs a server, and compares its answers; returns how many blocks there were.

    Raises AssertionError with the place in the page.
    """
    variables: dict[str, object] = {"__name__": "__main__"}
    count, printed = 0, None
    for block in blocks(page):
        if "answer" in block.words:
            assert printed is not None, f"{block.where}: nothing right before this answers"
            assert answers(block, printed), f"{block.where}: the answer is\n{printed}"
        printed = None
        if block.asks:
            printed = _ask(block, _ADDRESS.sub(url, block.text), folder, variables)
            count += 1
    return count


def _ask(block: Block, text: str, folder: Path, variables: dict[str, object]) -> str | None:
    """What commands print; None for a program."""
    if block.language == "python":
        # line numbers as in the document, so that a traceback points there
        exec(compile("\n" * (block.line - 1) + text, str(block.document), "exec"), variables)
        return None
    assert block.language == "sh", f"{block.where}: there is no way to run {block.language!r}"
    done = run_shell(f"set -euo pipefail\n{text}", folder)
    assert done.returncode == 0, f"{block.where}: status {done.returncode}\n{done.stdout}"
    return done.stdout


def answers(block: Block, printed: str) -> bool:
    """Whether this is the answer; JSON may be laid out in another way."""
    if block.language != "json":
        return matches(block.text, printed)
    return matches(_laid_out(block.text), _laid_out(printed))


def _laid_out(text: str) -> str:
    """Without white space outside of strings."""
    return re.sub(r'("(?:[^"\\]|\\.)*")|\s+', lambda found: found[1] or "", text)


@pytest.fixture(scope="module")
def server_page(folder: Path, server: Serving) -> int:
    """docs/server.md has been run: the controller that it uploads is there for other pages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run_blocks(DOCS / "server.md", folder)
        return run_page(DOCS / "server.md", folder, server.url)


@pytest.mark.slow
@pytest.mark.usefixtures("server_page")
@pytest.mark.parametrize("name", PAGES)
def test_examples(name: str, folder: Path, server: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("AICI_TOKEN", (folder / "token").read_text())
    assert run_page(ROOT / name, folder, server.url) > 0


@pytest.mark.slow
def test_examples_of_the_server(server_page: int) -> None:
    assert server_page > 0


def test_no_other_page_has_such_examples() -> None:
    pages = {DOCS / "server.md", *(ROOT / name for name in PAGES)}
    others = {*ROOT.glob("*.md"), *DOCS.glob("*.md")} - pages
    assert [b.where for page in others for b in blocks(page) if b.asks or "answer" in b.words] == []


def test_examples_that_are_wrong_fail(tmp_path: Path) -> None:
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
    """The text below a heading, up to the next one that is not below it."""
    text = (DOCS / page).read_text()
    marks = re.search(rf"^(#+) {re.escape(heading)}$", text, re.MULTILINE)
    assert marks, f"{page} has no section {heading!r}"
    rest = text[marks.end() :]
    end = re.search(rf"^#{{1,{len(marks[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def rows(text: str) -> list[list[str]]:
    """The cells of all tables, without heads."""
    lines = re.findall(r"^\|.*\|$", text, re.MULTILINE)
    cells = [[cell.strip() for cell in line.strip("|").replace(r"\|", "¦").split("|")] for line in lines]
    dividers = [number for number, row in enumerate(cells) if set(row[0]) == {"-"}]
    return [row for number, row in enumerate(cells) if not {number, number + 1} & set(dividers)]


def names(text: str, column: int = 0) -> list[str]:
    """What stands between backquotes in one column of the tables."""
    return [name for row in rows(text) for name in re.findall("`([^`]+)`", row[column])]


def default(field: FieldInfo) -> str:
    """As pages show it."""
    value = field.get_default()
    if field.is_required() or value in (None, [], PydanticUndefined):
        return "required" if field.is_required() else ""
    return f"`{json.dumps(value)}`"


def test_settings() -> None:
    expected = [
        f"| `--{name.replace('_', '-')}` | {default(field)} | {field.description} |".replace("|  |", "| |")
        for name, field in ServerSettings.model_fields.items()
    ]
    found = re.findall(r"^\| `--.*$", section("server.md", "Settings"), re.MULTILINE)
    assert found == expected, "the table of settings should be\n" + "\n".join(expected)


def test_the_file_of_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shown,) = [block for block in blocks(DOCS / "server.md") if block.language == "toml"]
    file = tmp_path / "aici.toml"
    file.write_text(shown.text)
    settings = read_settings({}, file)
    assert settings.model_fields_set == set(re.findall(r"^(\w+) =", shown.text, re.MULTILINE))
    (unit,) = [block for block in blocks(DOCS / "server.md") if block.language == "ini"]
    for name in re.findall(rf"{PREFIX}(\w+)=", unit.text):
        assert name.lower() in ServerSettings.model_fields


@pytest.mark.parametrize(
    ("page", "heading", "fields"),
    [
        ("server.md", "The request", RunRequest.model_fields),
        ("openai.md", "Answers of a given form", Constrained.model_fields),
        ("cpc.md", "The request", CpcRequest.model_fields),
        ("cpc.md", "The answer", CpcResponse.model_fields),
        ("cpc.md", "The certificate", CertificateFields.model_fields),
    ],
)
def test_fields(page: str, heading: str, fields: dict[str, FieldInfo]) -> None:
    """Each has a row; where the second column is the default, it is that one."""
    table = rows(section(page, heading))
    found = {name: row for row in table for name in re.findall("`([^`]+)`", row[0])}
    assert set(found) == set(fields)
    for name, row in found.items():
        if len(row) == 3:
            assert row[1] == default(fields[name]), name


def test_fields_that_are_refused() -> None:
    listed = section("openai.md", "What is refused").partition(". Values")[0]
    assert set(re.findall("`([^`]+)`", listed)) == set(_NEUTRAL)


def test_families_of_tools() -> None:
    shown = {
        row[0].strip("`"): row[1].strip("`") for row in rows(section("openai.md", "Tools")) if "`" in row[0]
    }
    assert shown == {name: form.write([("now", {})]).replace("\n", r"\n") for name, form in FORMATS.items()}


def runtime_codes() -> Iterator[str]:
    """Those of all errors of the runtime."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    yield from (kind.code for kind in kinds if issubclass(kind, errors.AiciError))


def server_codes() -> Iterator[str]:
    """The codes of errors that the server itself answers."""
    for path in (ROOT / "pyaici" / "server").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                values = [word.value for word in node.keywords if word.arg == "code"]
                values += node.args[2:3] if node.func.id == "bad_request" else []
                yield from (value.value for value in values if isinstance(value, ast.Constant))


def test_codes_of_errors() -> None:
    shown = names(section("server.md", "Errors"), 2)
    assert sorted(shown) == sorted({*runtime_codes(), *server_codes()})


@pytest.mark.slow
def test_figures(server: Serving) -> None:
    server.run(controller="showcase", prompt="Hello", max_tokens=60)
    server.run(controller="regex", controller_arg="a", prompt="Hello")
    found = {re.sub(r"\{.*|_(bucket|sum|count)(?=\{|$)", "", name) for name in server.metrics()}
    found = {re.sub("_(bucket|sum|count)$", "", name) for name in found}
    documented = set(names(section("server.md", "Figures")))
    assert found - documented == set()
    assert documented - found <= {"aici_controller_events_total"}, "there are no such figures"


def places(value: Any, at: str = "") -> Iterator[str]:
    """The paths of all values in JSON: `forks[].text`."""
    if isinstance(value, dict):
        for name, inner in value.items():
            path = f"{at}.{name}" if at else name
            yield path
            # names of variables are the controller's
            yield from () if name == "variables" else places(inner, path)
    elif isinstance(value, list):
        for inner in value:
            yield from places(inner, f"{at}[]" if not at.endswith("[]") else at)


def seen(events: Iterable[dict[str, Any]], kind: str) -> set[str]:
    return {path for event in events if event["object"] == kind for path in places(event)}


@pytest.mark.slow
def test_events(server: Serving, folder: Path) -> None:
    """Every field that runs of all sorts tell has its row, and no other one has."""
    guest = build_controller(ROOT / "tests" / "guests" / "guest.c", folder / "guest.wasm").path
    token = run_shell("aici users add guest --role upload --file users.json 2> /dev/null", folder).stdout
    with server.client(token.strip()) as client:
        module = client.post("/v1/controllers", content=guest.read_bytes()).json()["id"]
    runs: list[dict[str, Any]] = [
        {"controller": "showcase", "prompt": "Hello", "max_tokens": 60, "top_logprobs": 2, "details": True},
        {"controller": module, "controller_arg": "mid_trap", "prompt": "x", "max_tokens": 5},
    ]
    events = [event for body in runs for event in server.events(**body)]
    results = [server.run(**body) for body in runs]
    for heading, found in (
        ("`initial-run`", seen(events, "initial-run")),
        ("`run`", seen(events, "run")),
        ("`run.end`", seen(events, "run.end")),
    ):
        assert set(names(section("server.md", heading))) == found - {"object"}, heading
    whole = seen(results, "run.result")
    assert whole == seen(events, "initial-run") | seen(events, "run.end")
