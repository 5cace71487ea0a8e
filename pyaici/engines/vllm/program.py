"""Runs a controller with vLLM and prints the generated text: harness/run_vllm.py.

Checks come first, the quickest first: the options, the controller, its argument. vLLM itself takes half a
minute at its first start, and ten seconds at later ones.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import logging
import os
import sys
import time
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from aicirt.contract.errors import RuntimeFailure
from aicirt.system.terminal import exceptions_wait
from pyaici.engines.calls import TRUST_OWNERS
from pyaici.engines.options import (
    add_prompt_options,
    add_record_option,
    add_sampling_options,
    add_trust_option,
    find_folder,
    find_or_upload,
    generate,
    keep_recording,
    naming_trust_option,
    open_runtime,
    read_options,
    read_vocabulary,
    run_main,
    try_argument,
)
from pyaici.engines.prompts import as_prompt
from pyaici.engines.vllm.frontend import plugin_installed, plugin_refusal
from pyaici.models import default_model_path

if TYPE_CHECKING:
    from pyaici.client.runtime import Runtime
    from pyaici.engines.engine import Request
    from pyaici.recording.recorder import RecordingRuntime

#: Environment variables of this process, unless the user sets them. vLLM runs in this process, because it
#: starts sooner and Ctrl-C ends it. The log levels hide messages that name vLLM's source files
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # OpenMP's threads spin when other work uses the cores
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "2",  # GiB, taken only as it is used
    "VLLM_LOGGING_LEVEL": "ERROR",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    TRUST_OWNERS: "1",  # nobody but this process reaches its vLLM
}


def run_controller(arguments: argparse.Namespace) -> int:
    """Runs `arguments.controller` and returns the exit status: 0, or 1 if a sequence ended with an error.

    The controller is a script, a Wasm file, a name as in `Runtime.find`, or None or "none" for no control.
    With neither controller, argument nor prompt, runs a demonstration.

    Raises AiciError, OSError or ValueError if the arguments cannot be satisfied.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    request = read_options(arguments)
    if arguments.record is not None and os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] != "0":
        raise ValueError("--record needs vLLM in this process: set VLLM_ENABLE_V1_MULTIPROCESSING to 0")
    folder = None if arguments.model is None else find_folder(arguments.model, check_packages)
    check_packages()
    with contextlib.ExitStack() as stack:
        runtime = None
        if arguments.controller != "none":
            check_plugin()
            socket = Path(arguments.socket or _shared_daemon(arguments) or _own_daemon(arguments, stack))
            folder = folder or default_model_path()
            runtime = stack.enter_context(open_runtime(arguments, socket))
            request = replace(request, controller=find_or_upload(runtime, arguments.controller))
            try_argument(runtime, request, arguments, partial(read_vocabulary, folder))
            os.environ["AICI_SOCKET"] = str(socket)  # where the AICI plugin in vLLM finds the module
        return _generate(folder or default_model_path(), request, arguments, runtime)


def check_packages() -> None:
    """Raises ValueError if vLLM is missing; the message has the pip command. Does not import it."""
    if importlib.util.find_spec("vllm") is None:
        raise ValueError(
            'this needs vLLM: pip install "pyaici[vllm]", or in a checkout run scripts/vllm.sh, which also '
            "works without a GPU"
        )


def check_plugin() -> None:
    """Raises ValueError if vLLM will not load the AICI plugin: it would then generate without control.

    The message has the fix.
    """
    if not plugin_installed():
        raise ValueError(
            "vLLM does not find the AICI plugin: pyaici is not installed in this environment, or in an old "
            'version; pip install "pyaici[vllm]"'
        )
    if refusal := plugin_refusal():
        raise ValueError(refusal)


def _shared_daemon(arguments: argparse.Namespace) -> str | None:
    return os.environ.get("AICI_SOCKET") if arguments.store is None else None


def _own_daemon(arguments: argparse.Namespace, stack: contextlib.ExitStack) -> Path:
    from pyaici.client.control import Daemon

    daemon = Daemon(store=arguments.store)
    stack.callback(daemon.close)
    return daemon.socket_path


def _generate(folder: Path, request: Request, arguments: argparse.Namespace, runtime: Runtime | None) -> int:
    llm = load_llm(folder, trust_remote_code=arguments.trust_remote_code)
    from pyaici.engines.vllm.engine import VllmEngine

    request = replace(request, prompt=as_prompt(str(request.prompt), arguments.chat, llm.get_tokenizer()))
    engine = VllmEngine(llm, runtime)
    if arguments.record is None:
        return generate(engine, request, as_json=arguments.json)
    runtimes = _recording(llm, cast("RecordingRuntime", runtime), arguments.controller, request.max_tokens)
    status = generate(engine, request, as_json=arguments.json)
    if not runtimes:
        raise RuntimeFailure("nothing has been recorded: the controller has failed to start")
    keep_recording(runtimes[-1], arguments)
    return status


def _recording(
    llm: Any, runtime: RecordingRuntime, controller: str, max_tokens: int
) -> list[RecordingRuntime]:
    """Makes the engine, which is in this process, record the first request with a controller.

    `runtime`: offers to answer the request's calls. Returns a list, to which the engine adds the recording
    runtime when it creates one.
    """
    from pyaici.recording.recorder import RecordingRuntime

    runtime.record(controller, max_tokens)
    runtimes: list[RecordingRuntime] = []

    def make(*arguments: Any, **options: Any) -> RecordingRuntime:
        made = RecordingRuntime(*arguments, offering=runtime, **options)
        made.record(controller, max_tokens)
        runtimes.append(made)
        return made

    llm.llm_engine.engine_core.engine_core.scheduler._aici.make_runtime = make
    return runtimes


def load_llm(folder: Path, *, trust_remote_code: bool = False) -> Any:
    """Loads a folder's model in this process and returns the vllm.LLM. Prints how many seconds that took.

    `trust_remote_code`: run Python files of the folder, if the model needs them. Raises ValueError if it
    needs them and they are not trusted.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    warnings.simplefilter("ignore")  # warnings of libraries about each other
    logging.getLogger("torch._library.triton").setLevel(logging.ERROR)  # hides the message on missing Triton
    start = time.perf_counter()
    with exceptions_wait():
        from vllm import LLM

    with naming_trust_option(folder):
        llm = LLM(
            str(folder),
            dtype=_dtype(folder),
            enforce_eager=True,
            use_tqdm_on_load=False,
            trust_remote_code=trust_remote_code,
            max_logprobs=-1,  # lets samplers of prefixes ask for the probabilities of all tokens
        )
    print(f"vLLM started in {time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)
    return llm


def _dtype(folder: Path) -> Any:
    """Returns the dtype to pass to vLLM. With "auto", vLLM casts float32 weights to bfloat16."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    dtype = config.get("dtype") or config.get("torch_dtype")
    return dtype if dtype == "float32" else "auto"


def main(argv: list[str] | None = None) -> int:
    """Runs harness/run_vllm.py and returns the exit status."""
    return run_main("vLLM", _add_options, run_controller, argv)


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_prompt_options(parser, "folder of a model")
    add_trust_option(parser)
    add_record_option(parser)
    add_sampling_options(parser)
