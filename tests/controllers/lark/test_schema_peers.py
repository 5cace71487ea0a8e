"""Random grammars with JSON schemas in them: masks compared with those of llguidance."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from llguidance import LLMatcher

from aicirt.wasm import Program
from lab.exactness.cases import NO_FORCING
from lab.exactness.peers import Llguidance
from lab.oracles.grammars.walk import Controller
from lab.runners.host import Vocab

_CHARACTERS = '<>=;abc{}[]":,-019truefalsn '
_PIECES = [
    "tr",
    "ue",
    '{"',
    '":',
    '["',
    "],",
    "12",
    "ab",
    "b>",
    "<a",
    ">=",
    '"a',
    ": ",
    ", ",
    "  ",
    " >",
    "\n ",
    "1,",
]
#: those that texts are made of
CHOSEN = {
    text.encode() for text in [*_CHARACTERS, *_PIECES] if text in (": ", ", ") or text.split() == [text]
}


@pytest.fixture(scope="module")
def vocab() -> Vocab:
    tokens = [text.encode() for text in [*dict.fromkeys(_CHARACTERS), *_PIECES]]
    return Vocab([*tokens, b"<eos>"], eos=[len(tokens)])


def schema(rng: random.Random, depth: int = 2) -> dict[str, Any]:
    """Returns a random schema whose values both engines spell alike, which excludes 0."""
    kind = rng.choice(["boolean", "enum", "integer", "string", "array", "object"][: 6 if depth else 4])
    if kind == "enum":
        return {"enum": rng.sample(["a", "bc", 10, True, None, "ab"], 2)}
    if kind == "string":
        return {"type": "string", "pattern": rng.choice(["^[ab]*$", "^a[bc]{1,2}$"])}
    if kind == "array":
        return {"type": "array", "items": schema(rng, depth - 1), "maxItems": rng.choice([1, 2, 5])}
    if kind == "object":
        properties = {name: schema(rng, depth - 1) for name in rng.sample(["a", "b", "ab", "abc"], 2)}
        # optional ones may come late here, and not there
        fixed = {"additionalProperties": False, "properties": properties, "required": list(properties)}
        return {"type": "object", **fixed}
    return {"type": "integer", "minimum": 1} if kind == "integer" else {"type": "boolean"}


def part(rng: random.Random, depth: int = 2) -> str:
    """Returns rules for a text: a value or a name, each after a distinct marker."""
    kind = rng.choice(["value", "name", "sequence", "choice", "repeat", "value"][: 6 if depth else 2])
    if kind == "value":
        return f'"<" %json {json.dumps(schema(rng))} ">"'
    if kind == "name":
        return '";" /[a-c]+/'
    if kind == "sequence":
        return f"{part(rng, depth - 1)} {part(rng, depth - 1)}"
    if kind == "choice":
        return f'("=" {part(rng, depth - 1)} | "-" {part(rng, depth - 1)})'
    return f'(":" {part(rng, depth - 1)}){rng.choice("?*+")}'


def compare(rng: random.Random, made: Controller, peer: Llguidance, text: str, *, ignores: bool) -> int:
    """Walks along one text; returns the number of equal masks. Tokens with blanks may differ.

    In a value ours are bounded, and none is in front of a comma. Where they are ignored ours may also come
    before a value, and at both ends.
    """
    assert peer.begin(LLMatcher.grammar_from_lark(NO_FORCING + text))
    guest, same = made.start(), 0
    state, written = made.state(guest, []), b""
    for _ in range(40):
        found = {*state.tokens, peer.eos} if state.end else set(state.tokens)
        expected = peer.mask()
        assert expected is not None
        same += found == expected
        for token in found ^ expected:
            bytes_ = b"" if token == peer.eos else made.bytes_of(token)
            allowed = bytes_.split() != [bytes_] and (ignores or token in expected)
            assert allowed, (text, written, bytes_, token in found)
        shared = [t for t in sorted((found & expected) - {peer.eos}) if made.bytes_of(t) in CHOSEN]
        if not shared:
            break
        token = rng.choice(shared)
        peer.accept(token)
        written += made.bytes_of(token)
        state = made.state(guest, [token])
    return same


@pytest.mark.parametrize("ignores", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_masks(program: Callable[[str], Program], vocab: Vocab, seed: int, ignores: bool) -> None:
    rng, peer, same = random.Random(seed), Llguidance(vocab), 0
    for _ in range(300):
        text = f"start: {part(rng, 3)}" + ("\n%ignore / +/" if ignores else "")
        same += compare(rng, Controller(program("lark"), vocab, text), peer, text, ignores=ignores)
    assert same > 2500
