"""Substrings of bytes, for parts of other controllers: they may cut characters and be empty."""

from __future__ import annotations

import random
from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aicirt.contract.abi import STOP
from aicirt.wasm import Program
from lab.oracles.substring import EOS
from lab.runners.host import Guest, Vocab
from tests.controllers.substring.conftest import MASKS_ONLY


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.one_of(
        st.binary(max_size=40),
        st.lists(st.sampled_from(b"ab\0\xc3\xa9\xff"), max_size=40).map(bytes),
        st.text("aé中乭", max_size=20).map(str.encode),
    )
)
def test_every_substring(program: Callable[[str], Program], vocab: Vocab, text: bytes) -> None:
    rng = random.Random(text)
    guest = Guest(program("substring_bytes"), vocab, text, capabilities=MASKS_ONLY)
    mid, output = guest.step().row, b""
    while len(output) < 20:
        tokens = vocab.allowed(lambda token, output=output: output + token in text)  # type: ignore[misc]
        if not tokens:
            assert mid.verb == STOP
            break
        assert mid.allowed == [*tokens, EOS], (text, output)
        output += vocab.tokens[rng.choice([token for token in tokens if token < 256])]
        mid = guest.step([output[-1]], sampled=True).row
    guest.instance.close()


def test_a_state_may_have_256_next_bytes(program: Callable[[str], Program], vocab: Vocab) -> None:
    """States with more edges than one search step covers, in blocks of every size."""
    text = b"".join(b"x" + bytes([byte]) * (1 + byte % 3) for byte in range(256))
    guest = Guest(program("substring_bytes"), vocab, text, capabilities=MASKS_ONLY)
    assert [token for token in guest.step().row.allowed if token < 256] == list(range(256))
    assert [token for token in guest.step([120], sampled=True).row.allowed if token < 256] == list(range(256))
    assert guest.step([7], sampled=True).row.allowed == [7, EOS]
    assert guest.step([7], sampled=True).row.allowed == [120, EOS]
    guest.instance.close()
