"""Options, names, fields and numbers in the texts of the documents are those of the code."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from aicirt import settings as limits
from pyaici.bundled import bundled_controllers
from pyaici.cli import server
from pyaici.cli.__main__ import parser
from pyaici.engines.engine import GenerationResult
from pyaici.engines.hf import program as hf
from pyaici.server.settings import ServerSettings
from pyaici.testing import Transcript
from tests.structure import files

from .blocks import DOCUMENTS, ROOT

by_name = pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS.keys())
GUIDE = ROOT / "docs" / "guide"
_FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")


def prose(document: Path) -> str:
    """Returns the text of a document without its blocks of code."""
    return _FENCED.sub("", document.read_text())


def inline(document: Path) -> set[str]:
    """Returns the texts in backquotes."""
    return set(re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose(document)))


# -- options -------------------------------------------------------------------------------------------


def options_of(parsed: argparse.ArgumentParser) -> set[str]:
    """Returns the options of a parser and of its subcommands."""
    found = set()
    for action in parsed._actions:
        found |= set(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                found |= options_of(inner)
    return found


@cache
def commands() -> dict[str, set[str]]:
    """Returns the options of each command of `aici`."""
    (actions,) = (
        each for each in parser(completing=True)._actions if isinstance(each, argparse._SubParsersAction)
    )
    found = {name: options_of(command) for name, command in actions.choices.items()}
    return found


@cache
def own_options() -> set[str]:
    """Returns the options of `aici`, of the programs of a checkout, and of the scripts."""
    found = set().union(*commands().values())
    engine = argparse.ArgumentParser()
    hf.add_options(engine)
    found |= options_of(engine)
    for path in (*files("scripts/*"), *files("lab/*"), *files("tests/*")):
        if path.suffix in (".py", ".sh") and path.parts[:2] != ("tests", "docs"):
            found |= set(_OPTION.findall((ROOT / path).read_text()))
    return found


#: options of other programs, which texts name alone
FOREIGN_OPTIONS = {
    "docs/migrating.md": {"--grammar-file", "--json-schema"},
    "docs/sglang.md": {
        "--constrained-json-disable-any-whitespace",
        "--dp-size",
        "--reasoning-parser",
        "--tool-call-parser",
    },
    "docs/vllm.md": {"--long-prefill-token-threshold", "--max-num-batched-tokens", "--reasoning-parser"},
    "docs/guide/building.md": {"--compile-bytecode"},
}


def code_lines(document: Path) -> Iterator[str]:
    """Yields the texts in backquotes, and the commands in blocks, with their continued lines."""
    yield from inline(document)
    for block in _FENCED.findall(document.read_text()):
        first, *lines = block.splitlines()[:-1]
        if re.match(r" *```(console|sh|bash)", first):
            yield from re.sub(r"\\\n", " ", "\n".join(lines)).splitlines()


def unknown_options(document: str, text: str) -> list[str]:
    """Returns the options in one text of code that its command, or no program of ours, has."""
    named = re.search(r"(?:^|[ ;$(])aici ([a-z]+)\b", text)
    if named and named[1] in commands():
        text = text[named.start() :].partition(" | ")[0]
        known = commands()[named[1]]
    elif re.match(r"--|\[--|(\$ *)?(\S*/)?(scripts|harness|\.ci)/|(\$ *)?python -m (lab|tests|pyaici)", text):
        known = own_options() | FOREIGN_OPTIONS.get(document, set())
    elif re.match(r"(\$ *)?(aicirt|pyaici)\b", text):
        known = set()  # no such program
    else:
        return []
    return [option for option in _OPTION.findall(text) if option not in known]


@by_name
def test_options_exist(document: Path) -> None:
    name = document.relative_to(ROOT).as_posix()
    wrong = [(text, unknown) for text in code_lines(document) if (unknown := unknown_options(name, text))]
    assert not wrong


def test_unknown_options_are_found() -> None:
    for text in ("--warm-budget-ms 0", "aicirt --help", "aici runtime --reload", "$ aici run x --tag y"):
        assert unknown_options("README.md", text), text
    for text in ("curl --json", "aici run x --arg y | head --lines", "aici serve --threads 2", "--chat"):
        assert not unknown_options("README.md", text), text


# -- names ----------------------------------------------------------------------------------------------


@cache
def words(folders: tuple[str, ...]) -> set[str]:
    """Returns all words of the source, without these folders, and the names of its files."""
    found: set[str] = set()
    for path in files("*"):
        if path.suffix == ".md" or path.parts[0] in ("docs", *folders) or path.parts[:2] == ("tests", "docs"):
            continue
        found.add(path.stem)
        if path.suffix in (".py", ".pyi", ".ts", ".cpp", ".hpp", ".h", ".js", ".toml", ".sh", ".rs", ".zig"):
            found |= set(re.findall(r"\w+", (ROOT / path).read_text()))
    return found


#: pages that also name what only tests and measurements have
FOR_DEVELOPERS = {
    "CONTRIBUTING.md",
    *(f"docs/{name}.md" for name in ("extending", "performance", "reliability", "security", "structure")),
}
#: names of other programs, and words that examples write
FOREIGN_NAMES = {
    "docs/engines.md": {"posix_spawn"},
    "docs/grammars.md": {"bit_count_eq", "wherex"},
    "docs/guide/script_reference.md": {
        "cache_info",
        "groupindex",
        "lastgroup",
        "lastindex",
        "purge",
        "threshold",
    },
    "docs/json_schema.md": {"date_time", "quant"},
    "docs/messages.md": {"cache_control", "extra_body", "thinking_delta"},
    "docs/performance.md": {"sched_autogroup"},
    # counters, whose names the supervisor puts together
    "docs/reliability.md": {"builds_waited", "compilations_waited"},
    "docs/recipes.md": {"extra_body", "with_structured_output"},
    "docs/responses.md": {"input_image"},
    "docs/security.md": {"evil"},
    "docs/server.md": {"two_answers"},
    "docs/sglang.md": {"custom_params"},
    "docs/tools.md": {"structuredContent"},
    "docs/vllm.md": {"apply_all_penalties", "beam_search"},
}
#: the page with the fields of other servers, each of which a test sends
COMPARED = "docs/compatibility.md"
#: figures begin with these names
SUITES = {path.stem for path in (*files("lab/suites/*.py"), *files("lab/campaigns/*.py"))} | {"llama", "call"}


def unknown_names(document: str, text: str) -> list[str]:
    """Returns the words of a dotted name, or of a call, that the source does not have."""
    found = re.fullmatch(r"((?:[a-zA-Z_]\w*\.)*[a-zA-Z_]\w*)(?:\(.*\))?", text)
    if not found or len(found[1]) < 5 or not re.match("[a-z_]", found[1]):
        return []
    first, *_ = names = found[1].split(".")
    if first in SUITES:
        return []
    known = words(() if document in FOR_DEVELOPERS else ("lab", "tests")) | FOREIGN_NAMES.get(document, set())
    return [word for word in names if word not in known and word.removesuffix("_total") not in known]


@by_name
def test_names_exist(document: Path) -> None:
    name = document.relative_to(ROOT).as_posix()
    if name != COMPARED:
        assert not [text for text in sorted(inline(document)) if unknown_names(name, text)]


def test_unknown_names_are_found() -> None:
    assert unknown_names("README.md", "overlapped") and unknown_names("README.md", "answer.alowed_mass")
    assert not unknown_names("README.md", "step.allowed_mass")


# -- numbers --------------------------------------------------------------------------------------------

_UNITS = {"KiB": 1024, "MiB": 1 << 20, "GiB": 1 << 30, "s": 1000, "seconds": 1000, "day": 86_400_000}
#: a number with its unit
_QUANTITY = re.compile(r"(?<![\w.])(a|\d[\d ]*(?:\.\d+)?) ?([A-Za-z]+)?")


def defaults() -> dict[str, set[float]]:
    """Returns the defaults of limits and of settings of the server, by name; times in milliseconds."""
    found: dict[str, set[float]] = {}
    kinds = [
        kind for kind in vars(limits).values() if isinstance(kind, type) and dataclasses.is_dataclass(kind)
    ]
    given = [(field.name, field.default) for kind in kinds for field in dataclasses.fields(kind)]
    given += [
        (f"--{name.replace('_', '-')}", f.get_default()) for name, f in ServerSettings.model_fields.items()
    ]
    for name, value in given:
        if isinstance(value, int | float):
            seconds = re.search("[-_](s|seconds)$", name)
            found.setdefault(name, set()).add(value * 1000 if seconds else value)
    return found


def quantities(text: str) -> set[float]:
    """Returns the numbers in a text in bytes, milliseconds or pieces."""
    pairs = [
        (1.0 if each[1] == "a" else float(each[1].replace(" ", "")), each[2])
        for each in _QUANTITY.finditer(text)
    ]
    return {number * _UNITS.get(unit or "", 1) for number, unit in pairs}


def wrong_numbers(text: str) -> list[str]:
    """Returns the parts of a text, such as "64 MiB (`memory_bytes`)", whose numbers are no default."""
    known, wrong = defaults(), []
    for found in re.finditer(
        r"([^.;:|()\n]*\d[^.;:|()\n]*(?:\.\d[^.;:|()\n]*)?)\(([^()\n]*`[^()\n]*)\)", text
    ):
        named = [name for name in re.findall(r"`([\w-]+)`", found[2]) if name in known]
        wrong += [found[0] for name in named if not known[name] & quantities(found[1])]
    return wrong


@by_name
def test_numbers_are_the_defaults(document: Path) -> None:
    assert not wrong_numbers(re.sub(r"\]\([^)]*\)", "]", prose(document)))


def test_wrong_numbers_are_found() -> None:
    assert wrong_numbers("It has 65 MiB (`memory_bytes`).") and wrong_numbers("at most 100 (`--max-streams`)")
    assert not wrong_numbers("It has 64 MiB (`memory_bytes`), and 1.5 s of CPU time (`warm_budget_ms`).")


# -- lists ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("column", "kind"), [(0, GenerationResult), (1, Transcript)])
def test_the_table_of_results_has_their_attributes(column: int, kind: type) -> None:
    page = (GUIDE / "script_reference.md").read_text()
    table = page.partition("\n## Results\n")[2].partition("\n\n- ")[0]
    rows = [row.split("|")[1:-1] for row in table.splitlines() if row.startswith("| ")][1:]
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row[column])}
    assert listed == {name for name in dir(kind) if not name.startswith("_")}


def listed(document: Path, begins: str) -> set[str]:
    """Returns the names in backquotes in the line or sentence that begins so."""
    found = re.search(rf"{re.escape(begins)}[^\n]*?\.(?=\s)", document.read_text())
    assert found, f"{document.name}: {begins}"
    return set(re.findall("`([^`]+)`", found[0][len(begins) :]))


def test_fields_of_steps_are_those_of_the_library() -> None:
    """`aici.pyi` has the names in Python, the page also those in JavaScript that differ."""
    tree = ast.parse((ROOT / "pyaici/scripting/aici.pyi").read_text())
    (step,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Step")
    fields = {
        each.target.id
        for each in step.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    camel = {re.sub("_(.)", lambda found: found[1].upper(), name) for name in fields}
    assert listed(GUIDE / "script_tokens.md", "`step` has ") == fields | camel


def test_options_that_servers_do_not_take_are_listed() -> None:
    assert listed(GUIDE / "building.md", "these options are refused: ") == {
        f"--{name.replace('_', '-')}" for name in server._LOCAL
    }


def test_the_changelog_names_every_bundled_controller() -> None:
    """The interpreters are described as Python and JavaScript."""
    controllers = set(bundled_controllers()) - {"pyctrl", "jsctrl"}
    assert controllers <= listed(ROOT / "CHANGELOG.md", "- **Controllers.** ")
