"""The process that runs chat templates: a line of its input is a chat in JSON, a line of its output its text.

`pyaici.engines.prompts` starts this file by its path. A template is a Jinja program that came with the
model, so it runs with limits on processor time, memory and the length of its text, which hold for whatever it
calls. When it exceeds the time or the memory, this process ends.

Templates rely on settings and functions of the Transformers library: blocks are trimmed, `tojson` does not
escape HTML, and `raise_exception` and `strftime_now` exist.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import signal
import sys
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment


class _Generation(Extension):
    """The tag `generation`, which marks the assistant's part for training, and has no effect here."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares a set

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: Any = False
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


@functools.lru_cache(maxsize=8)
def _compiled(template: str) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(template)


def answer(line: bytes, most: int) -> dict[str, str]:
    """Returns the text of a chat, or the error with which its template refuses it. `most`: characters."""
    request = json.loads(line)
    try:
        text = _compiled(request["template"]).render(**request["variables"])
    except MemoryError:
        raise
    except Exception as error:  # a template may raise any error
        return {"error": str(error)[:2000]}  # clients get it
    return {"text": text} if len(text) <= most else {"error": f"its text has more than {most} characters"}


def main(seconds: float, nbytes: int, most: int) -> None:
    """Answers until the end of the input, with this time for each line and this memory beside what it has."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + nbytes, used + nbytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the engine: its end ends the input
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, seconds)  # SIGPROF ends the process in the middle of any call
        try:
            text = json.dumps(answer(line, most)).encode()
        except MemoryError:
            return
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.buffer.write(text + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
