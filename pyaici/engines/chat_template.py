"""Renders a model's chat template, for all engines alike, in a process with limits: `template_process`.

Models come from strangers, and their templates are programs. The Transformers library would run them in the
engine's process, without limits.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aicirt.system.environment import child_environment

#: processor seconds, bytes of memory and characters of text that a template may take
SECONDS, MEMORY_BYTES, MAX_TEXT = 5.0, 512 << 20, 16 << 20
_PROGRAM = Path(__file__).with_name("template_process.py")
#: names of a message's reasoning, the first of which templates read, except those that only know the second
_REASONING = ("reasoning_content", "thinking", "reasoning")


class _Renderer:
    """The process, which is started when it is needed and ends with this one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def render(self, template: str, variables: Mapping[str, Any]) -> str:
        """Returns the text. Raises ValueError if the template fails, TypeError if a variable is not JSON."""
        request = json.dumps({"template": template, "variables": variables}).encode() + b"\n"
        with self._lock:
            process = self._running()
            assert process.stdin is not None and process.stdout is not None
            try:
                process.stdin.write(request)
                process.stdin.flush()
                line = process.stdout.readline()
            except BrokenPipeError:
                line = b""
            if not line.endswith(b"\n"):
                self.end()
                limits = f"{SECONDS:g} s of processor time or {MEMORY_BYTES >> 20} MiB of memory"
                raise ValueError(f"it takes more than {limits}")
        answer = json.loads(line)
        if "error" in answer:
            raise ValueError(answer["error"])
        return str(answer["text"])

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._owner == os.getpid() and self._process.poll() is None:
            return self._process
        if importlib.util.find_spec("jinja2") is None:
            raise ModuleNotFoundError("No module named 'jinja2'", name="jinja2")
        self._owner = os.getpid()  # a fork has a process of its own
        limits = [str(SECONDS), str(MEMORY_BYTES), str(MAX_TEXT)]
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_PROGRAM), *limits],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=child_environment(),
        )
        return self._process

    def end(self) -> None:
        """Ends the process, if this process has started one."""
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:  # a request was not written to its end
                pass


_renderer = _Renderer()
atexit.register(_renderer.end)


def chat_text(
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    answer: bool = True,
    variables: Mapping[str, Any] | None = None,
) -> str:
    """Returns the text of a chat in the template of a tokenizer: Transformers' or llama.cpp's.

    `answer`: add the beginning of an answer. `variables`: of the template, values of JSON. Fields without a
    value are left out, and reasoning has all names that templates use, as in Transformers. Raises ValueError
    if the template refuses the chat or exceeds a limit, or if there is none.
    """
    template = template_of(tokenizer, tools=bool(tools))
    if not template:
        raise ValueError("the model has no chat template: give a plain text")
    settings = {
        **tokenizer.special_tokens_map,
        "documents": None,
        "tools": list(tools) if tools else None,
        "add_generation_prompt": answer,
        **(variables or {}),
    }
    try:
        return render_chat(template, [_told(message) for message in messages], settings)
    except (ValueError, TypeError) as error:
        raise ValueError(f"the model's chat template refuses the chat: {error}") from None


def template_of(tokenizer: Any, *, tools: bool = False) -> str:
    """Returns a tokenizer's template for chats, or for those with tools; empty if it has none."""
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, dict):  # several templates by name, as Command R has
        template = template.get("tool_use" if tools and "tool_use" in template else "default")
    return template if isinstance(template, str) else ""


def _told(message: Mapping[str, Any]) -> dict[str, Any]:
    told = {name: value for name, value in message.items() if value is not None}
    for name in _REASONING:
        if name in told:
            return {"thinking": told[name], **told, "reasoning_content": told[name]}
    return told


def render_chat(template: str, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]) -> str:
    """Returns the text of a chat. Raises ValueError if the template refuses it or exceeds a limit."""
    return _renderer.render(template, {**variables, "messages": list(messages)})
