"""`aici eval`: measures a controller on a data set, next to the model without it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import AiciError
from aicirt.contract.modules import script_value
from aicirt.system.terminal import show
from pyaici.bundled import language_of
from pyaici.cli.artifacts import controller_here
from pyaici.cli.command import add_command
from pyaici.cli.server import (
    add_server,
    controller_at,
    local_options,
    open_server,
    refuse_local,
    server_of,
    start_run,
)
from pyaici.engines.hf import program as hf
from pyaici.engines.llama import program as llama
from pyaici.engines.options import (
    CONTROLLER_HELP,
    MODEL,
    PLACE,
    SAMPLING,
    add_chat_and_calls,
    add_choice_options,
    add_second_option,
    add_trust_option,
    find_or_upload,
    option_group,
    read_argument,
    read_choice,
    read_second,
)

if TYPE_CHECKING:
    from pyaici.client.arguments import Argument
    from pyaici.engines.batching.engine import BatchingEngine
    from pyaici.engines.engine import Request
    from pyaici.engines.rest_events import ServerEngine
    from pyaici.evaluation.experiment import Example, Outcome
    from pyaici.evaluation.metrics import Metric
    from pyaici.evaluation.report import Report

_MORE = """
Runs each row of FILE.jsonl with each seed, with the controller and without it (baseline), and prints the mean
of each metric, the tokens, the forward passes and the time, with 95 % confidence intervals over the rows. A
row is an object with a prompt, or with messages of a chat, and whatever the metrics read:

  {"prompt": "What is 7 times 8?", "expected": "56"}

metrics: exact (the text equals expected), contains, regex (the expected one is found in the text), json
(equal as JSON), length (characters), or FILE.py:FUNCTION, a function(row, result) that returns a number.
Where expected is a list, one of its entries is enough (not for json).

With --server, the model of an aici serve answers. Otherwise the same data, options and seeds give the same
bytes in results.jsonl, summary.json and plot.svg. Exit status:
1 if --fail-under or --compare finds the controller too bad.
"""
_EXAMPLES = """\
  aici eval vote.py --data questions.jsonl --metric contains --seeds 5 --temperature 0.8 --out results
  aici eval regex --arg "[0-9]+" --data questions.jsonl --metric exact --no-baseline --fail-under 0.6
  aici eval vote.py --data questions.jsonl --metric judge.py:score --compare results/results.jsonl
  aici eval contrastive.py --second amateur=small.gguf --row-arg --data stories.jsonl --metric judge.py:score
"""


#: characters of a table's line
_WIDTH = 120


def add(commands: Any) -> None:
    """Adds the command and its arguments."""
    summary = "measure a controller on a data set"
    parser = add_command(commands, "eval", run, summary, more=_MORE, examples=_EXAMPLES)
    parser.add_argument("controller", metavar="CONTROLLER", help=CONTROLLER_HELP)
    parser.add_argument("--data", type=Path, required=True, metavar="FILE", help="rows, as JSON lines")
    parser.add_argument(
        "--metric",
        action="append",
        required=True,
        metavar="NAME",
        help="a metric; may be given several times",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="use the first N rows only")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write the results into this folder")
    parser.add_argument(
        "--baseline",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="also answer without the controller (default: yes)",
    )
    parser.add_argument(
        "--fail-under", type=float, metavar="X", help="status 1 if the mean of the first metric is below X"
    )
    parser.add_argument(
        "--compare",
        type=Path,
        metavar="FILE",
        help="status 1 if a metric is worse than in this results.jsonl, with 95 %% confidence",
    )
    _add_request_options(parser)
    sampling = option_group(parser, SAMPLING)
    sampling.add_argument("--seeds", type=int, default=1, metavar="N", help="seeds 1 to N (default: 1)")
    sampling.add_argument(
        "--batch",
        type=int,
        default=1,
        metavar="N",
        help="rows at a time (default: 1); with more, texts depend a little on the rows beside them",
    )
    add_choice_options(parser)
    model = option_group(parser, MODEL)
    models = "a GGUF file, or the folder of a Transformers model, or its name on the Hugging Face Hub"
    model.add_argument("--model", metavar="PATH", help=models)
    model.add_argument("--engine", choices=("llama", "hf"), help="default: hf for a folder, else llama")
    llama.add_engine_options(parser)
    hf.add_engine_options(parser)
    add_second_option(parser)
    add_trust_option(parser)
    place = option_group(parser, PLACE)
    place.add_argument(
        "--socket", type=Path, metavar="PATH", help="socket of a running daemon (default: one is started)"
    )
    add_server(place, place, ", unless options for a local model are given")


def _add_request_options(parser: argparse.ArgumentParser) -> None:
    row = parser.add_mutually_exclusive_group()
    row.add_argument("--arg", metavar="TEXT", help="the controller's argument; @FILE reads it from a file")
    row.add_argument(
        "--row-arg",
        action="store_true",
        help="the argument is the row, as JSON, without what is expected",
    )
    add_chat_and_calls(parser)


def run(arguments: argparse.Namespace) -> int:
    """Evaluates; returns 1 for a regression."""
    try:
        arguments.controller = controller_here(arguments.controller)
        return _run_evaluation(arguments)
    except (ValueError, OSError) as error:
        raise AiciError(str(error)) from error


def _run_evaluation(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from pyaici.evaluation import find_metric, read_examples
    from pyaici.evaluation.report import Report, read_results

    for name in ("seeds", "batch"):
        if (value := getattr(arguments, name)) < 1:
            raise ValueError(f"--{name} is {value}; it must be at least 1")
    metrics = [find_metric(name) for name in arguments.metric]
    examples = read_examples(arguments.data, arguments.limit)
    earlier = None if arguments.compare is None else read_results(arguments.compare)
    report = Report(_with_progress(_outcomes(arguments, examples, metrics)))
    Console(highlight=False, width=max(Console().width, _WIDTH)).print(report.table())
    if arguments.out is not None:
        report.write(arguments.out)
        show(f"wrote {arguments.out}/results.jsonl, times.jsonl, summary.json and plot.svg")
    failures = [*_too_low(arguments, report, metrics)]
    if earlier is not None:
        failures += _regressions(report, earlier, metrics)
    for failure in failures:
        show(failure)
    return int(bool(failures))


def _with_progress(outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
    """Shows how many there are, where a person looks at the error output."""
    from rich.console import Console
    from rich.progress import Progress, TextColumn

    columns = TextColumn("{task.completed} outcomes, {task.description}")
    with Progress(columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("")
        for outcome in outcomes:
            progress.update(task, advance=1, description=f"{outcome.variant}, seed {outcome.seed}")
            yield outcome


def _outcomes(
    arguments: argparse.Namespace, examples: Sequence[Example], metrics: Sequence[Metric]
) -> Iterator[Outcome]:
    """Yields the outcomes with the controller, then those without it."""
    from pyaici.evaluation import Variant, evaluate
    from pyaici.evaluation.report import BASELINE, CONTROLLER

    request = _request(arguments)
    argument = _argument(arguments)
    url = server_of(arguments, elsewhere=bool(local_options(arguments)))
    with ExitStack() as stack:
        engine: BatchingEngine | ServerEngine
        if url is None:
            engine, module, examples = _open_local(arguments, examples, stack)
        else:
            engine, module = _open_remote(url, arguments, stack)
        variants = [Variant(CONTROLLER, module, argument)]
        if arguments.baseline:
            variants.append(Variant(BASELINE))
        for variant in variants:
            # without a controller, nothing but the sampler draws numbers
            draws = variant.controller is not None or arguments.temperature > 0
            seeds = range(1, arguments.seeds + 1 if draws else 2)
            yield from evaluate(
                engine, examples, variant, metrics, seeds=seeds, request=request, batch=arguments.batch
            )


def _open_local(
    arguments: argparse.Namespace, examples: Sequence[Example], stack: ExitStack
) -> tuple[BatchingEngine, str, Sequence[Example]]:
    """Returns an engine, the id of the controller, and the examples as the model takes them."""
    from pyaici.engines.prompts import as_prompt

    engine = _engine(arguments, stack)
    assert engine.runtime is not None
    module = find_or_upload(engine.runtime, arguments.controller)
    fitting = [
        replace(example, prompt=as_prompt(example.prompt, arguments.chat, engine.tokenizer))
        if isinstance(example.prompt, str)
        else example
        for example in examples
    ]
    return engine, module, fitting


def _open_remote(url: str, arguments: argparse.Namespace, stack: ExitStack) -> tuple[ServerEngine, str]:
    """Returns the server as an engine, and its name of the controller."""
    from pyaici.engines.rest_events import ServerEngine

    refuse_local(arguments)
    client = stack.enter_context(open_server(url, arguments, "rich"))
    module = controller_at(client, arguments.controller)
    engine = ServerEngine(lambda request: start_run(client, request, arguments.chat, details=True))
    stack.callback(engine.close)
    return engine, module


def _engine(arguments: argparse.Namespace, stack: ExitStack) -> BatchingEngine:
    """Opens the engine, beside a daemon whose results do not depend on how busy the machine is."""
    from pyaici.client.control import Daemon
    from pyaici.engines.batching.engine import BatchingEngine
    from pyaici.engines.options import engine_of, refuse_options_of_others
    from pyaici.opening import EngineOptions, open_engine
    from pyaici.testing.playground import PATIENT

    socket = arguments.socket or os.environ.get("AICI_SOCKET")
    if not socket:
        socket = stack.enter_context(Daemon(workers=1, limits=PATIENT)).socket_path
    names = ("device", "trust_remote_code", "threads", "llama_library")
    given = {name: value for name in names if (value := getattr(arguments, name))}
    if arguments.second:
        given["second"] = read_second(arguments.second)
    kind = arguments.engine or engine_of(arguments.model)
    refuse_options_of_others(kind, given)
    options = EngineOptions(**given)
    opened = open_engine(arguments.model, engine=kind, socket=socket, options=options)
    engine = stack.enter_context(opened)
    assert isinstance(engine, BatchingEngine)
    return engine


def _request(arguments: argparse.Namespace) -> Request:
    from pyaici.client.calls import load_functions
    from pyaici.engines.engine import Request

    calls = "" if arguments.calls is None else load_functions(arguments.calls)
    return Request("", sampling=read_choice(arguments), max_tokens=arguments.max_tokens, calls=calls)


def _argument(arguments: argparse.Namespace) -> Callable[[Mapping[str, Any]], Argument]:
    """Returns the function that makes the controller's argument for a row. Raises ValueError."""
    from pyaici.scripting.script import read_script

    script = read_script(arguments.controller) if language_of(arguments.controller) is not None else None
    if arguments.row_arg:

        def of_row(data: Mapping[str, Any]) -> Argument:
            known = {name: value for name, value in data.items() if name != "expected"}
            return known if script is None else script.argument(known)

        return of_row
    text = read_argument(arguments)
    if script is not None:
        text = script.argument(None if arguments.arg is None else script_value(text))
    return lambda data: text


# -- regressions -----------------------------------------------------------------------------------------


def _too_low(arguments: argparse.Namespace, report: Report, metrics: Sequence[Metric]) -> Iterator[str]:
    if arguments.fail_under is None:
        return
    found = report.estimate("controller", metrics[0].name).value
    if found < arguments.fail_under:
        yield f"too low: {metrics[0].name} is {found:.4g}, below {arguments.fail_under:g} (--fail-under)"


def _regressions(
    report: Report, earlier: Sequence[Mapping[str, Any]], metrics: Sequence[Metric]
) -> Iterator[str]:
    """Prints how each metric has changed; yields those that are worse."""
    directed = {metric.name for metric in metrics if metric.directed}
    for name, change in report.regressions(earlier):
        show(f"{name}: {change.value:+.3g} [{change.low:+.3g}, {change.high:+.3g}] against the earlier run")
        if change.worse and name in directed:
            yield f"worse: {name}"
