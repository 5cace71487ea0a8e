"""The fuzz targets: readers of untrusted input, with their first inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lab.fuzz import seeds


@dataclass(frozen=True, slots=True)
class Target:
    """A reader. It may refuse an input with its own error. Any other exception is a finding."""

    about: str
    seeds: Callable[[], Iterable[bytes]]
    #: bytes of the longest input
    longest: int
    #: the controller that reads grammars, compiled natively; None for a reader in Python (readers.py)
    controller: str | None = None


def _grammar(name: str, controller: str, *languages: str, files: str = "") -> Target:
    def first() -> Iterable[bytes]:
        yield from seeds.literals(f"controllers/{controller}")
        yield from seeds.examples(*languages)
        if files:
            yield from seeds.files(files, longest=_GRAMMAR)

    return Target(f"grammars in {name}, and their masks (C++)", first, _GRAMMAR, controller)


_GRAMMAR = 4096

TARGETS: dict[str, Target] = {
    "yacc": _grammar("the syntax of yacc", "lr1", "yacc", files="controllers/lr1/grammars/*.y"),
    "kbnf": _grammar("KBNF", "kbnf", "kbnf"),
    "gbnf": _grammar("GBNF", "gbnf", "gbnf"),
    "lark": _grammar("the dialect of Lark", "lark", "lark"),
    "json_schema": _grammar("JSON Schema", "json_schema", "json"),
    "regex": _grammar("regular expressions", "regex", "regex"),
    "extract": Target(
        "grammars and patterns with captures, and their masks (C++)", seeds.captures, _GRAMMAR, "extract"
    ),
    "module": Target(
        "modules: check and rewriting, compared with wasmtime's validation", seeds.modules, 1 << 16
    ),
    "message": Target("frames and messages between processes", seeds.messages, 1 << 12),
    "ring": Target("a ring in shared memory that the peer has written", seeds.messages, 1 << 12),
    "row": Target("rows and results from a worker", seeds.messages, 1 << 12),
    "snapshot": Target("descriptions of snapshots from another process", seeds.snapshots, 1 << 12),
    "vocabulary": Target("images of vocabularies", seeds.images, 1 << 14),
    "gguf": Target("headers of GGUF files, and their vocabularies", seeds.gguf_files, 1 << 13),
    "tokenizer": Target("files of tokenizers, and their use in workers", seeds.tokenizers, 1 << 13),
    "recording": Target("recordings, and what replays make of them", seeds.recordings, 1 << 13),
    "run": Target("requests of POST /v1/run and of /cpc", seeds.requests, 1 << 13),
    "openai": Target("requests of OpenAI's API, and answers with tool calls", seeds.requests, 1 << 13),
    "messages": Target("requests of the messages API, and answers with tool calls", seeds.requests, 1 << 13),
    "config": Target("files of users and of settings", seeds.configs, 1 << 12),
}
