"""First inputs of fuzz targets, from the tests, the documentation and built controllers."""

from __future__ import annotations

import ast
import contextlib
import json
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack
import numpy as np

from aicirt.vocab.image import build_image
from lab import ROOT

if TYPE_CHECKING:
    from aicirt.worker.hostapi import LoadedVocabulary

#: bytes; larger inputs make a run slow
_LONGEST = 8192


def literals(*folders: str) -> Iterator[bytes]:
    """Yields the literals in sources of tests: grammars, patterns, schemas, requests and others, no prose."""
    for folder in folders:
        place = ROOT / "tests" / folder
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
            docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
            for node in nodes:
                value = node.value if isinstance(node, ast.Constant) and node not in docstrings else None
                if isinstance(value, str | bytes):
                    text = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
                    if 1 < len(text) <= _LONGEST:
                        yield text


def examples(*languages: str) -> Iterator[bytes]:
    """Yields the code blocks of the documentation in some languages."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for language, code in re.findall(r"```(\w+)\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            if language in languages and len(code) <= _LONGEST:
                yield code.encode()


def captures() -> Iterator[bytes]:
    """Yields arguments of the controller `extract`, and patterns with named groups."""
    yield from literals("controllers/extract")
    for pattern in literals("controllers/extract/test_regex.py"):
        yield json.dumps({"regex": pattern.decode()}).encode()


def files(pattern: str, longest: int = 1 << 18) -> Iterator[bytes]:
    """Yields files of the source tree."""
    for path in sorted(ROOT.glob(pattern)):
        if path.stat().st_size <= longest:
            yield path.read_bytes()


def write(seeds: Iterable[bytes], folder: Path) -> int:
    """Writes each seed to a file; returns their number."""
    folder.mkdir(parents=True, exist_ok=True)
    unique = sorted(set(seeds))
    for number, seed in enumerate(unique):
        (folder / f"seed-{number:05}").write_bytes(seed)
    return len(unique)


def modules() -> Iterator[bytes]:
    """Yields modules from the text format in tests, and the smallest built controllers."""
    from wasmtime import WasmtimeError, wat2wasm

    from lab.runners.wat import controller

    yield controller()
    for text in literals("aicirt/wasm", "aicirt/modules"):
        body = text.decode("utf-8", "replace")
        if body.lstrip().startswith("("):
            for make in (controller, wat2wasm):
                with contextlib.suppress(WasmtimeError):
                    yield bytes(make(body))
    yield from files("pyaici/_wasm/*.wasm", longest=1 << 15)


def messages() -> Iterator[bytes]:
    """Yields messages of each kind."""
    from aicirt.contract import messages as defined

    simple: tuple[Any, ...] = (1, 0, b"", "a", None, [], [1, 2], {})
    for kind in vars(defined).values():
        if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
            for value in simple:
                fields = [*range(1, 9), *[value] * 20]
                yield msgpack.packb(fields[: len(kind._fields)])
    for kind in range(6):
        yield msgpack.packb([[1, 1, kind, 0, 0, 4, 0.0, 0.5, 0]])


def snapshots() -> Iterator[bytes]:
    """Yields valid descriptions of snapshots, and almost valid ones."""
    for size in (0, 65536, 131072, -1, 1 << 40):
        for length in (0, 4096, 65536):
            yield msgpack.packb([size, b"", length, [0, length], [[0, 4096]]])
            yield msgpack.packb([size, b"", length, [], []])


def images() -> Iterator[bytes]:
    """Yields images of small vocabularies."""
    from lab.fuzz.native import small_vocabulary

    yield small_vocabulary()
    yield build_image([b"a", b"b", b"ab"], special=[], eos=[2])


def gguf_files() -> Iterator[bytes]:
    """Yields small GGUF files with a tokenizer of each kind."""
    import gguf

    control, normal, byte = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL, gguf.TokenType.BYTE
    kinds: dict[str, tuple[list[str], list[int]]] = {
        "gpt2": (["a", "b", "ab", "<eos>"], [normal, normal, normal, control]),
        "llama": (["<unk>", "<s>", "</s>", "<0x0A>", "\u2581a"], [control, control, control, byte, normal]),
        "t5": (["<unk>", "</s>", "\u2581", "a"], [gguf.TokenType.UNKNOWN, control, normal, normal]),
    }
    with tempfile.TemporaryDirectory() as folder:
        for kind, (tokens, types) in kinds.items():
            path = Path(folder, f"{kind}.gguf")
            writer = gguf.GGUFWriter(path, "llama")
            writer.add_tokenizer_model(kind)
            writer.add_tokenizer_pre("llama-bpe")
            writer.add_token_list(tokens)
            writer.add_token_types(types)
            writer.add_token_scores([0.5] * len(tokens))
            writer.add_token_merges(["a b"])
            writer.add_eos_token_id(2)
            writer.add_tensor("token_embd.weight", np.zeros((2, 32), np.float32))
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
            yield path.read_bytes()


def tokenizers() -> Iterator[bytes]:
    """Yields small files of tokenizers of each kind, and configurations."""
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "\u2581c": 2, "<0x0A>": 3, "ab": 4}, "merges": ["a b"]}
    space = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
    spaced = {"model": model, "decoder": {"type": "Sequence", "decoders": [space, {"type": "ByteFallback"}]}}
    added = {"id": 5, "content": "<s>", "special": True, "normalized": False, "single_word": False}
    tekken = {"vocab": [{"rank": 0, "token_bytes": "YQ==", "token_str": "a"}]}
    settings = {"default_vocab_size": 3, "default_num_special_tokens": 2, "pattern": "."}
    for spec in (spaced, {**spaced, "added_tokens": [added]}, {**tekken, "config": settings}):
        yield json.dumps(spec).encode()
        yield json.dumps(spec).encode() + b'\0\0\0{"vocab_size": 9, "eos_token_id": [1]}'
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    yield json.dumps({"model": model, "pre_tokenizer": level, "decoder": level}).encode()
    yield b"YQ== 0\nYg== 1\nYWI= 2\n"
    yield b"1 'a' 1\n2 b'\\xff' 1\n"
    # a SentencePiece model: two pieces, and its algorithm
    yield b"\n\x0b\n\x05<unk>\x15\0\0\0\0\n\x08\n\x02ab\x15\0\0\0\0\x12\x02\x18\x02"


def recordings() -> Iterator[bytes]:
    """Yields a recording with an event of each kind."""
    from pyaici.recording import recording as kinds

    words = kinds.RecordedVocabulary("small", "f", 9, (8,), None, {0: b"a", 1: b"b"}, {8: "</s>"})
    events: list[kinds.Event] = [
        kinds.Sampled(0, "sparse", 2, "m", True, 0.5, -0.1, 0.9, [(0, -0.1)], kinds.Truncation(0.9, 3)),
        kinds.Spliced(1, [1], [1]),
        kinds.Forked([1]),
        kinds.Suspended(2),
        kinds.Looked([(0, -0.1)]),
        kinds.Looked(None, b"x\x9cc`@\x05\0\0\x10\0\x01"),
    ]
    ended = kinds.RecordedSequence(0, [], "error", kinds.RecordedError("trap", "trapped"), "printed")
    calls = [
        kinds.RecordedCall(number, name, arguments, 0, 0.1, {"value": value})
        for number, name, arguments, value in (
            (1, "aici.calls", "{}", [{"name": "f"}]),
            (2, "aici.send", '{"run": "x", "value": 1}', None),
            (3, "aici.name", "{}", "me"),
        )
    ]
    first = kinds.RecordedSequence(None, events, "stop")
    found = kinds.Recording(words, "s.py", b"", [0], 9, 1, [], [first, ended], {"v": b"\xff"}, calls)
    yield json.dumps(kinds.to_json(found)).encode()
    found.calls = None
    yield json.dumps(kinds.to_json(found)).encode()


def requests() -> Iterator[bytes]:
    """Yields bodies of requests, and answers of models."""
    yield from literals("pyaici/server")
    yield from examples("json")
    for kind in ("prompt", "messages", "input", "context"):
        message = [{"role": "user", "content": "Hello"}]
        body = {"model": "m", kind: message if kind in ("messages", "input") else "Hello", "max_tokens": 4}
        yield json.dumps(body).encode()
        tool = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}
        served = {"type": "mcp", "server_label": "calc", "allowed_tools": ["add"]}
        function = {"type": "function", "function": tool}
        for tools in ([function, served], [tool], [{"type": "function", **tool}, served]):
            yield json.dumps({**body, "tools": tools}).encode()


def configs() -> Iterator[bytes]:
    """Yields files of users and of settings."""
    entry = {"name": "a", "role": "run", "token_sha256": "0" * 64, "created": 1.0}
    yield json.dumps({"users": [entry]}).encode()
    yield from examples("toml", "json")
    yield b'port = 8000\nmodel = "m"\ncors_origins = ["http://localhost"]\n'


def loaded_vocabulary() -> LoadedVocabulary:
    """Loads a small vocabulary as a worker does."""
    from lab.measurement.local_worker import load_for_guests
    from pyaici.tokens import Vocabulary

    tokens = [bytes([byte]) for byte in range(256)]
    return load_for_guests(Vocabulary([*tokens, b""], special_names={256: "<eos>"}, eos=(256,)))
