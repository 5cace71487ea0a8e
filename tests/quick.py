"""Selects the tests of ``pytest --quick``: one for each module, the main jobs, and those that reach a change.

``python -m tests.quick`` prints them.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.durations import QUICK_S, UNKNOWN, VLLM, Duration, read_durations
from tests.reach import conftests, distances, test_files
from tests.structure import ROOT, modules

#: run with every selection: a model's main job in a real daemon, and a step of vLLM if it is installed
MAIN_JOBS = {
    "tests/pyaici/engines/batching/test_program.py": "test_a_controlled_run_from_end_to_end[llama]",
    "tests/pyaici/engines/vllm/test_scheduler.py": "",
}
#: rules that each changed file has to follow
RULES = ("tests/test_structure.py", "tests/test_quality.py", "tests/test_plain_english.py")
#: modules that a program in a file of tests runs, which no import or name shows
OTHERS = {"aicirt/wasm/selfcheck.py": "tests/aicirt/test_doctor.py"}
#: files whose tests run wholly for a module if they take fewer seconds than this
_WHOLE_S = 1.0


@dataclass
class Selection:
    """The selected files, each with the name of its only selected test; an empty name stands for all."""

    files: dict[Path, str] = field(default_factory=dict)
    #: processor seconds on a good machine
    seconds: float = 0.0
    #: what was selected and why, a line each
    notes: list[str] = field(default_factory=list)

    def add(self, path: Path, name: str, seconds: float) -> None:
        self.files[path] = name
        self.seconds += seconds


def has_code(path: Path) -> bool:
    """Tells whether a module has more than imports and a docstring."""
    return not all(
        isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in ast.parse((ROOT / path).read_text()).body
    )


def mirror(path: Path) -> Path:
    """Returns the folder of tests that mirrors a file's folder, or the nearest one above it that exists."""
    folder = Path("tests", *path.parent.parts)
    while not (ROOT / folder).is_dir():
        folder = folder.parent
    return folder


@cache
def _reach(test: Path) -> tuple[dict[Path, int], dict[Path, int]]:
    """Returns what a test and its helpers import themselves, and all that it reaches, fixtures included."""
    return distances([test], within="tests"), distances([test, *conftests(test)])


@cache
def _tests_in(folder: Path) -> frozenset[Path]:
    """Returns the test files in a folder and in those below it."""
    return frozenset(test for test in test_files() if test.is_relative_to(folder))


@cache
def _text(path: Path) -> str:
    return (ROOT / path).read_text()


@cache
def behaviour(module: Path) -> dict[Path, int]:
    """Returns the test files of a module's behaviour, each with a rank; 0 is the best.

    They are in this order: the file that mirrors the module, those that import it, those of its folder that
    reach it and mention its name, and the others of its folder that reach it.
    """
    ranks = {}
    parts = module.with_suffix("").parts
    own = Path("tests", *parts[:-1], f"test_{parts[-1].strip('_')}.py")
    folder = mirror(module)
    if other := OTHERS.get(module.as_posix()):
        return {Path(other): 0}
    for test in test_files():
        imported, reached = _reach(test)
        if test == own:
            ranks[test] = 0
        elif module in imported:
            ranks[test] = 1
        elif module in reached and test in _tests_in(folder):
            text = _text(test)
            ranks[test] = 2 if parts[-1] in text and re.search(rf"\b{parts[-1]}\b", text) else 3
    return ranks


def untested() -> list[Path]:
    """Returns the modules without a test of their behaviour."""
    return [path for path in modules().values() if has_code(path) and not behaviour(path)]


def _short(path: Path, durations: Mapping[str, Duration]) -> tuple[str, float]:
    """Returns the test that stands for a file, and its seconds: all tests if that is as short."""
    found = durations.get(path.as_posix(), UNKNOWN)
    if found.total <= max(_WHOLE_S, found.sample_s):
        return "", found.total
    return found.sample, found.sample_s


def add_modules(selection: Selection, durations: Mapping[str, Duration], has_vllm: bool) -> None:
    """Adds a test of behaviour for each module, the shortest one among the best."""
    without = []
    count = 0
    # the modules with the fewest choices first: what they need may be enough for others
    wanted = {path: behaviour(path) for path in modules().values() if has_code(path)}
    for path, ranks in sorted(wanted.items(), key=lambda pair: (len(pair[1]), pair[0])):
        if not has_vllm:
            ranks = {test: rank for test, rank in ranks.items() if not test.is_relative_to(VLLM)}
        if not ranks:
            without.append(path)
            continue
        count += 1
        best = [test for test, rank in ranks.items() if rank == min(ranks.values())]
        if not any(test in selection.files for test in best):
            test = min(best, key=lambda test: (_short(test, durations)[1], test))
            selection.add(test, *_short(test, durations))
    selection.notes.append(f"{count} modules have a test of their behaviour")
    if without:
        selection.notes.append(
            f"{len(without)} modules have none in the environments that exist: {_names(without)}"
        )


def changed_files() -> tuple[str, list[Path]]:
    """Returns a commit and the files that differ from it, which may have been removed.

    It is where the branch left `origin/main`, or the last release for what is in `origin/main`. Without
    either, returns an empty name, and the files that differ from the last commit.
    """

    def git(*command: str) -> str:
        done = subprocess.run(("git", *command), cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    head, base = git("rev-parse", "HEAD"), git("merge-base", "HEAD", "origin/main")
    name = "origin/main"
    if base in ("", head):
        name = base = git("describe", "--tags", "--abbrev=0", "--match=v*")
    names = git("diff", "--name-only", "--no-renames", "-z", base or "HEAD").split("\0")
    names += git("ls-files", "-z", "--others", "--exclude-standard").split("\0")
    return name, sorted({Path(name) for name in names if name})


def reaching(changed: Iterable[Path]) -> dict[Path, int]:
    """Returns the test files that reach a changed file, with the least number of imports between them.

    A file that is no module is reached by the tests in the folder that mirrors its own, or by those that
    mention its name if no folder does.
    """
    changed = set(changed)
    found: dict[Path, int] = {}
    for test in test_files():
        steps = [steps for path, steps in _reach(test)[1].items() if path in changed]
        for path in changed:
            if path.suffix != ".py" or "templates" in path.parts:
                folder = mirror(path)
                if test.parent == folder if folder == Path("tests") else test.is_relative_to(folder):
                    if folder != Path("tests") or path.name in _text(test):
                        steps.append(1)
        if steps:
            found[test] = min(steps)
    return found


def add_changes(selection: Selection, durations: Mapping[str, Duration], has_vllm: bool) -> None:
    """Adds the tests that reach a change, the nearest first, as long as there is time."""
    base, changed = changed_files()
    since = f"since {base}" if base else "since the last commit; there is no origin/main and no release"
    if not changed:
        selection.notes.append(f"no file has changed {since}")
        return
    tests = reaching(changed) | dict.fromkeys(map(Path, RULES), 0)
    whole, left = 0, []
    for test, _ in sorted(
        tests.items(), key=lambda pair: (pair[1], durations.get(pair[0].as_posix(), UNKNOWN).total, pair[0])
    ):
        if test.is_relative_to(VLLM) and not has_vllm:
            left.append(test)
            continue
        total = durations.get(test.as_posix(), UNKNOWN).total
        if selection.files.get(test) == "":
            whole += 1
        elif selection.seconds + total <= QUICK_S:
            whole += 1
            selection.add(test, "", total)
        else:
            left.append(test)
    selection.notes.append(
        f"{len(changed)} files have changed {since}; {len(tests)} files of tests reach them, of which "
        f"{whole} run wholly"
    )
    if left:
        selection.notes.append(f"no time for all of {len(left)} files of tests: {_names(left)}")


def _names(paths: list[Path]) -> str:
    """Returns some paths in a line."""
    most = 8
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    return ", ".join(map(str, paths[:most])) + more


def select(has_vllm: bool) -> Selection:
    """Selects tests. Those of vLLM are selected only if its environment exists."""
    durations = read_durations()
    selection = Selection()
    for name, test in MAIN_JOBS.items():
        path = Path(name)
        if has_vllm or not path.is_relative_to(VLLM):
            test = test or durations.get(name, UNKNOWN).sample
            selection.add(path, test, durations.get(name, UNKNOWN).sample_s)
    add_modules(selection, durations, has_vllm)
    add_changes(selection, durations, has_vllm)
    return selection


def vllm_exists() -> bool:
    """Tells whether the environment of vLLM has been created."""
    return (ROOT / ".venv-vllm" / ".aici-installed").is_file()


def main() -> None:
    selection = select(vllm_exists())
    for path, name in sorted(selection.files.items()):
        print(f"{path}::{name}" if name else path)
    print(*selection.notes, f"about {selection.seconds:.0f} s of a good machine's processor", sep="\n")


if __name__ == "__main__":
    main()
