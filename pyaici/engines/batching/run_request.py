"""Runs a request of the command line with an engine of this process."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pyaici.engines.options import (
    find_or_upload,
    generate,
    keep_recording,
    open_runtime,
    read_options,
    try_argument,
)
from pyaici.engines.prompts import as_prompt

if TYPE_CHECKING:
    from pyaici.client.runtime import Runtime
    from pyaici.engines.batching.engine import BatchingEngine
    from pyaici.recording.recorder import RecordingRuntime
    from pyaici.tokens import Vocabulary


def run_request(
    arguments: argparse.Namespace,
    check: Callable[[], Path | None],
    default_model: Callable[[], Path],
    read_vocabulary: Callable[[Path], Vocabulary],
    make_engine: Callable[[Path, Runtime | None, Vocabulary | None, contextlib.ExitStack], BatchingEngine],
) -> int:
    """Runs `arguments.controller` and returns the exit status: 0, or 1 if a sequence ended with an error.

    The controller is a script, a Wasm file, a name as in `Runtime.find`, or None or "none" for no control.
    With neither controller, argument nor prompt, runs a demonstration.

    `check`: checks what the engine needs, and returns the path of the model that the user named, or None.
    `default_model`: returns the path of the default model. `read_vocabulary`: returns the vocabulary of a
    model's files, quickly. `make_engine`: loads a model; what it opens it
    enters into the stack. It gets the vocabulary of the model's files if it is known by then. The quickest
    checks come first, the model last.

    Raises AiciError, OSError or ValueError if the arguments cannot be satisfied. On KeyboardInterrupt, shows
    the output so far and then raises it.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # OpenMP's threads spin when other work uses the cores
    request = read_options(arguments)
    path = check()
    with contextlib.ExitStack() as stack:
        runtime: Runtime | None = None
        vocabulary: Vocabulary | None = None
        if arguments.controller != "none":
            runtime = stack.enter_context(open_runtime(arguments))
            request = replace(request, controller=find_or_upload(runtime, arguments.controller))
        path = path or default_model()
        if runtime is not None:
            vocabulary = try_argument(runtime, request, arguments, partial(read_vocabulary, path))
        engine = make_engine(path, runtime, vocabulary, stack)
        request = replace(request, prompt=as_prompt(str(request.prompt), arguments.chat, engine.tokenizer))
        if arguments.record is None:
            return generate(engine, request, engine.stats.table, as_json=arguments.json)
        recording = cast("RecordingRuntime", runtime)
        recording.record(arguments.controller, request.max_tokens)
        recorded = replace(request, logprobs=True)
        status = generate(engine, recorded, engine.stats.table, as_json=arguments.json)
        keep_recording(recording, arguments)
        return status
