"""The served model: its engine, its tokenizer, and encoding of prompts and chats."""

from __future__ import annotations

import hashlib
import importlib.metadata
import logging
import re
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyaici.engines.options import engine_of, read_second, refuse_options_of_others
from pyaici.engines.prompts import PlainTexts, chat_text, check_room, encode_prompt, template_of
from pyaici.models.default import NAME
from pyaici.opening import EngineOptions, find_model, load_engine
from pyaici.server.http.errors import bad_request, check_text, not_found

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pyaici.client.runtime import Runtime
    from pyaici.engines.engine import Engine, TokenScore
    from pyaici.server.settings import ServerSettings
    from pyaici.tokens import Vocabulary


_log = logging.getLogger("aicirt.server")
#: names of the template's variables that a client may set, and the greatest length of a value
_VARIABLE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_MAX_VARIABLE = 1000
#: what the server sets, and what Transformers' function takes beside variables
_OWN_VARIABLES = frozenset(
    {
        *("self", "messages", "conversation", "chat_template", "tools", "documents", "padding", "truncation"),
        *("add_generation_prompt", "continue_final_message", "tokenize", "tokenizer_kwargs", "max_length"),
        *("return_tensors", "return_dict", "return_assistant_tokens_mask", "sanitize_control_tokens"),
    }
)
#: characters of an unknown model's name that an error repeats
_MAX_NAME = 256


@dataclass(frozen=True)
class ServedModel:
    """A model in an engine. `tokenizer`: has the methods of one of the Transformers library."""

    name: str
    engine: Engine
    tokenizer: Any
    vocabulary: Vocabulary
    #: ids that prompts may have
    num_tokens: int
    #: tokens of a prompt and its answer together
    max_context: int
    #: Returns the logits after token sequences, as `BatchingEngine.logits_in_pieces` does; call it in the
    #: engine's thread. None: the engine does not expose logits.
    logits: Callable[[Sequence[Sequence[int]]], Generator[None, None, NDArray[np.float32]]] | None = None
    #: Scores the tokens of a text, as `BatchingEngine.scores_in_pieces` does; call it in the engine's thread.
    scores: Callable[[Sequence[int], int], Generator[None, None, list[TokenScore]]] | None = None
    #: other names that clients may use for the model
    aliases: frozenset[str] = frozenset()
    created: float = field(default_factory=time.time)

    @cached_property
    def _plain_texts(self) -> PlainTexts:
        return PlainTexts(self.vocabulary.special_names.values())

    @property
    def chat_template(self) -> str:
        """The tokenizer's template for chats, empty if it has none."""
        return template_of(self.tokenizer)

    @property
    def fingerprint(self) -> str:
        """Identifies the model, the engine and this server's version: answers may change with it."""
        version = importlib.metadata.version("pyaici")
        parts = (version, self.name, type(self.engine).__name__, self.num_tokens, self.chat_template)
        return f"fp_{hashlib.sha256(repr(parts).encode('utf-8', 'replace')).hexdigest()[:12]}"

    def check_name(self, name: str | None) -> None:
        """Raises ApiError if a request names another model; a request that names none gets this one."""
        if name not in (None, "", "default", self.name) and name not in self.aliases:
            raise not_found(f"there is no model {name[:_MAX_NAME]!r}; this server has {self.name!r}", "model")

    def token_text(self, token: int) -> str:
        """Returns a token's text for people: a special token's name, else its bytes as UTF-8.

        Invalid UTF-8 becomes U+FFFD.
        """
        name = self.vocabulary.special_names.get(token)
        return name if name is not None else self.vocabulary.token_bytes(token).decode("utf-8", "replace")

    def encode(
        self, prompt: str | Sequence[int], param: str = "prompt", *, special: bool = True
    ) -> list[int]:
        """Returns the tokens of a text, or checked token ids; `special`: see `encode_prompt`.

        Raises ApiError.
        """
        if isinstance(prompt, str):
            check_text(prompt, param)
            self._check_length(len(prompt), param)
        else:
            self._fitting(prompt, param)
        try:
            tokens = encode_prompt(self.tokenizer, prompt, self.num_tokens, special=special)
        except ValueError as error:
            raise bad_request(str(error), param) from None
        self._fitting(tokens, param)
        return tokens

    def tokens_of_word(self, word: str) -> list[tuple[int, ...]]:
        """Returns the tokens of a text at the beginning of a text and, if they differ, after a space."""
        found: list[tuple[int, ...]] = []
        for prefix in ("", " "):
            tokens = tuple(self.tokenizer.encode(prefix + word.lstrip(), add_special_tokens=False))
            # after a space: only as many tokens, of which the first has the space in it
            if not tokens:
                continue
            if not found or (tokens[0] != found[0][0] and len(tokens) == len(found[0])):
                found.append(tokens)
        return found

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_arguments: Mapping[str, Any] | None = None,
        param: str = "messages",
        answer: bool = True,
    ) -> list[int]:
        """Returns the tokens of a chat in the model's own template, up to where the answer begins.

        `answer`: add the beginning of an answer. Raises ApiError if the template refuses the chat.
        """
        for number, message in enumerate(messages):
            check_text(str(message.get("content") or ""), f"{param}.{number}.content")
        if not self.chat_template:
            raise bad_request(
                f"the model {self.name} has no chat template: send a prompt instead (/v1/completions)",
                param,
                "no_chat_template",
            )
        self._check_template_arguments(template_arguments or {})
        self._check_length(_characters([*messages, *(tools or ())]), param)
        plain = self._plain_texts
        said, offered = plain.cut(messages), [plain.cut_value(tool) for tool in tools or ()]
        try:
            text = chat_text(self.tokenizer, said, tools=offered, answer=answer, variables=template_arguments)
        except ValueError as error:
            raise bad_request(str(error), param) from None
        tokens = plain.encode_cut(self.tokenizer, text)
        self._fitting(tokens, param)
        return tokens

    def _check_template_arguments(self, given: Mapping[str, Any]) -> None:
        """Raises ApiError unless each argument is a variable of the template.

        Clients must not set what the server sets.
        """
        for name, value in given.items():
            param = f"chat_template_kwargs.{name}"
            if name in _OWN_VARIABLES or not _VARIABLE.fullmatch(name):
                raise bad_request(f"{name!r} is not a variable of the model's chat template", param)
            if not isinstance(value, str | int | float | bool | None) or len(str(value)) > _MAX_VARIABLE:
                raise bad_request(
                    f"{name} must be true, false, null, a number, or a text of at most {_MAX_VARIABLE} "
                    "characters",
                    param,
                )

    def _check_length(self, characters: int, param: str) -> None:
        """Raises ApiError if a text is too long even in tokens of the greatest length.

        The check avoids tokenizing such a text. Assumes that the tokenizer drops no characters.
        """
        if characters <= self.max_context:
            return
        longest = self.vocabulary.longest_token
        if characters > self.max_context * longest:
            raise bad_request(
                f"the prompt has {characters} characters, which is too long: the model takes "
                f"{self.max_context} tokens of at most {longest} bytes, including the answer",
                param,
                "context_length_exceeded",
            )

    def _fitting(self, tokens: Sequence[int], param: str) -> None:
        try:
            check_room(tokens, self.max_context)
        except ValueError as error:
            raise bad_request(str(error), param, "context_length_exceeded") from None


def _characters(value: Any) -> int:
    """Returns the number of characters of all texts in a JSON value; every other value counts as one."""
    total, left = 0, [value]
    while left:
        inner = left.pop()
        if isinstance(inner, str):
            total += len(inner)
        elif isinstance(inner, Mapping):
            left += [*inner, *inner.values()]
        elif isinstance(inner, list):
            left += inner
        else:
            total += 1
    return total


def load(settings: ServerSettings, runtime: Runtime, socket: Path) -> ServedModel:
    """Loads the model into the engine that the settings name; takes seconds to minutes.

    `runtime`: used by the engine alone, connected to the aicirt at `socket`. Raises AiciError, OSError or
    ValueError.
    """
    kind = settings.engine or engine_of(None if settings.model is None else str(settings.model))
    defaults = {name: field.default for name, field in type(settings).model_fields.items()}
    refuse_options_of_others(kind, (name for name in defaults if getattr(settings, name) != defaults[name]))
    path = find_model(settings.model, kind)
    options = EngineOptions(
        device=settings.device,
        trust_remote_code=settings.trust_remote_code,
        threads=settings.threads,
        llama_library=settings.llama_library,
        keep=settings.keep_prompts,
        cache_tokens=settings.kv_cache_tokens or "auto",
        second=read_second(settings.second),
    )
    engine = load_engine(path, kind, runtime, socket, options)
    if engine.cache_tokens is not None:
        _log.info("the key-value cache has room for %d tokens", engine.cache_tokens)
    return ServedModel(
        settings.model_name or _name(settings.model, path),
        engine,
        engine.tokenizer,
        engine.vocabulary,
        engine.num_tokens,
        engine.max_context,
        engine.logits_in_pieces,
        engine.scores_in_pieces,
        frozenset(settings.model_aliases),
    )


def _name(model: Path | None, path: Path) -> str:
    """Returns the name of the model that is at `path`: of the file, the folder, or the model on the Hub."""
    if model is None:
        return NAME
    if path.is_file():
        return path.stem
    return model.resolve().name if model.is_dir() else model.name
