"""All bundled controllers and sample scripts have the same greedy results as on Transformers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pyaici import VllmEngine
from pyaici.bundled import DESCRIPTIONS
from pyaici.engines.engine import GenerationResult, Request
from tests.pyaici.engines.vllm.requests import FRANCE
from tests.thorough import also, cases, thorough

pytestmark = [pytest.mark.slow, pytest.mark.any_worker]

CONTROLLERS = Path(__file__).resolve().parents[4] / "controllers"
LANGUAGES = {".py": "pyctrl", ".js": "jsctrl"}
_FLOAT = re.compile(r"(-?[0-9]+\.[0-9]+)")


def sample(path: Path) -> Request:
    """Returns a request with a sample script, the prompt that it proposes, and no temperatures of its own."""
    source = path.read_text()
    prompt = re.search(r"^(?: \* )?Prompt: (.+)$", source, re.MULTILINE)
    found = re.search(r"^(?: \* )?Argument: (.+)$", source, re.MULTILINE)
    arg = found and found[1]
    source = re.sub(r"\btemperature(=|: )[^,)}]+", r"temperature\g<1>0", source)
    source = source.replace(", temperature }", " }")
    argument = {
        "script": source,
        "name": path.name,
        "arg": json.loads(arg) if arg and arg[0] in "[{" else arg,
    }
    assert prompt, f"{path.name} proposes no prompt"
    return Request(prompt[1], LANGUAGES[path.suffix], json.dumps(argument), max_tokens=40)


def bundled(name: str) -> Request:
    """Returns a request with a bundled controller and the argument that its description tries."""
    return Request(FRANCE, name, DESCRIPTIONS[name][1] or "", max_tokens=40)


#: controllers that do what `regex` does, and take long to compile
LIKE_REGEX = {"extract", "gbnf", "kbnf", "lark", "lr1"}
#: `showcase` samples at a temperature of its own
LEFT_OUT = {"showcase", *LANGUAGES.values(), *(() if thorough() else LIKE_REGEX)}
CALLS = {name: bundled(name) for name in DESCRIPTIONS if name not in LEFT_OUT} | {
    path.name: sample(path)
    for language in LANGUAGES.values()
    for path in sorted((CONTROLLERS / language / "samples").iterdir())[:: cases(2, 1)]
}


def summary(results: list[GenerationResult]) -> dict[str, Any]:
    """Returns the sequences and the variables of each call.

    Timing decides which sequence reports a variable.
    """
    names = list(CALLS)
    first = min(result.request for result in results)
    sequences: dict[str, list[Any]] = {name: [] for name in names}
    variables: dict[str, dict[str, Any]] = {name: {} for name in names}
    for result in results:
        name = names[result.request - first]
        sequences[name].append(
            (result.text, result.finish_reason.value, str(result.error), _parts(result.log))
        )
        for variable, value in result.variables.items():
            # those of `beam` are scores as bytes
            variables[name][variable] = None if name == "beam" else _parts(value.decode())
    return {name: (sorted(sequences[name], key=repr), variables[name]) for name in names}


def _parts(text: str) -> list[Any]:
    """Returns the numbers with decimals in a text, and the texts between them."""
    return [float(part) if _FLOAT.fullmatch(part) else part for part in _FLOAT.split(text)]


def near(value: Any) -> Any:
    """Returns what equals a summary whose numbers differ by less than a rounding of theirs."""
    if isinstance(value, dict):
        return {name: near(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(near(each) for each in value)
    return pytest.approx(value, abs=0.0101) if isinstance(value, float) else value


def run(llm: Any) -> dict[str, Any]:
    """Runs all calls in one batch of vLLM. Sequences that have ended count, too: `beam` forks often."""
    return summary(VllmEngine(llm, max_sequences=96).run(list(CALLS.values())))


def different(results: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """Returns the results that are not as expected."""
    return {name: (results[name], each) for name, each in expected.items() if results[name] != each}


@pytest.fixture(scope="session")
def expected(hf: Any) -> dict[str, Any]:
    """The summary of results on Transformers."""
    results = summary(hf.run(list(CALLS.values())))
    errors = {name: each[0][0][2] for name, each in results.items() if each[0][0][2] != "None"}
    assert not errors.keys() & {"beam", "best_of.py", "sure.py", "prefix"}, errors
    return dict(near(results))


@pytest.mark.parametrize("configuration", ["async", *also("sync")])
def test_results_equal_those_on_transformers(llm: Any, expected: dict[str, Any]) -> None:
    assert different(run(llm), expected) == {}
