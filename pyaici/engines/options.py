"""The parts that all engine programs share: options, the demonstration, and the run of a request."""

from __future__ import annotations

import argparse
import contextlib
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from aicirt.contract.errors import (
    AiciError,
    ArgumentError,
    OwnerLimitError,
    UnknownControllerError,
    VocabularyError,
)
from aicirt.contract.modules import script_value, unread_json
from aicirt.system.terminal import BriefParser, parse_arguments, run_command, show, show_json
from pyaici.bundled import build_missing, find_grammar, language_of, local_controller, not_found
from pyaici.client.calls import load_functions
from pyaici.engines.engine import Request, Sampling
from pyaici.scripting.script import interpreter_file, read_script

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pyaici.client.arguments import Argument
    from pyaici.client.runtime import Runtime
    from pyaici.engines.engine import Engine
    from pyaici.recording.recorder import RecordingRuntime
    from pyaici.tokens import Vocabulary


def generate(
    engine: Engine, request: Request, *more: Callable[[], RenderableType], as_json: bool = False
) -> int:
    """Runs a request and shows it in the terminal, or prints its result as JSON. Returns the exit status.

    The status is 0, or 1 if a sequence ended with an error. The results of `more` are printed after the
    summary. On KeyboardInterrupt, shows the output so far and then raises it.
    """
    number = engine.add(request)
    if request.name and engine.runtime is not None:
        send_lines(partial(engine.runtime.answerer.send, request.name))
    if as_json:
        from pyaici.engines.rest_events import result_json

        engine.run()
        results = engine.results(number)
        show_json(result_json(results))
        return int(any(result.error is not None for result in results))
    from pyaici.engines.terminal import Terminal

    start = time.perf_counter()
    terminal = Terminal()
    try:
        with terminal:
            engine.run(on_event=terminal.show)
    finally:
        terminal.summary(engine.stats, time.perf_counter() - start, *(make() for make in more))
    return int(any(result.error is not None for result in engine.results(number)))


def send_lines(send: Callable[[Any], None]) -> None:
    """Sends each line of standard input as a message, and last null, in a thread, while the run lives."""

    def patient(message: str | None) -> None:
        while True:
            try:
                return send(message)
            except OwnerLimitError:  # the run reads more slowly than lines come
                time.sleep(_RETRY_SECONDS)

    def send_each() -> None:
        # not sys.stdin, whose lock a thread that waits for a line would hold at the end of the program
        with open(0, "rb", buffering=0, closefd=False) as lines, contextlib.suppress(AiciError):
            for line in lines:
                patient(line.decode("utf-8", "replace").rstrip("\r\n"))
            patient(None)

    threading.Thread(target=send_each, name="messages", daemon=True).start()


#: how long a line waits for the run to receive some of those before it
_RETRY_SECONDS = 0.1
#: shown to users who gave no argument: they may not know that the option exists
HINT = "give one with --arg TEXT or --arg @FILE"


def read_vocabulary(folder: Path) -> Vocabulary:
    """Returns the vocabulary of a model's folder, without what its chat template writes."""
    from pyaici.tokens import load_vocabulary

    return load_vocabulary(folder)


def try_argument(
    runtime: Runtime, request: Request, arguments: argparse.Namespace, read: Callable[[], Vocabulary]
) -> Vocabulary | None:
    """Checks the controller's argument before the model is loaded.

    `request`: has the id of an uploaded controller. `read`: returns the vocabulary that the engine will
    register, without the model. Returns it, or None if it cannot be read. Raises ArgumentError if the
    controller refuses the argument, and any other error that its constructor ends with.
    """
    assert request.controller is not None
    arg = given_argument(arguments, request)
    try:
        vocabulary = read()
    except VocabularyError:
        return None  # the library may still be able to load this folder; if not, the engine raises an error
    runtime.register(vocabulary)
    try:
        runtime.prepare(request.controller, arg or "", capabilities=request.capabilities)
    except ArgumentError as error:
        if arg is not None:
            raise
        raise ArgumentError(f"{error.message}; {HINT}", **error.detail) from None
    return vocabulary


def option_group(parser: argparse.ArgumentParser, title: str) -> argparse._ArgumentGroup:
    """Returns the parser's group of options of this title, after adding it if there is none."""
    for group in parser._action_groups:
        if group.title == title:
            return group
    return parser.add_argument_group(title)


#: titles of groups of options in the help
REQUEST, MODEL, SAMPLING, PLACE = "request", "model", "sampling", "daemon or server"


def add_beams_option(parser: argparse.ArgumentParser) -> None:
    """Adds --beams."""
    option_group(parser, SAMPLING).add_argument(
        "--beams",
        type=int,
        default=1,
        help="use beam search with this many beams instead of sampling (default: 1, no search)",
    )


def add_second_option(parser: argparse.ArgumentParser) -> None:
    """Adds --second."""
    option_group(parser, MODEL).add_argument(
        "--second",
        metavar="NAME=MODEL",
        action="append",
        default=[],
        help="a second model with the same vocabulary, whose logits controllers mix into those of the first "
        "by this name; may be repeated (llama, hf)",
    )


def read_second(values: Iterable[str]) -> dict[str, str]:
    """Returns the models of --second by name. Raises ValueError for one without a name, or a second time."""
    found = dict[str, str]()
    for value in values:
        name, equals, model = value.partition("=")
        if not (name and equals and model):
            raise ValueError(f"--second takes NAME=MODEL, for example amateur=small.gguf, not {value!r}")
        if name in found:
            raise ValueError(f"--second has the name {name!r} twice")
        found[name] = model
    return found


def add_record_option(parser: argparse.ArgumentParser) -> None:
    """Adds --record."""
    option_group(parser, REQUEST).add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="write a recording, which aici test replays without the model",
    )


def check_record(arguments: argparse.Namespace) -> None:
    """Raises ValueError if --record is given for a run that cannot be recorded."""
    if arguments.record is None:
        return
    if arguments.controller == "none":
        raise ValueError("--record needs a controller: give one, or leave --record out")
    if arguments.n > 1 or getattr(arguments, "beams", 1) > 1:
        beams = " and --beams" if hasattr(arguments, "beams") else ""
        raise ValueError(f"--record records one sequence and its controller's forks: leave out --n{beams}")
    if arguments.record.is_dir() or not arguments.record.absolute().parent.is_dir():
        raise ValueError(
            f"--record: cannot write {arguments.record}: it is a folder, or its folder does not exist"
        )


def open_runtime(arguments: argparse.Namespace, socket: Path | None = None) -> Runtime:
    """Returns a runtime that records if --record is given. `socket`: of a daemon, instead of --socket.

    Raises the errors of `Runtime`.
    """
    if arguments.record is None:
        from pyaici.client.runtime import Runtime

        made: type[Runtime] = Runtime
    else:
        from pyaici.recording.recorder import RecordingRuntime

        made = RecordingRuntime
    return made(socket or arguments.socket, store=None if socket else arguments.store)


def keep_recording(runtime: RecordingRuntime, arguments: argparse.Namespace) -> None:
    """Writes the recording and prints the command that replays it.

    Raises OSError, and RuntimeFailure if no request was recorded.
    """
    from pyaici.recording.recording import write_recording

    write_recording(runtime.take(), arguments.record)
    line = f"recorded: aici test {arguments.controller} --transcript {arguments.record}"
    show(line, file=sys.stderr if arguments.json else None)


#: the ways to name a controller
CONTROLLER_HELP = (
    "a script in Python or JavaScript (.py, .js, .mjs), a .wasm file, the name of a bundled controller, the "
    "tag or id of an upload"
)

#: controller, argument and prompt of the demonstration
DEMONSTRATION = (
    "regex",
    r'\{\n  "name": "[A-Z][A-Za-z ]{1,30}",\n  "city": "[A-Z][a-z]+",\n  "built": 1[0-9]{3},\n'
    r'  "metres": [0-9]{2,4}\n\}',
    "Visitors to Paris climb the Eiffel Tower, 330 metres high and built in 1889. Extract the facts in JSON: "
    "the name, the city, the year it was built, the height in metres.",
)


def add_chat_and_calls(group: argparse._ActionsContainer) -> None:
    """Adds the options for the chat template and for the controller's calls."""
    group.add_argument(
        "--chat",
        action=argparse.BooleanOptionalAction,
        help="put the prompt into the model's chat template (default: if the model has one)",
    )
    group.add_argument(
        "--calls",
        type=Path,
        metavar="FILE",
        help="a file of Python whose functions answer the controller's calls, by name",
    )


def add_prompt_options(parser: argparse.ArgumentParser, models: str) -> None:
    """Adds the options for the prompt, the argument, the model and the runtime.

    `models`: what --model takes.
    """
    request = option_group(parser, REQUEST)
    request.add_argument(
        "--arg",
        metavar="TEXT",
        help="the controller's argument; @FILE reads it from a file, without a newline at the end, or from "
        "the bundled grammar of that name. A script gets a JSON value if TEXT is JSON (42, '[1, 2]', "
        "'\"42\"'), else a text",
    )
    request.add_argument(
        "--prompt",
        metavar="TEXT",
        help="the prompt; @FILE reads it from a file, without a newline at the end",
    )
    add_chat_and_calls(request)
    request.add_argument(
        "--messages",
        action="store_true",
        help="send each line of standard input to the script as a message (receive), and null at the end",
    )
    request.add_argument(
        "--json", action="store_true", help="print the result as JSON, in the form of POST /v1/run"
    )
    option_group(parser, MODEL).add_argument(
        "--model", metavar="PATH", help=f"{models} (default: SmolLM2-135M-Instruct)"
    )
    where = option_group(parser, PLACE).add_mutually_exclusive_group()
    where.add_argument(
        "--socket",
        type=Path,
        metavar="PATH",
        help="socket of a running daemon (default: $AICI_SOCKET, else a daemon is started)",
    )
    where.add_argument(
        "--store",
        type=Path,
        metavar="DIR",
        help="start a daemon that keeps uploads in this folder (default: $AICI_STORE, or a folder in the "
        "user's cache)",
    )


def add_sampling_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options for sampling."""
    group = option_group(parser, SAMPLING)
    group.add_argument("--n", type=int, default=1, help="number of sequences to sample (default: 1)")
    add_choice_options(parser)
    group.add_argument("--seed", type=int, help="seed of the random numbers, which makes a run repeatable")


def add_choice_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options for choosing each token, and the number of tokens."""
    group = option_group(parser, SAMPLING)
    group.add_argument(
        "--temperature",
        type=float,
        default=0.0,
        help="sampling temperature; 0 always takes the most likely token (default: 0)",
    )
    group.add_argument(
        "--top-p",
        type=float,
        default=1.0,
        help="sample from the most likely tokens that together have this probability (default: 1, all)",
    )
    group.add_argument(
        "--top-k", type=int, default=0, help="sample from this many most likely tokens (default: 0, all)"
    )
    group.add_argument(
        "--min-p",
        type=float,
        default=0.0,
        help="sample only tokens with this share of the largest probability (default: 0, all)",
    )
    group.add_argument(
        "--typical-p",
        type=float,
        default=1.0,
        help="sample from the tokens whose surprise is nearest to its mean, up to this probability "
        "(default: 1, all)",
    )
    group.add_argument(
        "--top-n-sigma",
        type=float,
        default=0.0,
        help="sample logits up to so many standard deviations below the largest (default: 0, all)",
    )
    group.add_argument(
        "--max-tokens", type=int, default=128, help="maximum number of tokens after the prompt (default: 128)"
    )


def read_choice(arguments: argparse.Namespace) -> Sampling:
    """Returns the options of `add_choice_options`. Raises ValueError for a number out of range."""
    names = ("temperature", "top_p", "top_k", "min_p", "typical_p", "top_n_sigma")
    return Sampling(**{name: getattr(arguments, name) for name in names})


def run_main(
    engine: str,
    add_options: Callable[[argparse.ArgumentParser], None],
    run: Callable[[argparse.Namespace], int],
    argv: list[str] | None,
) -> int:
    """Runs an engine's program and returns its exit status. `engine`: its name in the help."""
    parser = BriefParser(
        description=f"Generates text with {engine} under the control of a script or a WebAssembly program.",
        epilog="Without arguments, runs a demonstration.",
    )
    parser.add_argument("--controller", metavar="NAME_OR_FILE", help=f"{CONTROLLER_HELP}, or none (default)")
    add_options(parser)
    arguments = parse_arguments(parser, argv)
    return run_command(parser.prog, lambda: run(arguments), (AiciError, ValueError, OSError))


def read_options(arguments: argparse.Namespace) -> Request:
    """Completes and checks the options before anything is started. Returns the request, without a controller.

    Raises the errors of `fill_in`, `read_request`, `check_record` and `controller_file`.
    """
    fill_in(arguments)
    request = read_request(arguments)
    check_record(arguments)
    if arguments.controller != "none" and controller_file(arguments.controller) is None and arguments.record:
        raise ValueError(
            "--record needs a file or a bundled controller: aici test replays the recording without a daemon"
        )
    return request


def fill_in(arguments: argparse.Namespace) -> None:
    """Fills in the demonstration if the user gave neither a controller, an argument nor a prompt.

    Raises ValueError if only the prompt is missing, or if there is an argument without a controller.
    """
    if arguments.controller is None and arguments.arg is None and arguments.prompt is None:
        arguments.controller, arguments.arg, arguments.prompt = DEMONSTRATION
    if arguments.prompt is None:
        raise ValueError("the prompt is missing: add --prompt TEXT")
    arguments.controller = arguments.controller or "none"
    if arguments.controller == "none" and arguments.arg is not None:
        raise ValueError("--arg needs a controller: give one, or leave --arg out")


def read_request(arguments: argparse.Namespace) -> Request:
    """Builds the request from the options, with a text prompt and no controller. Reads the script, if any.

    Raises ValueError for a number out of range or an unreadable file, and ScriptFileError.
    """
    return Request(
        read_prompt(arguments),
        arg=_controller_argument(arguments),
        sampling=replace(read_choice(arguments), seed=arguments.seed),
        n=arguments.n,
        beams=getattr(arguments, "beams", 1),
        max_tokens=arguments.max_tokens,
        calls=load_functions(file) if (file := getattr(arguments, "calls", None)) else "",
        name=f"run-{secrets.token_hex(8)}" if getattr(arguments, "messages", False) else "",
    )


def read_prompt(arguments: argparse.Namespace) -> str:
    """Returns the text of --prompt. Raises ValueError for an unreadable file."""
    return _read_text("--prompt", arguments.prompt)


def read_argument(arguments: argparse.Namespace) -> str:
    """Returns the text of --arg. If the file after @ does not exist, tries the bundled grammars.

    Raises ValueError for an unreadable file.
    """
    value: str = arguments.arg or ""
    if value.startswith("@") and not Path(value[1:]).exists():
        if grammar := find_grammar(value[1:]):
            value = f"@{grammar}"
    return _read_text("--arg", value)


def _controller_argument(arguments: argparse.Namespace) -> str:
    """Returns the text of --arg, or for a script the script with its argument.

    Raises ValueError, ScriptFileError.
    """
    text = read_argument(arguments)
    controller: str | None = getattr(arguments, "controller", None)
    if controller is None or language_of(controller) is None:
        return text
    script = read_script(controller)
    given = None if arguments.arg is None else text
    if warning := unread_json(given):
        show(f"warning: {warning}", file=sys.stderr)
    return script.argument(script_value(given))


def given_argument(arguments: argparse.Namespace, request: Request) -> Argument | None:
    """Returns the argument, or None if the user gave none. A script counts as an argument."""
    is_script = language_of(arguments.controller) is not None
    return request.arg if is_script or arguments.arg is not None else None


def controller_file(name: str) -> Path | None:
    """Returns the Wasm file to run, for a script the file of its interpreter; None if it must be an upload.

    Raises UnknownControllerError, InterpreterMissingError.
    """
    language = language_of(name)
    build_missing(name if language is None else language.controller)
    return local_controller(name) if language is None else interpreter_file(language)


def find_or_upload(runtime: Runtime, name: str) -> str:
    """Returns the id of a controller: of a file, which is uploaded, or of a name that `Runtime.find` takes.

    Raises UnknownControllerError, InterpreterMissingError, ModuleError.
    """
    from rich.console import Console
    from rich.text import Text

    # on a terminal: the first use of a large controller takes seconds
    with Console(stderr=True).status(Text(f"preparing {name}, which its first use compiles")):
        try:
            wasm = controller_file(name)
            return runtime.find(name) if wasm is None else runtime.upload(wasm).id
        except UnknownControllerError as error:
            if "name" not in error.detail:
                raise
            what = "no file, no upload and no bundled controller"
            raise UnknownControllerError(not_found(name, what)) from None


EngineKind = Literal["llama", "hf", "vllm"]


def engine_of(model: str | None) -> EngineKind:
    """Returns the engine that runs a model: hf for a folder, llama for a GGUF file and the default model."""
    if model is None or model.endswith(".gguf") or Path(model).is_file():
        return "llama"
    path = Path(model)
    return "llama" if not (path / "config.json").is_file() and any(path.glob("*.gguf")) else "hf"


#: options that not all engines have
_OF_ENGINES: dict[str, tuple[EngineKind, ...]] = {
    "device": ("hf",),
    "trust_remote_code": ("hf", "vllm"),
    "threads": ("llama",),
    "llama_library": ("llama",),
    "keep_prompts": ("llama", "hf"),
    "kv_cache_tokens": ("llama", "hf"),
    "beams": ("llama", "hf"),
    "second": ("llama", "hf"),
}


def option_of(name: str) -> str:
    """Returns the option of the command line for the name of a setting."""
    return f"--{name.replace('_', '-')}"


def refuse_options_of_others(engine: EngineKind, given: Iterable[str]) -> None:
    """Raises ValueError if one of the settings, which the user has given, is for other engines only."""
    for name in given:
        if engine not in (engines := _OF_ENGINES.get(name, (engine,))):
            needed = f"--engine {' or '.join(engines)}"
            raise ValueError(f"{option_of(name)} needs {needed}; the engine is {engine}")


def add_trust_option(parser: argparse.ArgumentParser) -> None:
    """Adds --trust-remote-code."""
    option_group(parser, MODEL).add_argument(
        "--trust-remote-code",
        action="store_true",
        help="run the Python files in the folder of a model whose architecture Transformers does not have",
    )


@contextlib.contextmanager
def naming_trust_option(folder: Path) -> Iterator[None]:
    """Turns a library's error for a model with Python files of its own into a ValueError with the option."""
    try:
        yield
    except (ValueError, RuntimeError, OSError) as error:
        if "trust_remote_code" not in str(error):
            raise
        raise ValueError(
            f"loading {folder} would run Python files of the model: add --trust-remote-code (in Python: "
            "trust_remote_code=True) if you trust them"
        ) from None


#: form of a model's name on the Hub
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
#: files of a model on the Hub that are downloaded
_HUB_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.tiktoken"]


def check_folder(path: str | Path) -> Path:
    """Returns the path of a model's folder. Raises ValueError if there is none, or it has no config.json."""
    folder = Path(path)
    if not folder.exists():
        raise ValueError(
            f"there is no file or folder {folder}; give a GGUF file, the folder of a Transformers model or "
            "its name on the Hugging Face Hub (OWNER/NAME), or none for the default"
        )
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"{folder} is not the folder of a Transformers model: it has no config.json (give the folder of "
            "a downloaded model)"
        )
    return folder


def find_folder(model: str | Path, check_packages: Callable[[], None]) -> Path:
    """Returns the folder of a Transformers model: a path, or a name on the Hub, which is downloaded.

    Checks a path first, then the engine's packages, and only then downloads anything. Raises ValueError.
    """
    if Path(model).is_dir() or not _HUB_NAME.fullmatch(str(model)):
        folder = check_folder(model)
        check_packages()
        return folder
    check_packages()
    return _from_hub(str(model))


def _from_hub(name: str) -> Path:
    """Returns the folder of a model of the Hugging Face Hub; downloads it unless it is in the user's cache.

    Raises ValueError if the model cannot be downloaded.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=_HUB_FILES))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"{name} is not a folder, and cannot be downloaded from the Hugging Face Hub: {reason}; download "
            "a model and pass its folder"
        ) from None


def _read_text(option: str, value: str) -> str:
    """Returns the text, or for @FILE the file's text without the newline that editors put at its end.

    Raises ValueError for an unreadable file or text that is not UTF-8.
    """
    if not value.startswith("@"):
        if not value.isascii():
            _check_utf8(option, value)
        return value
    name = value[1:]
    try:
        return Path(name).read_text("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{option}: the file {name!r} is not UTF-8 ({error})") from None
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise ValueError(f"{option}: cannot read {name!r}, the file after @: {reason}") from None


def _check_utf8(option: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{option}: this text is not UTF-8: {value!r}") from None
