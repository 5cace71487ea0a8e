"""Reads the structure of the source: packages, their sizes, and who imports whom.

``python -m tests.structure`` prints a table of all packages, and what `tests.measures` measures; with
``--files [FOLDER ...]`` it prints a line for each file.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: packages whose modules stand at different heights, so that each counts as a unit of its own
_LOOSE = ("aicirt", "pyaici", "pyaici.server")
#: which units each unit imports: a change here is a decision about the architecture
MATRIX = {
    "aicirt": "",
    "aicirt.__main__": "aicirt.contract aicirt.modules aicirt.settings aicirt.supervisor aicirt.system",
    "aicirt.contract": "",
    "aicirt.doctor": "aicirt.contract aicirt.ipc aicirt.modules aicirt.settings aicirt.system",
    "aicirt.fork_server": "aicirt.modules aicirt.sandbox aicirt.system aicirt.worker",
    "aicirt.ipc": "aicirt.contract aicirt.system",
    "aicirt.modules": (
        "aicirt.contract aicirt.sandbox aicirt.settings aicirt.system aicirt.wasm aicirt.wasm.module"
    ),
    "aicirt.sandbox": "",
    "aicirt.settings": "aicirt.system",
    "aicirt.supervisor": (
        "aicirt.contract aicirt.ipc aicirt.modules aicirt.settings aicirt.system aicirt.vocab"
    ),
    "aicirt.system": "aicirt.contract aicirt.sandbox",
    "aicirt.vocab": "aicirt.contract",
    "aicirt.wasm": "aicirt.contract aicirt.settings aicirt.system aicirt.wasm.module",
    "aicirt.wasm.module": "aicirt.contract aicirt.settings",
    "aicirt.worker": (
        "aicirt.contract aicirt.ipc aicirt.sandbox aicirt.settings aicirt.system aicirt.vocab aicirt.wasm"
    ),
    "pyaici": (
        "aicirt aicirt.contract pyaici.client pyaici.engines pyaici.engines.batching pyaici.engines.hf "
        "pyaici.engines.llama pyaici.engines.vllm pyaici.opening pyaici.tokens"
    ),
    "pyaici.bundled": "aicirt.contract pyaici.toolchain",
    "pyaici.cli": (
        "aicirt.__main__ aicirt.contract aicirt.doctor aicirt.modules aicirt.settings aicirt.system "
        "aicirt.wasm.module pyaici.artifacts pyaici.bundled pyaici.client pyaici.engines "
        "pyaici.engines.batching pyaici.engines.hf pyaici.engines.llama pyaici.engines.sglang "
        "pyaici.engines.vllm pyaici.engines.vllm.frontend pyaici.evaluation pyaici.opening "
        "pyaici.recording pyaici.rest pyaici.rest_types pyaici.scripting pyaici.server.http "
        "pyaici.server.serve pyaici.testing pyaici.toolchain pyaici.tools"
    ),
    "pyaici.client": "aicirt.contract aicirt.ipc aicirt.settings aicirt.system pyaici.bundled pyaici.tokens",
    "pyaici.cpc": "aicirt.contract pyaici.tokens",
    "pyaici.engines": (
        "aicirt.contract aicirt.system pyaici.bundled pyaici.client pyaici.recording pyaici.scripting "
        "pyaici.tokens"
    ),
    "pyaici.engines.batching": "aicirt.contract pyaici.client pyaici.engines pyaici.recording pyaici.tokens",
    "pyaici.engines.hf": (
        "aicirt.contract aicirt.system pyaici.client pyaici.engines pyaici.engines.batching pyaici.models "
        "pyaici.tokens pyaici.toolchain"
    ),
    "pyaici.engines.llama": (
        "aicirt.contract aicirt.system pyaici.client pyaici.engines pyaici.engines.batching pyaici.models "
        "pyaici.tokens pyaici.toolchain"
    ),
    "pyaici.engines.sglang": (
        "aicirt.contract pyaici.bundled pyaici.client pyaici.engines pyaici.server.answers "
        "pyaici.server.apis.openai pyaici.server.http"
    ),
    "pyaici.engines.vllm": (
        "aicirt.contract aicirt.system pyaici.client pyaici.engines pyaici.engines.vllm.frontend "
        "pyaici.engines.vllm.scheduling pyaici.engines.vllm.versions pyaici.engines.vllm.workers "
        "pyaici.models pyaici.recording pyaici.tokens"
    ),
    "pyaici.engines.vllm.frontend": (
        "aicirt.contract pyaici.client pyaici.engines pyaici.engines.vllm.versions"
    ),
    "pyaici.engines.vllm.scheduling": (
        "aicirt.contract pyaici.client pyaici.engines pyaici.engines.vllm.frontend "
        "pyaici.engines.vllm.versions pyaici.engines.vllm.workers pyaici.tokens"
    ),
    "pyaici.engines.vllm.versions": "",
    "pyaici.engines.vllm.workers": "aicirt.contract pyaici.client pyaici.engines",
    "pyaici.artifacts": "aicirt.contract aicirt.system pyaici.bundled pyaici.scripting",
    "pyaici.errors": "aicirt.contract pyaici.models",
    "pyaici.evaluation": "pyaici.client pyaici.engines",
    "pyaici.models": "aicirt.contract aicirt.system pyaici.toolchain",
    "pyaici.opening": (
        "pyaici.client pyaici.engines pyaici.engines.batching pyaici.engines.hf pyaici.engines.llama "
        "pyaici.engines.vllm pyaici.models"
    ),
    "pyaici.recording": "aicirt.contract pyaici.client pyaici.models pyaici.tokens",
    "pyaici.rest": "aicirt.contract aicirt.system pyaici.client pyaici.rest_types",
    "pyaici.rest_types": "",
    "pyaici.scripting": "aicirt.contract aicirt.system pyaici.bundled pyaici.client pyaici.recording",
    "pyaici.server": "",
    "pyaici.server.answers": (
        "aicirt.contract pyaici.engines pyaici.server.http pyaici.server.models pyaici.server.scheduling "
        "pyaici.server.service"
    ),
    "pyaici.server.apis": (
        "aicirt.contract pyaici.bundled pyaici.engines pyaici.scripting pyaici.server.answers "
        "pyaici.server.controller_store pyaici.server.http pyaici.server.models pyaici.server.scheduling "
        "pyaici.server.service pyaici.tokens pyaici.tools"
    ),
    "pyaici.server.apis.cpc": (
        "aicirt.contract pyaici.cpc pyaici.engines pyaici.engines.batching pyaici.server.answers "
        "pyaici.server.apis pyaici.server.http pyaici.server.scheduling pyaici.server.service"
    ),
    "pyaici.server.apis.messages": (
        "pyaici.engines pyaici.server.answers pyaici.server.apis pyaici.server.http pyaici.server.service"
    ),
    "pyaici.server.apis.ollama": (
        "pyaici.server.answers pyaici.server.apis pyaici.server.apis.openai pyaici.server.http "
        "pyaici.server.models pyaici.server.service"
    ),
    "pyaici.server.apis.openai": (
        "aicirt.contract pyaici.bundled pyaici.engines pyaici.server.answers pyaici.server.apis "
        "pyaici.server.http pyaici.server.models pyaici.server.service pyaici.tools"
    ),
    "pyaici.server.apis.responses": (
        "aicirt.contract pyaici.engines pyaici.server.answers pyaici.server.apis pyaici.server.apis.openai "
        "pyaici.server.http pyaici.server.service pyaici.server.settings"
    ),
    "pyaici.server.apis.run": (
        "aicirt.contract aicirt.settings pyaici.client pyaici.engines pyaici.server.apis "
        "pyaici.server.apis.openai pyaici.server.http pyaici.server.models pyaici.server.scheduling "
        "pyaici.server.service"
    ),
    "pyaici.server.app": (
        "pyaici.server.apis pyaici.server.apis.cpc pyaici.server.apis.messages pyaici.server.apis.ollama "
        "pyaici.server.apis.openai pyaici.server.apis.responses pyaici.server.apis.run "
        "pyaici.server.controller_store "
        "pyaici.server.http pyaici.server.models pyaici.server.playground pyaici.server.service "
        "pyaici.server.settings pyaici.tools"
    ),
    "pyaici.server.calls": (
        "aicirt.contract aicirt.system pyaici.client pyaici.engines pyaici.server.controller_store "
        "pyaici.server.http pyaici.server.scheduling"
    ),
    "pyaici.server.controller_store": (
        "aicirt.contract aicirt.system pyaici.artifacts pyaici.bundled pyaici.client pyaici.scripting "
        "pyaici.server.http pyaici.server.scheduling pyaici.server.settings"
    ),
    "pyaici.server.http": "aicirt.contract aicirt.system pyaici.engines pyaici.server.settings",
    "pyaici.server.models": (
        "pyaici.client pyaici.engines pyaici.models pyaici.opening pyaici.server.http "
        "pyaici.server.settings pyaici.tokens"
    ),
    "pyaici.server.playground": "pyaici.server.http",
    "pyaici.server.serve": (
        "aicirt.contract aicirt.system pyaici.bundled pyaici.client pyaici.server.app "
        "pyaici.server.controller_store pyaici.server.http pyaici.server.models pyaici.server.settings "
        "pyaici.server.shared_controllers pyaici.server.shared_store pyaici.toolchain pyaici.tools"
    ),
    "pyaici.server.scheduling": (
        "aicirt.contract aicirt.system pyaici.client pyaici.engines pyaici.server.http pyaici.server.settings"
    ),
    "pyaici.server.service": (
        "aicirt.contract aicirt.system pyaici.engines pyaici.server.calls pyaici.server.controller_store "
        "pyaici.server.http pyaici.server.models pyaici.server.scheduling pyaici.server.settings pyaici.tools"
    ),
    "pyaici.server.settings": "aicirt.contract pyaici.tools",
    "pyaici.server.shared_controllers": (
        "aicirt.contract pyaici.bundled pyaici.client pyaici.scripting "
        "pyaici.server.controller_store pyaici.server.http pyaici.server.settings pyaici.server.shared_store"
    ),
    "pyaici.server.shared_store": "aicirt.contract aicirt.settings aicirt.system",
    "pyaici.testing": (
        "aicirt.contract aicirt.settings aicirt.system aicirt.vocab pyaici.bundled pyaici.client "
        "pyaici.engines pyaici.engines.batching pyaici.recording pyaici.scripting pyaici.tokens"
    ),
    "pyaici.tokens": "aicirt.contract aicirt.vocab",
    "pyaici.toolchain": "",
    "pyaici.tools": (
        "aicirt.contract aicirt.sandbox aicirt.settings aicirt.system pyaici.client pyaici.toolchain"
    ),
}
#: which units may import packages of others
FOREIGN = {
    "ctypes": "aicirt.ipc aicirt.sandbox aicirt.system aicirt.wasm pyaici.engines.llama",
    "wasmtime": "aicirt.wasm",
    "torch": (
        "pyaici.client pyaici.engines.hf pyaici.engines.sglang pyaici.engines.vllm.scheduling "
        "pyaici.engines.vllm.workers pyaici.models"
    ),
    "transformers": "pyaici.engines.hf pyaici.models pyaici.tokens",
    "vllm": (
        "pyaici.engines.vllm pyaici.engines.vllm.frontend pyaici.engines.vllm.scheduling "
        "pyaici.engines.vllm.versions pyaici.engines.vllm.workers"
    ),
    "sglang": "pyaici.engines.sglang",
    "mcp": "pyaici.tools",
    "httpx2": "pyaici.rest pyaici.server.apis.cpc pyaici.tools",
    "fastapi": (
        "pyaici.server.apis pyaici.server.apis.cpc pyaici.server.apis.messages pyaici.server.apis.ollama "
        "pyaici.server.apis.openai pyaici.server.apis.responses pyaici.server.apis.run pyaici.server.app "
        "pyaici.server.http "
        "pyaici.server.playground"
    ),
}
#: which top-level folders the Python files of each import
TOP = {
    "aicirt": "",
    "pyaici": "aicirt",
    "controllers": "",
    "harness": "aicirt pyaici",
    "lab": "aicirt pyaici",
    "scripts": "",
    "tests": "aicirt lab pyaici",
}
#: files that the list has: tests mirror the packages, and the site lists docs
_LISTED = re.compile(
    r"(aicirt|pyaici|lab|harness|controllers|scripts|\.ci|\.devcontainer|\.github)/.*|[^/]+\.(py|toml|md)|LICENSE"
)
_ABOUT = (__doc__ or "").partition("\n")[0]


def files(pattern: str = "*") -> list[Path]:
    """Returns the files that git tracks or would add, relative to the root."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", pattern]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(Path(name) for name in listing.split("\0") if name and (ROOT / name).is_file())


@cache
def modules() -> dict[str, Path]:
    """Returns the modules of aicirt and pyaici by dotted name."""
    found = {}
    for path in files("*.py"):
        if path.parts[0] in ("aicirt", "pyaici") and not {"templates", "scripts"} & set(path.parts):
            parts = path.with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def unit(module: str) -> str:
    """Returns the unit of the matrix that a module belongs to: its package, or itself in a loose package."""
    package = module if modules()[module].name == "__init__.py" else module.rpartition(".")[0]
    return module if package in _LOOSE else package


def nodes_in(tree: ast.AST) -> list[ast.AST]:
    """Returns a tree's nodes in any order, as `ast.walk` does in three times the time."""
    found = [tree]
    for node in found:
        for value in vars(node).values():
            if isinstance(value, ast.AST):
                found.append(value)
            elif type(value) is list:
                found += [each for each in value if isinstance(each, ast.AST)]
    return found


def statements_in(tree: ast.AST) -> list[ast.AST]:
    """Returns a tree's statements in any order, with those in others, without their expressions."""
    found = [tree]
    for node in found:
        for name in ("body", "orelse", "handlers", "finalbody", "cases"):
            found += getattr(node, name, ())
    return found


def imports_in(nodes: Iterable[ast.AST], path: Path) -> set[str]:
    """Returns all that a file imports, as dotted names, within functions and for type checkers too."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            # the package that the dots of a relative import mean
            folder = path.parents[node.level - 1].parts if node.level else ()
            module = ".".join([*folder, *([node.module] if node.module else [])])
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


@cache
def imported_names(path: Path) -> frozenset[str]:
    """Returns the same as `imports_in`, for a file that is not parsed yet."""
    return frozenset(imports_in(statements_in(ast.parse((ROOT / path).read_text())), path))


def imported(path: Path) -> set[str]:
    """Returns our modules that a file imports."""
    known = modules().keys()
    return {name if name in known else name.rpartition(".")[0] for name in imported_names(path)} & known


def foreign() -> dict[str, set[str]]:
    """Returns the units that import each of the packages in `FOREIGN`."""
    found: dict[str, set[str]] = {name: set() for name in FOREIGN}
    for module, path in modules().items():
        for package in {name.partition(".")[0] for name in imported_names(path)} & found.keys():
            found[package].add(unit(module))
    return found


def top_level() -> dict[str, set[str]]:
    """Returns the top-level folders that the Python files of each of them import."""
    found: dict[str, set[str]] = {}
    for path in files("*.py"):
        if len(path.parts) > 1:
            found.setdefault(path.parts[0], set()).update(
                name.partition(".")[0] for name in imported_names(path)
            )
    return {name: others & found.keys() - {name} for name, others in found.items()}


@cache
def graph() -> dict[str, set[str]]:
    """Returns the units that each unit imports."""
    edges: dict[str, set[str]] = {unit(module): set() for module in modules()}
    for module, path in modules().items():
        edges[unit(module)] |= {unit(other) for other in imported(path)} - {unit(module)}
    return edges


def cycle(edges: dict[str, set[str]]) -> list[str]:
    """Returns units that import each other in a circle, or nothing if there is no circle."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return path[path.index(name) :]
        if name in done:
            return []
        for other in sorted(edges.get(name, ())):
            if found := visit(other, [*path, name]):
                return found
        done.add(name)
        return []

    for name in sorted(edges):
        if found := visit(name, []):
            return found
    return []


#: the comment at the head of a file, which may follow a line for the shell or the browser
_HEAD = re.compile(
    r"""(?:\#![^\n]*\n|<!doctype\ html>\n|\s)*+
    (?:r?\"{3}(?P<docstring>.+?)\"{3} | /\*+(?P<block>.+?)\*/ | <!--(?P<markup>.+?)-->
    | (?P<lines>(?://[^\n]*\n)+ | (?:\#(?!include|pragma)[^\n]*\n)+))""",
    re.VERBOSE | re.DOTALL,
)
#: what begins a line of a comment
_MARGIN = re.compile(r"^[ \t]*(?://[!/]?|[#*])?[ \t]*", re.MULTILINE)
#: the end of a sentence, but not of an abbreviation
_SENTENCE = re.compile(r"(?<!e\.g)\.\s+(?=[A-Z`\"(]|[\w/]+\.\w)")
#: the folder of the public headers
_INCLUDE = Path("controllers/sdk/include")


def about(path: Path) -> str:
    """Returns what a file says about itself: its heading, or the first sentence of the comment at its head.

    Leaves out a name of the file before it. A source without a comment has that of its public header.
    """
    if path.suffix == ".png":
        return ""
    text = (ROOT / path).read_text()
    if path.suffix == ".md":
        return text.partition("\n")[0].lstrip("# ")
    if not (found := _HEAD.match(text)):
        own = re.search(rf'^#include "(aici/[\w/]*\b{path.stem}\.hpp)"$', text, re.MULTILINE)
        return about(_INCLUDE / own[1]) if own else ""
    paragraph = _MARGIN.sub("", found[found.lastgroup or 0]).strip().partition("\n\n")[0]
    sentence = _SENTENCE.split(" ".join(paragraph.split()), 1)[0]
    names = "|".join(re.escape(name) for name in (path.name, path.stem, path.parent.name))
    sentence = re.sub(rf"^(?:{names})(?::| -) (\w)", lambda match: match[1].upper(), sentence)
    return sentence.rstrip(" .:")


def entries(paths: list[Path]) -> Iterator[str]:
    """Yields the lines of a folder. Sources without a comment stand beside their headers."""
    described = {path: about(path) for path in paths}
    silent = [path for path in paths if not described[path]]
    for path, text in described.items():
        if text:
            with_it = [other for other in silent if other.stem == path.stem and path.suffix in (".h", ".hpp")]
            silent = [other for other in silent if other not in with_it]
            yield f"  {', '.join(one.name for one in [path, *with_it])}: {text}"
    if silent:
        yield f"  {', '.join(path.name for path in silent)}"


def listing(folders: Sequence[Path] = ()) -> str:
    """Returns a section for each folder with a line for each file: of all, or of those in given folders."""
    found: dict[Path, list[Path]] = defaultdict(list)
    for path in files():
        listed = any(path.is_relative_to(folder) for folder in folders) or not folders
        if listed and _LISTED.fullmatch(str(path)) and (ROOT / path).stat().st_size:
            found[path.parent].append(path)
    parts = []
    for folder, paths in sorted(found.items()):
        package = about(folder / "__init__.py") if folder / "__init__.py" in paths else ""
        lines = [f"{folder}: {package}" if package else f"{folder}"]
        lines += entries([path for path in paths if path.name != "__init__.py"])
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def table() -> Iterator[str]:
    """Yields a line for each package: its size, and how many packages import it and are imported."""
    packages: dict[str, list[Path]] = defaultdict(list)
    for path in modules().values():
        packages[".".join(path.parent.parts)].append(path)
    edges: dict[str, set[str]] = defaultdict(set)
    for path in modules().values():
        package = ".".join(path.parent.parts)
        edges[package] |= {".".join(modules()[other].parent.parts) for other in imported(path)} - {package}
    tracked = files()
    yield f"{'package':28} {'files':>5} {'lines':>6} {'entries':>7} {'in':>3} {'out':>3}"
    for name, paths in sorted(packages.items()):
        lines = sum((ROOT / path).read_text().count("\n") for path in paths)
        folder = Path(*name.split("."))
        entries = {path.relative_to(folder).parts[0] for path in tracked if path.is_relative_to(folder)}
        users = sum(name in others for others in edges.values())
        yield f"{name:28} {len(paths):5} {lines:6} {len(entries):7} {users:3} {len(edges[name]):3}"
    total = [(ROOT / path).read_text().count("\n") for path in modules().values()]
    yield f"{'all':28} {len(total):5} {sum(total):6}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.structure", description=_ABOUT)
    parser.add_argument(
        "--files",
        nargs="*",
        metavar="FOLDER",
        type=Path,
        help="print a line for each file: of all folders, or of these",
    )
    if (folders := parser.parse_args().files) is not None:
        print(listing(folders))
    else:
        from tests.measures import report  # imports this module

        print("\n".join([*table(), "", *report()]))


if __name__ == "__main__":
    main()
