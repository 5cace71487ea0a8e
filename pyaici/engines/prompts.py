"""Encodes prompts as tokens: texts, token ids, and chats in the template of the model.

Models come from strangers, and their templates are programs. The Transformers library would run them in the
engine's process, without limits. Here a process with limits renders them, `template_process`, for all engines
alike.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from aicirt.system.processes import child_environment

if TYPE_CHECKING:
    from pyaici.engines.engine import Prompt
    from pyaici.tokens import Vocabulary

#: processor seconds, bytes of memory and characters of text that a template may take
SECONDS, MEMORY_BYTES, MAX_TEXT = 5.0, 512 << 20, 16 << 20
_PROGRAM = Path(__file__).with_name("template_process.py")
#: names of a message's reasoning, the first of which templates read, except those that only know the second
_REASONING = ("reasoning_content", "thinking", "reasoning")


def as_prompt(text: str, chat: bool | None, tokenizer: Any) -> Prompt:
    """Returns the text, or a chat with the text as the user's message.

    `chat`: None means a chat if the tokenizer has a chat template.
    """
    if chat is None:
        chat = bool(template_of(tokenizer))
    return [{"role": "user", "content": text}] if chat else text


def encode_prompt(tokenizer: Any, prompt: Prompt, num_tokens: int, *, special: bool = True) -> list[int]:
    """Returns the tokens of a prompt. The tokenizer encodes texts; its chat template formats chats first.

    `num_tokens`: the model's token ids are below this. `special`: add the special tokens that the model
    expects around a text, such as one at its beginning. Raises ValueError for other ids, and for texts and
    chats if `tokenizer` is None.
    """
    parts = prompt if isinstance(prompt, str) else list(prompt)
    if not parts:
        return []
    if isinstance(parts, str) or isinstance(parts[0], Mapping):
        if tokenizer is None:
            raise ValueError(
                "the prompt is text, but the engine has no tokenizer: give token numbers instead"
            )
        if isinstance(parts, str):
            return list(tokenizer.encode(parts, add_special_tokens=special))
        text = chat_text(tokenizer, cast("Sequence[Mapping[str, Any]]", parts))
        return list(tokenizer.encode(text, add_special_tokens=False))
    tokens = [int(cast("int", token)) for token in parts]
    for token in tokens:
        if not 0 <= token < num_tokens:
            raise ValueError(f"the prompt has token {token}; the model's are below {num_tokens}")
    return tokens


def first_tokens(
    tokenizer: Any, prompt: Prompt, vocabulary: Vocabulary, *, num_tokens: int, max_context: int
) -> list[int]:
    """Returns the first tokens of a request: those of its prompt, or the begin token if the prompt is empty.

    `max_context`: most tokens that the model takes, the answer included. Raises the errors of
    `encode_prompt`, and ValueError if the prompt leaves no room for an answer.
    """
    tokens = encode_prompt(tokenizer, prompt, num_tokens) or [begin_token(vocabulary)]
    check_room(tokens, max_context)
    return tokens


def check_room(tokens: Sequence[int], max_context: int) -> None:
    """Raises ValueError if a prompt leaves no room for an answer."""
    if len(tokens) >= max_context:
        raise ValueError(
            f"the prompt has {len(tokens)} tokens; the model takes {max_context}, prompt and answer together"
        )


def begin_token(vocabulary: Vocabulary) -> int:
    """Returns the first token of an empty sequence.

    The vocabulary's begin token, else its first end token, else token 0.
    """
    if vocabulary.bos is not None:
        return vocabulary.bos
    return vocabulary.eos[0] if vocabulary.eos else 0


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


class PlainTexts:
    """Keeps what a chat says from becoming special tokens: only what its template writes does.

    `cut` puts a mark into each name of a special token, and `encode_cut` takes the text apart there.
    """

    #: a noncharacter of Unicode, for internal use
    _MARK = "\ufdd0"

    def __init__(self, names: Iterable[str]) -> None:
        """`names`: of the special tokens."""
        rests: dict[str, list[str]] = {}
        for name in names:
            if len(name) > 1:
                rests.setdefault(name[0], []).append(re.escape(name[1:]))
        # by the first character, as few of a text begin a name
        known = [f"{re.escape(first)}(?={'|'.join(rest)})" for first, rest in rests.items()]
        self._beginnings = re.compile("|".join(known)) if known else None

    def cut(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Returns messages whose texts become no special tokens.

        Except the last one of the assistant: a client may begin an answer with such tokens.
        """
        begun = bool(messages) and messages[-1].get("role") == "assistant"
        ended = messages[:-1] if begun else messages
        return [*map(self.cut_value, ended), *(dict(message) for message in messages[len(ended) :])]

    def cut_value(self, value: Any) -> Any:
        """Returns a JSON value whose texts become no special tokens."""
        if isinstance(value, str):
            return value if self._beginnings is None else self._beginnings.sub(rf"\g<0>{self._MARK}", value)
        if isinstance(value, Mapping):
            return {self.cut_value(name): self.cut_value(inner) for name, inner in value.items()}
        return [self.cut_value(inner) for inner in value] if isinstance(value, list | tuple) else value

    def encode_cut(self, tokenizer: Any, text: str) -> list[int]:
        """Returns the tokens of the text of a chat."""
        parts = text.split(self._MARK)
        return [token for part in parts for token in tokenizer.encode(part, add_special_tokens=False)]


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
                line = process.stdout.readline(12 * MAX_TEXT + (1 << 15))  # JSON: 12 bytes a character
            except BrokenPipeError:
                line = b""
            if not line.endswith(b"\n"):
                self.end_process()
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

    def end_process(self) -> None:
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
atexit.register(_renderer.end_process)
