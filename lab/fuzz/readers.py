"""Fuzz targets in Python: ``python -m lab.fuzz.readers TARGET OPTION... FOLDER...``, run by atheris.

Each function below returns a function that atheris calls with every input. It catches the documented
exceptions of the reader. Any other exception is a finding.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

Reader = Callable[[bytes], None]


def module() -> Reader:
    """Checks that accepted modules can be rewritten, and that a valid one is still valid then."""
    import wasmtime

    from aicirt.contract.errors import ModuleError
    from aicirt.settings import Limits
    from aicirt.wasm.engine import WasmEngine
    from aicirt.wasm.module.check import check
    from aicirt.wasm.module.rewrite import rewrite

    engine = WasmEngine(Limits()).wasmtime

    def valid(wasm: bytes) -> str | None:
        try:
            wasmtime.Module.validate(engine, wasm)
        except wasmtime.WasmtimeError as error:
            return str(error)
        return None

    def read(data: bytes) -> None:
        accepted = check(data).accepted
        # `compile_module` does not rewrite invalid modules
        before = valid(data) if accepted else "not accepted"
        try:
            after = valid(rewrite(data))
        except ModuleError as error:
            after = error.message
        if before is None:
            assert after is None, f"rewritten: {after}"

    return read


def message() -> Reader:
    """Reads frames from a socket, and passes a message to a worker."""
    from aicirt.contract.errors import MALFORMED, AiciError, ProtocolError
    from aicirt.contract.messages import decode
    from aicirt.ipc.frames import FrameSocket
    from lab.fuzz.seeds import loaded_vocabulary
    from lab.measurement.local_worker import LocalWorker

    local = LocalWorker(loaded_vocabulary()).__enter__()

    def read(data: bytes) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.sendall(data)
            ours.close()
            frames = FrameSocket(theirs)
            with contextlib.suppress(ProtocolError):
                while frames.receive() is not None:
                    pass
        try:
            fields = decode(data)
        except ProtocolError:
            return
        with contextlib.suppress(AiciError, *MALFORMED):
            local.worker._handle(local.client, fields)

    return read


def ring() -> Reader:
    """Reads and writes a ring with any positions and bytes."""
    from aicirt.contract.errors import ProtocolError
    from aicirt.ipc.ring import HEADER_BYTES, Ring

    def read(data: bytes) -> None:
        memory = bytearray(HEADER_BYTES + 4096)
        memory[:8], memory[64:72] = data[:8].ljust(8, b"\0"), data[8:16].ljust(8, b"\0")
        memory[HEADER_BYTES : HEADER_BYTES + len(data[16:])] = data[16:]
        del memory[HEADER_BYTES + 4096 :]
        reader = Ring(memoryview(memory))
        with contextlib.suppress(ProtocolError):
            while reader.read() is not None:
                pass
        writer = Ring(memoryview(memory))
        with contextlib.suppress(ProtocolError):
            writer.try_write(data[: writer.max_frame])

    return read


def row() -> Reader:
    """Reads answers of a worker as the engine's process does."""
    from aicirt.contract.errors import MALFORMED, AiciError
    from aicirt.contract.messages import decode
    from aicirt.ipc.segment import Layout, Segment
    from pyaici.client.results import (
        SegmentRows,
        check_children,
        check_splice,
        read_message,
        read_variables,
    )

    segment = Segment.create(Layout(300, num_rows=4, num_dense=2, ring_bytes=4096))

    def read(data: bytes) -> None:
        try:
            entries = decode(data)
        except AiciError:
            return
        with contextlib.suppress(AiciError):
            found = read_message(data)
            entries = found[2] if isinstance(found[2], list) else entries
        rows = SegmentRows(segment)
        for entry in entries:
            for look in (
                rows.sample,
                rows.decline,
                read_variables,
                lambda entry: check_children(entry, 1, {}),
                lambda entry: check_splice(entry[0], entry[1], 300),
            ):
                with contextlib.suppress(AiciError, *MALFORMED):
                    look(entry)

    return read


def snapshot() -> Reader:
    """Reads descriptions without a file, and with a file that is not sealed."""
    import os

    import msgpack

    from aicirt.contract.errors import AiciError
    from aicirt.wasm import Limits, Linker, Program, WasmEngine, host_functions
    from aicirt.wasm.snapshot import from_wire
    from lab.runners.wat import CALLS, controller

    program = Program.compile(Linker(WasmEngine(Limits()), host_functions(CALLS)), controller())
    shared = os.memfd_create("shared")
    os.truncate(shared, 4096)

    def read(data: bytes) -> None:
        try:
            wire = msgpack.unpackb(data, strict_map_key=False)
        except (ValueError, TypeError, msgpack.UnpackException):
            return
        for fd in (-1, os.dup(shared)):
            with contextlib.suppress(AiciError):
                from_wire(program, wire, fd, (shared, 4096))

    return read


def vocabulary() -> Reader:
    """Calls all methods of an image."""
    from aicirt.contract.errors import VocabularyError
    from aicirt.vocab.reader import VocabularyImage

    def read(data: bytes) -> None:
        try:
            image = VocabularyImage(data)
        except VocabularyError:
            return
        with contextlib.suppress(VocabularyError):
            image.decode(range(min(image.vocab_size, 400)))
        _ = image.eos, image.bos, image.pad, image.unk, image.nodes, image.text_mask, image.slices
        for bit in range(32):
            image.class_mask(bit)

    return read


def gguf() -> Reader:
    """Reads headers of GGUF files, and the vocabularies in them."""
    from aicirt.contract.errors import VocabularyError
    from pyaici.tokens.companion import Companion
    from pyaici.tokens.gguf import parse_gguf_header, vocabulary_from_gguf

    def read(data: bytes) -> None:
        with contextlib.suppress(VocabularyError):
            header = parse_gguf_header(data, "model.gguf")
            assert header.data_start >= 0 and all(isinstance(name, str) for name in header.tensors)
            vocabulary = vocabulary_from_gguf(header, Companion(), "model.gguf")
            assert len(vocabulary.tokens) <= vocabulary.vocab_size

    return read


def tokenizer() -> Reader:
    """Reads a tokenizer's file and a model's configuration, and tokenizes a text as a worker does."""
    from aicirt.contract.errors import VocabularyError
    from aicirt.vocab.image import build_image
    from aicirt.vocab.tokenizer import load_tokenizer
    from pyaici.tokens import load_vocabulary

    folder = Path(tempfile.mkdtemp())

    def read(data: bytes) -> None:
        file, _, beside = data.partition(b"\0\0\0")
        (folder / "tokenizer.json").write_bytes(file)
        (folder / "config.json").write_bytes(beside or b"{}")
        with contextlib.suppress(VocabularyError):
            known = load_vocabulary(folder)
            wire = known.registration()
            kind, content = wire.pop("tokenizer_kind"), wire.pop("tokenizer_data")
            build_image(**wire)
            tokenize = load_tokenizer(kind, content, known.tokens)
            text = known.decode(range(min(8, len(known.tokens)))) + b"a b\xff"
            assert known.decode(tokenize(text)) == text

    return read


def recording() -> Reader:
    """Reads a recording, writes it again, describes it, and makes a vocabulary of its tokens."""
    from aicirt.contract.errors import MALFORMED, AiciError
    from pyaici.recording.recording import read_recording, write_recording
    from pyaici.recording.story import lines_of
    from pyaici.recording.vocabulary import recorded_tokens

    path = Path(tempfile.mkdtemp()) / "recording.json"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        with contextlib.suppress(AiciError, *MALFORMED):
            found = read_recording(path)
            lines = lines_of(found, masks=True)
            recorded_tokens(found)
            write_recording(found, path)
            assert lines_of(read_recording(path), masks=True) == lines

    return read


def run() -> Reader:
    """Reads bodies of `POST /v1/run` and `/cpc`."""
    from pydantic import ValidationError

    from pyaici.server.apis.cpc.ollama import prompt_of
    from pyaici.server.apis.cpc.requests import CpcRequest
    from pyaici.server.apis.run.routes import RunRequest, _call
    from pyaici.server.http.errors import ApiError

    def read(data: bytes) -> None:
        with contextlib.suppress(ValidationError, ApiError, RecursionError):
            _call(RunRequest.model_validate_json(data))
        with contextlib.suppress(ValidationError, ApiError):
            prompt_of(CpcRequest.model_validate_json(data))

    return read


def openai() -> Reader:
    """Reads bodies of completions, chats and responses, and answers that may have tool calls."""
    from pydantic import ValidationError

    from pyaici.server.answers.arguments import read_json
    from pyaici.server.answers.grammar import answer_grammar
    from pyaici.server.answers.known_formats import FORMATS
    from pyaici.server.answers.plan import AnswerPlan, Marks, Start
    from pyaici.server.apis.openai.chat_plan import _functions
    from pyaici.server.apis.openai.constraints import constraint
    from pyaici.server.apis.openai.requests import ChatRequest, CompletionRequest
    from pyaici.server.apis.responses.requests import ResponsesRequest
    from pyaici.server.http.errors import ApiError
    from pyaici.tools.settings import OfferedTools

    starts = (Start(), Start(Marks()), Start(Marks(), open=True), Start(channels=True))
    forms = list(FORMATS.values())
    added = {"type": "object", "properties": {"a": {"type": "integer"}}}
    calls = [{"name": "calc.add", "description": "adds", "schema": added}]
    servers = {"calc": OfferedTools(calls, ""), "stopped": OfferedTools([], "it does not run")}

    def read(data: bytes) -> None:
        with contextlib.suppress(ValidationError, ApiError, RecursionError):
            completion = CompletionRequest.model_validate_json(data)
            constraint(completion)
            _ = completion.prompts, completion.stop_strings
        with contextlib.suppress(ValidationError, ApiError, RecursionError):
            chat = ChatRequest.model_validate_json(data)
            constraint(chat, chat.response_format)
            found, _ = _functions(chat, servers)
            functions = tuple(found)
            for form in forms if functions else ():
                if form.supports(functions):
                    answer_grammar(AnswerPlan(form=form.bound(functions), functions=functions, required=True))
            answer_grammar(AnswerPlan(starts[1], schema=data.decode("utf-8", "replace")))
        with contextlib.suppress(ValidationError, ApiError, RecursionError):
            response = ResponsesRequest.model_validate_json(data)
            constraint(response.chat(response.input))
        text = data.decode("utf-8", "replace")
        with contextlib.suppress(ValueError):
            json.dumps(read_json(text), ensure_ascii=False).encode()
        form = forms[len(data) // 4 % len(forms)]
        _check_pieces(text, AnswerPlan(starts[len(data) % 4], form, stop=("stop",)))

    return read


def _check_pieces(text: str, plan: Any) -> None:
    """Checks that the reader of an `AnswerPlan` finds the same in a text, however that is cut into pieces."""
    from pyaici.server.answers.reader import Reasoning, Text, open_reader

    found = []
    for size in (7, max(1, len(text))):
        reader = open_reader(plan)
        events = [event for at in range(0, len(text), size) for event in reader.feed(text[at : at + size])]
        events += reader.end()
        texts = [
            "".join(event.text for event in events if isinstance(event, kind)) for kind in (Text, Reasoning)
        ]
        found.append((texts, [event for event in events if not isinstance(event, Text | Reasoning)]))
    assert found[0] == found[1], "what is found depends on how the text is cut"


def messages() -> Reader:
    """Reads bodies of the messages API, and answers that may have tool calls."""
    from pyaici.server.answers.known_formats import AI00
    from pyaici.server.answers.plan import AnswerPlan, Marks, Start
    from pyaici.server.apis.messages.plan import plan
    from pyaici.server.apis.messages.prompt import ai00_prompt, chat_prompt
    from pyaici.server.apis.messages.requests import MessagesError, parse_request
    from pyaici.server.http.errors import ApiError

    def read(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        answer = None
        with contextlib.suppress(ValueError, MessagesError, ApiError, RecursionError):
            request = parse_request(json.loads(data))
            ai00_prompt(request), chat_prompt(request)
            for form in ("ai00", "template"):
                answer = plan(request, prompt_format=form).answer  # type: ignore[arg-type]
        start = Start(Marks(), open=bool(len(data) % 2))
        _check_pieces(
            text, answer or AnswerPlan(start, AI00, checked=False, stop=("stop",), reasons_again=True)
        )

    return read


def config() -> Reader:
    """Reads a file of users and a file of settings."""
    from aicirt.contract.errors import AiciError
    from pyaici.server.http.users import UserFile
    from pyaici.server.settings import read_settings

    path = Path(tempfile.mkdtemp()) / "file"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        with contextlib.suppress(AiciError):
            UserFile(path).find("token")
        with contextlib.suppress(AiciError):
            read_settings({}, path)

    return read


def defect() -> Reader:
    """Returns a reader with a defect, for the test of this program."""

    def read(data: bytes) -> None:
        if data[:2] == b"de":
            raise ValueError("the defect")

    return read


def main() -> None:
    import atheris

    name = sys.argv.pop(1)
    with atheris.instrument_imports(include=["aicirt", "pyaici"]):
        reader = globals()[name]()
    atheris.Setup(sys.argv, reader)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
