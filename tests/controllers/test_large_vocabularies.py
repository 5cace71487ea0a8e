"""Every starter and SDK with a vocabulary of 262 144 tokens: the fuel of `aici_init` and of a step."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from aicirt.contract.abi import CAP_TOKENIZER, ROW_ALL, ROW_BITMASK, SPLICE
from lab.runners.fuel import MeteredGuest, metered_host, used
from lab.runners.host import EVERYTHING, Host, Vocab
from pyaici.cli.new import LANGUAGES, SCRIPTS, create
from pyaici.scripting.call import find_call
from pyaici.toolchain import build_controller
from tests.controllers.conftest import CONTROLLERS, GUESTS
from tests.controllers.sdk.recognizer.automata import Automaton
from tests.languages import compiler_or_skip
from tests.thorough import thorough

#: aici_init has a second and aici_mid_process 20 ms. Even a slow core executes this many instructions then
MAX_FOR_INIT, MAX_FOR_STEP = 1_000_000_000, 20_000_000
#: for a mask in a host name. It is exceeded if each place of a label searches for what it allows
MAX_FOR_LABEL = 1_000_000
#: for a mask where few characters may follow. It is exceeded if the walk asks at each node what may follow
MAX_FOR_COUNTED = 25_000_000

#: guests that walk an automaton, and the way in which they do so
WAYS = {"table.cpp": 6} | ({"rust/table": 3} if thorough() else {})


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with metered_host() as host:
        yield host


@cache
def vocabulary() -> Vocab:
    """All bytes, an end token, and words: each is a shorter one and a piece, as in byte-pair encodings."""
    chance = random.Random(1)
    words = [*string.ascii_letters, *(f" {letter}" for letter in string.ascii_letters)]
    pieces = [*string.ascii_lowercase, "al", "an", "en", "er", "ing", "ion", "le", "on", "re", "st", "ter"]
    tokens = dict.fromkeys([bytes([byte]) for byte in range(256)])
    while len(tokens) < 262_143:
        word = chance.choice(words) + chance.choice(pieces)
        if len(word) <= 16 and word.encode() not in tokens:
            tokens[word.encode()] = None
            words.append(word)
    return Vocab([*tokens, b"</s>"], eos=[262_143])


def write(host: Host, wasm: Path, argument: str | bytes, steps: int = 1) -> MeteredGuest:
    """Runs a controller for some steps with the first allowed tokens, and checks what each call used."""
    guest = MeteredGuest(host.compile(wasm.read_bytes()), vocabulary(), argument)
    print(f"init {used(guest.instance):,}")
    assert used(guest.instance) < MAX_FOR_INIT
    tokens: list[int] = []
    for _ in range(steps):
        before = used(guest.instance)
        answer = guest.step(tokens).row
        print(f"step {used(guest.instance) - before:,}")
        assert used(guest.instance) - before < MAX_FOR_STEP
        if answer.verb == SPLICE:
            tokens = answer.tokens
        elif answer.kind == ROW_BITMASK:
            tokens = answer.allowed[:1]
        else:
            assert answer.kind == ROW_ALL  # the same token is allowed again
    return guest


@pytest.mark.parametrize("language", LANGUAGES if thorough() else ["cpp"])
def test_starter(language: str, host: Host, tmp_path: Path) -> None:
    create(tmp_path / "starter", language)
    with compiler_or_skip():
        wasm = build_controller(tmp_path / "starter", tmp_path / "starter.wasm").path
    guest = write(host, wasm, "")
    expected = vocabulary().allowed(lambda token: b"e" not in token.lower())
    assert guest.take_log() == f"{len(expected) + 1} of 262144 tokens are allowed\n"
    assert guest.step().row.allowed == [*expected, 262_143]


@pytest.mark.parametrize("language", SCRIPTS if thorough() else ["python"])
def test_starter_script(language: str, host: Host, tmp_path: Path) -> None:
    create(tmp_path / "starter", language)
    guest = write(host, *find_call(tmp_path / "starter" / SCRIPTS[language], None), steps=30)
    assert guest.take_log() == "Aaaaaaaaaaa is a cat\n"


_OFTEN = """
const aici = @import("aici");
comptime {
    aici.controller();
}
var arg: aici.StepArg = .{};
var result: aici.MidResult = .{};
export fn aici_arg() *aici.StepArg {
    return &arg;
}
export fn aici_init(_: u32) u32 {
    var token: u32 = 0;
    while (token < aici.vocabulary().vocab_size) token += 1;
    return 0;
}
export fn aici_mid_process() *aici.MidResult {
    return &result;
}
"""


def test_zig_keeps_the_address_of_the_vocabulary(host: Host, tmp_path: Path) -> None:
    (tmp_path / "often.zig").write_text(_OFTEN)
    wasm = build_controller(tmp_path / "often.zig", tmp_path / "often.wasm").path
    assert used(write(host, wasm, "").instance) < 20 * 262_144


@pytest.mark.parametrize("guest", WAYS)
def test_recognizer(guest: str, host: Host, tmp_path: Path) -> None:
    """The constraint of the C++ SDK and the recognizer of the crate, for text that begins with "a"."""
    with compiler_or_skip():
        wasm = build_controller(GUESTS / guest, tmp_path / "guest.wasm").path
    rows = [[0] * 256, [2 * (byte == ord("a")) for byte in range(256)], [2] * 256]
    argument = Automaton(rows, [0, 0, 1]).argument(WAYS[guest], 255)
    answer = write(host, wasm, argument).step([ord("a")]).row
    assert answer.kind == ROW_BITMASK
    assert answer.allowed == [*range(262_144)]


def masks(host: Host, folder: Path, schema: dict[str, Any], text: str) -> Iterator[int]:
    """Yields the fuel of the mask before each character of a text that a schema allows."""
    wasm = build_controller(CONTROLLERS / "json_schema", folder / "json_schema.wasm").path
    capabilities = {**EVERYTHING, CAP_TOKENIZER: 0}
    guest = MeteredGuest(
        host.compile(wasm.read_bytes()), vocabulary(), json.dumps(schema), capabilities=capabilities
    )
    tokens: list[int] = []
    for token in text:
        before = used(guest.instance)
        assert ord(token) in guest.step(tokens).row.allowed
        yield used(guest.instance) - before
        tokens = [ord(token)]


@pytest.mark.parametrize(("form", "text"), [("email", '"ada.b@example.or'), ("hostname", '"www.example.or')])
def test_masks_of_counted_labels(form: str, text: str, host: Host, tmp_path: Path) -> None:
    """Each label of a host name has a number of characters and a number of labels before it."""
    assert max(masks(host, tmp_path, {"type": "string", "format": form}, text)) < MAX_FOR_LABEL


@pytest.mark.parametrize("least", [0, 11])
def test_masks_near_the_maximum_length(least: int, host: Host, tmp_path: Path) -> None:
    """Most tokens are longer than the rest of the string, and nearly all of these go on with no escape."""
    schema = {"type": "string", "minLength": least, "maxLength": 12}
    assert max(masks(host, tmp_path, schema, '"abcdefghijkl"')) < MAX_FOR_COUNTED


def test_masks_of_strings_that_must_differ(host: Host, tmp_path: Path) -> None:
    """Each character that fits makes another string, and only those of earlier items are forbidden."""
    schema = {"type": "array", "items": {"type": "string", "maxLength": 12}, "uniqueItems": True}
    assert max(masks(host, tmp_path, schema, '["abcdefghijkl", "abcdefghijkm"]')) < MAX_FOR_COUNTED
