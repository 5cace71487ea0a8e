"""The same things have the same names everywhere: options of requests, events, and results.

`OPTIONS` is the vocabulary of requests. A surface that names something otherwise, because another project has
chosen the name, is in `RENAMED`; one that lacks an option is in `LACKING`, with the reason. `WORDS` is the
vocabulary of what a run reports and of scripts, and `OTHER_WORDS` has the names that nothing there may have.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from aicirt.contract.abi import MID_RESULT
from aicirt.contract.messages import StepInput, Truncation
from pyaici import rest_types
from pyaici.cli.__main__ import parser
from pyaici.engines import engine
from pyaici.engines.calls import KEYS, PREFIX
from pyaici.engines.engine import (
    Backtracked,
    Finished,
    FinishReason,
    GenerationResult,
    Log,
    Origin,
    Request,
    Sampling,
    Started,
    TokensAppended,
)
from pyaici.engines.vllm import frontend as vllm
from pyaici.evaluation.experiment import Outcome
from pyaici.recording.recording import RecordedSequence, Sampled
from pyaici.server.apis.messages.requests import MessagesRequest
from pyaici.server.apis.ollama.requests import Options
from pyaici.server.apis.openai.requests import ChatRequest, CompletionRequest, VllmArguments
from pyaici.server.apis.responses.requests import ResponsesRequest
from pyaici.server.apis.run.report import RunReport
from pyaici.server.apis.run.routes import RunRequest
from pyaici.testing.playground import Transcript

ROOT = Path(__file__).resolve().parents[2]
STUBS = ROOT / "pyaici" / "scripting"
SDK = ROOT / "controllers" / "sdk"
#: the declarations of scripts
STUBBED = ("aici.pyi", "aici.d.ts")
#: name -> (type, value that changes nothing, or the value of the library)
OPTIONS: dict[str, tuple[type, Any]] = {
    "temperature": (float, 0.0),
    "top_p": (float, 1.0),
    "top_k": (int, 0),
    "min_p": (float, 0.0),
    "typical_p": (float, 1.0),
    "top_n_sigma": (float, 0.0),
    "seed": (int, None),
    "presence_penalty": (float, 0.0),
    "frequency_penalty": (float, 0.0),
    "repetition_penalty": (float, 1.0),
    "max_tokens": (int, 128),
    "n": (int, 1),
    "top_logprobs": (int, 0),
}
#: what a row has for one token
ROW = ("temperature", *Truncation._fields, "top_logprobs")
PENALTIES = ("presence_penalty", "frequency_penalty", "repetition_penalty")

HTTP: dict[str, type[BaseModel]] = {
    "/v1/run": RunRequest,
    "/v1/completions": CompletionRequest,
    "/v1/chat/completions": ChatRequest,
    "/v1/responses": ResponsesRequest,
    "/v1/messages": MessagesRequest,
    "/api/chat": Options,
}
#: names of other projects
RENAMED = {
    ("/v1/completions", "top_logprobs"): "logprobs",
    ("/v1/responses", "max_tokens"): "max_output_tokens",
    ("/api/chat", "max_tokens"): "num_predict",
    ("/api/chat", "repetition_penalty"): "repeat_penalty",
}
#: surface -> what it lacks, and why
LACKING = {
    "/v1/responses": ({"n"}, "a response is one answer"),
    "/v1/messages": (
        {"seed", "n", "top_logprobs", *PENALTIES, *("min_p", "typical_p", "top_n_sigma")},
        "Anthropic's API has none of them",
    ),
    "/api/chat": ({"n", "top_logprobs", "top_n_sigma"}, "Ollama's API has none of them"),
    "aici run": ({"top_logprobs", *PENALTIES}, "--json has no probabilities; a script has biases"),
    "aici eval": ({"seed", "n", "top_logprobs", *PENALTIES}, "--seeds gives each row several seeds"),
}
#: defaults of other projects' APIs, and of the server, which generates as much as there is room for
DEFAULTS = {
    ("/v1/run", "max_tokens"): None,
    **{
        (route, name): value
        for route in ("/v1/completions", "/v1/chat/completions", "/v1/responses")
        for name, value in {"temperature": 1.0, "max_tokens": None}.items()
    },
    ("/v1/messages", "temperature"): 1.0,
    ("/v1/messages", "top_p"): 0.5,
    ("/v1/messages", "top_k"): 128,
    ("/v1/messages", "max_tokens"): 1024,
    ("/api/chat", "temperature"): 0.8,
    ("/api/chat", "top_p"): 0.9,
    ("/api/chat", "top_k"): 40,
    ("/api/chat", "max_tokens"): -1,
}
#: meaning of a field that a request leaves out (`pyaici.server.apis.sampling.sampling`)
UNSET = {name: default for name, (_, default) in OPTIONS.items()} | {"temperature": 1.0, "max_tokens": None}


def number_type(annotation: Any) -> type:
    """Returns `int`, `float` or `bool` of an annotation such as `Annotated[float, ...] | None`."""
    if annotation in (int, float, bool):
        return annotation  # type: ignore[no-any-return]
    parts = [each for each in get_args(annotation) if each in (int, float, bool) or get_args(each)]
    return number_type(parts[0])


def library() -> dict[str, tuple[type, Any]]:
    """Returns the options of `Request` and `Sampling`, whose annotations are texts."""
    numbers = {"float": float, "int": int, "int | None": int}
    found = [field for kind in (Sampling, Request) for field in fields(kind) if field.name in OPTIONS]
    return {field.name: (numbers[str(field.type)], field.default) for field in found}


def command(name: str) -> dict[str, tuple[type | None, Any]]:
    """Returns the options of a command of `aici`."""
    (commands,) = (each for each in parser()._actions if isinstance(each, argparse._SubParsersAction))
    return {
        action.option_strings[0][2:].replace("-", "_"): (action.type, action.default)  # type: ignore[dict-item]
        for action in commands.choices[name]._actions
        if action.option_strings
    }


def route(path: str) -> dict[str, tuple[type, Any]]:
    """Returns the options of a route, by our names."""
    theirs = {name: RENAMED.get((path, name), name) for name in OPTIONS}
    model = HTTP[path].model_fields
    return {
        ours: (number_type(field.annotation), UNSET[ours] if field.default is None else field.default)
        for ours, name in theirs.items()
        if (field := model.get(name)) is not None
    }


def test_library_has_every_option() -> None:
    assert library() == OPTIONS


@pytest.mark.parametrize("surface", [*HTTP, "aici run", "aici eval"])
def test_routes_and_commands_have_the_options_of_the_library(surface: str) -> None:
    found: dict[str, Any] = route(surface) if surface in HTTP else command(surface.split()[1])
    lacking, _ = LACKING.get(surface, (set(), ""))
    assert OPTIONS.keys() - found.keys() == lacking
    for name in OPTIONS.keys() - lacking:
        kind, default = OPTIONS[name]
        assert found[name] == (kind, DEFAULTS.get((surface, name), default)), name


# -- controllers -------------------------------------------------------------------------------------------


def camel(name: str) -> str:
    """Returns the name in JavaScript."""
    first, *rest = name.split("_")
    return first + "".join(word[0].upper() + word[1:] for word in rest)


def test_rows_have_the_same_options_in_every_sdk() -> None:
    """`MID_RESULT` is compared with aici.h elsewhere."""
    formats = {"f": float, "I": int}
    assert {name: formats[MID_RESULT.fields[name]] for name in ROW} == {
        name: OPTIONS[name][0] for name in ROW
    }
    for file in ("rust/src/abi.rs", "zig/aici.zig", "assemblyscript/aici_abi.ts"):
        text = (SDK / file).read_text()
        for name in ROW:
            assert re.search(rf"\b{name}: [fu]32", text), (file, name)
    for file in ("include/aici/controller.hpp", "rust/src/controller.rs"):
        text = (SDK / file).read_text()
        for name in Truncation._fields:
            assert re.search(rf"\b{name}\b", text), (file, name)


def stub() -> dict[str, ast.arguments]:
    """Returns the parameters of functions of aici.pyi, and of `Sample`, by name."""
    tree = ast.parse((STUBS / "aici.pyi").read_text())
    found = {
        each.name: each.args for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    (answer,) = (each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == "Sample")
    return found | {"Sample": answer.body[1].args}  # type: ignore[attr-defined]


def interfaces() -> dict[str, dict[str, str]]:
    """Returns the fields of interfaces of aici.d.ts with their types."""
    text = re.sub(r"/\*\*.*?\*/", "", (STUBS / "aici.d.ts").read_text(), flags=re.DOTALL)
    bodies = re.findall(r"export interface (\w+)[^{]*\{\n(.*?)\n  \}", text, re.DOTALL)
    return {name: dict(re.findall(r"^    (\w+)\??: ([^;]+);", body, re.MULTILINE)) for name, body in bodies}


def keywords(args: ast.arguments) -> dict[str, str]:
    """Returns the keywords of a function with their types, without `None`."""
    return {
        each.arg: ast.unparse(each.annotation).replace(" | None", "") if each.annotation else ""
        for each in args.kwonlyargs
    }


#: types of options in Python, and in TypeScript
TYPES = {"float": "number", "int": "number", "bool": "boolean", "str": "string", "TokenSet": "TokenSet"}


@pytest.mark.parametrize(
    ("python", "javascript"),
    [
        ("gen", ("Ways", "Generation", "Sampling")),
        ("generate", ("Ways", "Generation", "Sampling", "Details")),
        ("sample", ("Sampling", "Sampled")),
        ("Sample", ("Sampling", "Sampled")),
    ],
)
def test_scripts_have_the_options_of_rows_in_both_languages(python: str, javascript: tuple[str, ...]) -> None:
    taken = keywords(stub()[python])
    declared = {name: kind for each in javascript for name, kind in interfaces()[each].items()}
    assert declared.keys() == {camel(name) for name in taken}
    for name, kind in taken.items():
        if kind in TYPES:
            assert declared[camel(name)] == TYPES[kind], name
    for name in ROW:
        if name in taken:
            assert taken[name] == OPTIONS[name][0].__name__
    assert set(ROW) - taken.keys() == ({"top_logprobs"} if python == "gen" else set())


#: parameters whose names are reserved words of JavaScript
RESERVED = {"default": "otherwise", "function": "func"}
#: functions that JavaScript calls otherwise: it has neither named arguments nor lists of any length
OTHERWISE = {"call": "name, args", "gather": "functions", "gen": "options", "generate": "options"}


def javascript_parameters() -> Iterator[tuple[str, list[str]]]:
    """Yields functions of aici.d.ts with the names of their parameters, those of options included."""
    text = re.sub(r"/\*\*.*?\*/", "", (STUBS / "aici.d.ts").read_text(), flags=re.DOTALL)
    for name, inside in re.findall(
        r"^  export (?:function|const) (\w+)(?:<[^(]*>)?:? ?\(((?:[^()]|\([^()]*\))*)\)", text, re.MULTILINE
    ):
        options = re.findall(r"\{([^{}]*)\}", inside)
        plain = re.sub(r"\w+\??: \{[^{}]*\}", "", inside)
        names = re.findall(r"(?:^|[,\s])(?:\.\.\.)?(\w+)\??:", plain)
        yield name, names + [each for some in options for each in re.findall(r"(\w+)\??:", some)]


def test_functions_of_scripts_have_the_same_parameters_in_both_languages() -> None:
    declared: dict[str, list[str]] = {}
    for name, names in javascript_parameters():
        if len(names) >= len(declared.get(name, ())):
            declared[name] = names
    functions = {name: args for name, args in stub().items() if name not in {"sample", "Sample", *OTHERWISE}}
    assert len(functions) > 35
    for name, args in functions.items():
        every = [*args.args, *([args.vararg] if args.vararg else []), *args.kwonlyargs]
        assert declared[camel(name)] == [camel(RESERVED.get(each.arg, each.arg)) for each in every], name


# -- the controller of a request ---------------------------------------------------------------------------


def test_a_request_names_its_controller_in_the_same_way_everywhere() -> None:
    for path in ("/v1/run", "/v1/completions", "/v1/chat/completions", "/v1/responses"):
        assert {"controller", "controller_arg", "script"} <= HTTP[path].model_fields.keys(), path
    assert {f"{PREFIX}controller", f"{PREFIX}arg", f"{PREFIX}script"} <= set(KEYS)
    assert "arg" in command("run") and "arg" in command("eval")
    assert {"controller", "arg"} <= {field.name for field in fields(Request)}


def test_the_server_knows_the_keys_of_vllm() -> None:
    """The server refuses keys that it cannot carry out, each with a cure; `aici_keep` changes nothing."""
    assert set(vllm._KEYS) == {*VllmArguments.model_fields, *VllmArguments.refused, f"{PREFIX}keep"}


# -- events, results and scripts ---------------------------------------------------------------------------

#: surfaces that report whole runs
RUNS = {"results", "/v1/run", "rest_types", "tests", "recordings"}
#: word -> the surfaces that have it. The ABI calls forced tokens `ff_tokens`
WORDS = {
    "finish_reason": {
        "events",
        "results",
        "/v1/run",
        "rest_types",
        "evaluation",
        "tests",
        "recordings",
        *STUBBED,
    },
    "log": {"results", "/v1/run", "rest_types", "tests", "recordings"},
    "top_logprobs": {"events", "/v1/run", "rest_types", "reports", "recordings", *STUBBED},
    "backtrack": {"/v1/run", "reports", *STUBBED},
    "backtracked": {"results", "evaluation"},
    "forced": {"results", "evaluation", *STUBBED},
    "force": set(STUBBED),
    "choice": set(STUBBED),
    "arg": {"rest_types", *STUBBED},
    "eos_tokens": set(STUBBED),
    "controller": {"rest_types"},
}
OTHER_WORDS = {
    *("module", "argument", "fixed", "rewind", "removed", "retracted", "end_tokens", "options"),
    *("finish", "reason", "top", "logs"),
}


def reported() -> Iterator[str]:
    """Yields the names in a step of `/v1/run` that has every kind of text."""
    report = RunReport(SimpleNamespace(token_text=str))  # type: ignore[arg-type]
    token = TokensAppended(0, 0, [1], "a", Origin.SAMPLED, [-0.5], [[(1, -0.5)]], 3)
    ended = Finished(0, 0, FinishReason.STOP, None)
    step = report.step([Started(0, 0, [5], "b"), token, Backtracked(0, 0, 1, "a"), Log(0, 0, "c"), ended])
    for fork in step["forks"]:
        yield from fork
        for piece in fork["pieces"]:
            yield from piece


def snake(name: str) -> str:
    """Returns a name of JavaScript as Python would have it."""
    return re.sub("[A-Z]", lambda letter: "_" + letter[0].lower(), name)


def surfaces() -> dict[str, set[str]]:
    """Returns the names of each surface, those of parameters of scripts included."""
    events = [
        each for each in vars(engine).values() if isinstance(each, type) and issubclass(each, engine.Event)
    ]
    kinds: dict[str, list[type]] = {
        "events": events,
        "results": [GenerationResult],
        "evaluation": [Outcome],
        "tests": [Transcript],
        "recordings": [RecordedSequence, Sampled],
    }
    found = {
        surface: {each.name for kind in some for each in fields(kind)} for surface, some in kinds.items()
    }
    typed = [each for each in vars(rest_types).values() if hasattr(each, "__required_keys__")]
    found["rest_types"] = {name for each in typed for name in each.__annotations__}
    found["/v1/run"], found["reports"] = set(reported()), set(StepInput._fields)
    nodes = list(ast.walk(ast.parse((STUBS / "aici.pyi").read_text())))
    found["aici.pyi"] = {
        each.name for each in nodes if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    found["aici.pyi"] |= {each.target.id for each in nodes if isinstance(each, ast.AnnAssign)}  # type: ignore[union-attr]
    found["aici.pyi"] |= {each.arg for each in nodes if isinstance(each, ast.arg)}
    text = re.sub(r"/\*\*.*?\*/", "", (STUBS / "aici.d.ts").read_text(), flags=re.DOTALL)
    names = re.findall(r"^ +(?:export |get |const |function )*(\w+)\??[:(<]", text, re.MULTILINE)
    found["aici.d.ts"] = {snake(name) for name in names} - {"options"}  # JavaScript's named arguments
    return found


def test_events_results_and_scripts_have_the_same_words() -> None:
    found = surfaces()
    for word, expected in WORDS.items():
        assert {surface for surface, names in found.items() if word in names} == expected, word
    for surface, names in found.items():
        assert not names & OTHER_WORDS, surface
