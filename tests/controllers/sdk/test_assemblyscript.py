"""aici.ts: the interface of the C++ SDK, and AssemblyScript's standard library in the sandbox."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aicirt.contract.errors import ControllerFailed, MemoryLimitError
from aicirt.wasm import Program
from lab.runners.host import Guest, Vocab
from tests.controllers.sdk.test_interface import (
    TOKENS,
    test_flags,
    test_host_functions,
    test_looks_drafts_and_followers,
    test_prompt_and_argument,
    test_rows,
    test_step_argument,
    test_the_name_of_a_second_model_and_a_look_at_the_own_logits,
    test_variables,
    test_verbs_of_pre_and_post,
    test_waits,
)

__all__ = [  # tests of the C++ SDK that run again, with the `start` of this module
    "test_flags",
    "test_host_functions",
    "test_looks_drafts_and_followers",
    "test_prompt_and_argument",
    "test_rows",
    "test_step_argument",
    "test_the_name_of_a_second_model_and_a_look_at_the_own_logits",
    "test_variables",
    "test_verbs_of_pre_and_post",
    "test_waits",
]


@pytest.fixture
def start(program: Callable[[str], Program]) -> Callable[..., Guest]:
    """Starts guests/assemblyscript/script, which executes these lines."""
    vocab = Vocab(TOKENS, special=[4], eos=[6, 5], bos=4, vocab_size=9)

    def start(*lines: str, prompt: tuple[int, ...] = ()) -> Guest:
        return Guest(program("assemblyscript/script"), vocab, "\n".join(lines), prompt=prompt, seq_id=7)

    return start


def test_failures(start: Callable[..., Guest]) -> None:
    with pytest.raises(ControllerFailed, match="because"):
        start("pre go", "mid fail because").step()
    with pytest.raises(MemoryLimitError, match="over the limit of 67108864"):
        start("pre go", "mid exhaust").step()


def test_exceptions_and_assertions_say_what_and_where(start: Callable[..., Guest]) -> None:
    with pytest.raises(ControllerFailed, match=r"^alas \(main\.ts:\d+:\d+\)$"):
        start("pre go", "mid throw alas").step()
    with pytest.raises(
        ControllerFailed, match=r"^mid is called, the script says pre go \(main\.ts:\d+:\d+\)$"
    ):
        start("pre go", "pre go").step()


def test_texts_that_no_tokens_spell(start: Callable[..., Guest]) -> None:
    with pytest.raises(ControllerFailed, match="the vocabulary cannot spell: xyz"):
        start("pre go", "mid tokenize xyz").step()


def test_random_numbers_need_only_the_seed_of_the_host(start: Callable[..., Guest]) -> None:
    guest = start("pre go", "mid random", "mid random", "mid any")
    guest.take_log()
    guest.step()
    one, other = map(float, guest.take_log().splitlines()[1:])
    assert 0 <= one < 1 and 0 <= other < 1 and one != other


def test_many_steps_do_not_exhaust_memory(start: Callable[..., Guest]) -> None:
    """The garbage of each step is collected."""
    guest = start(*(line for _ in range(4000) for line in ("pre go", "mid set 1 2", "post go")))
    guest.step()
    sizes = []
    for _ in range(2):
        for _ in range(1900):
            assert guest.step([1]).row.allowed == [1, 2]
            guest.take_log()
        guest.instance.refresh()
        sizes.append(len(guest.instance.view))
    assert sizes[0] == sizes[1] <= 4 << 20
