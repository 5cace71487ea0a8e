"""Compares masks of our grammars with those of the package kbnf, byte by byte."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import kbnf
import pytest

from lab.oracles.grammars.walk import Controller
from pyaici.server.apis.messages import Plan, plan
from tests.pyaici.server.messages.bodies import SEED, THINKING, TOOLS, request
from tests.pyaici.server.messages.test_grammar import BROKEN, PATTERNS, STRUCTURE, WRONG

Make = Callable[[Plan], Controller]

TEXTS = [*PATTERNS.values(), *STRUCTURE.values(), *BROKEN.values(), *WRONG.values()]


class Peer:
    """The engine of the package kbnf, in a configuration with correct masks and one token for each byte."""

    def __init__(self, grammar: str) -> None:
        vocabulary = kbnf.Vocabulary(
            {i: kbnf.Token(bytes([i])) for i in range(256)}, {i: str(i) for i in range(256)}
        )
        config = kbnf.Config()
        options = config.engine_config
        options.cache_enabled = options.compaction_enabled = options.rejected_token_prefix_cache_enabled = (
            False
        )
        config.engine_config = options
        self._engine = kbnf.Engine(grammar, vocabulary, config)

    def masks(self, text: bytes) -> list[bytes]:
        """Returns the allowed bytes at each place of the text, up to the first byte that is not allowed."""
        self._engine.reset()
        masks = []
        for byte in [*text, None]:
            if self._engine.is_finished():
                return [*masks, b""]
            self._engine.compute_allowed_token_ids()
            masks.append(bytes(sorted(self._engine.get_allowed_token_ids_from_last_computation())))
            if byte is None or byte not in masks[-1]:
                return masks
            self._engine.try_accept_new_token(byte)
        raise AssertionError


def ours(made: Controller, text: bytes) -> list[bytes]:
    guest = made.start()
    state = made.state(guest, [])
    masks = [state.next]
    for byte in text:
        if byte not in state.next:
            return masks
        state = made.state(guest, [byte])
        masks.append(state.next)
    return masks


@pytest.mark.parametrize(
    ("fields", "prompt_format"),
    [
        ({"tools": TOOLS}, "ai00"),
        ({"tools": TOOLS, **THINKING}, "ai00"),
        ({"tools": TOOLS, "bnf_validation": "schema_aware"}, "template"),
        ({"tools": TOOLS, "tool_choice": "any", "bnf_validation": "schema_aware"}, "ai00"),
        ({"stop": ["'\\\n", "a.c|", "é"], "bnf_validation": "structural"}, "ai00"),
        (
            {"bnf_schema": "(* start *) start::= 'Hello' | 'a' start | 'Let me';", **THINKING},
            "template",
        ),
        ({"tools": TOOLS, **SEED}, "ai00"),
    ],
)
def test_masks_equal_those_of_the_package_kbnf(
    grammar: Make, fields: dict[str, object], prompt_format: str
) -> None:
    made = plan(
        request(**fields),
        prompt_format="ai00" if prompt_format == "ai00" else "template",
    )
    # the package knows no texts that the model ends
    text = made.grammar.text if made.grammar is not None else made.argument
    assert text is not None
    controller, peer, compared = grammar(replace(made, argument=text)), Peer(text), 0
    texts = [*TEXTS, *(text.partition("<think>")[2] for text in TEXTS), "a.c|", "a'\\\n", "aé", "aaHello"]
    for text in (text.encode() for text in texts):
        mine, theirs = ours(controller, text), peer.masks(text)
        assert len(mine) == len(theirs), text
        for at, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            # our controller allows only valid UTF-8, so between characters only ASCII bytes are comparable
            assert set(a) <= set(b), text[:at]
            if at == 0 or text[at - 1] < 0x80:
                assert [byte for byte in a if byte < 0x80] == [byte for byte in b if byte < 0x80], text[:at]
                compared += 1
    assert compared > 100
