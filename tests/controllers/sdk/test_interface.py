"""The controller interface: what callbacks see, what they return, what the host does for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from aicirt.contract.abi import CONTINUE, FOLLOW, FORK, LOOK, MID_DRAFTS, MID_OWN, SPLICE, STOP, SUSPEND
from aicirt.contract.errors import AiciError, ControllerFailed
from aicirt.wasm import Export, Program
from lab.runners.host import ALL, BITMASK, DENSE, SPARSE, TOKEN, Guest, Vocab
from pyaici.toolchain import BuildError, build_controller

TOKENS = [b"a", b"b", b"", b"ab", b"<s>", b"</s>", b"<end>"]


@pytest.fixture
def start(program: Callable[[str], Program]) -> Callable[..., Guest]:
    """Starts guests/script.cpp with lines to obey."""
    vocab = Vocab(TOKENS, special=[4], eos=[6, 5], bos=4, vocab_size=9)

    def start(*lines: str, prompt: tuple[int, ...] = ()) -> Guest:
        return Guest(program("script"), vocab, "\n".join(lines), prompt=prompt, seq_id=7)

    return start


def test_prompt_and_argument(start: Callable[..., Guest]) -> None:
    guest = start("pre go", "mid any", prompt=(3, 1, 4))
    assert guest.take_log() == "prompt=3 1 4 \n"
    with pytest.raises(ControllerFailed, match="refused"):
        start("refuse")


def test_step_argument(start: Callable[..., Guest]) -> None:
    guest = start("pre go", "mid any", "post go", "pre go", "mid any", "post go", "pre go", "mid any")
    guest.step()
    guest.take_log()
    guest.step([3], logprob=-0.5, mass=0.75, top=[(3, -0.5), (1, -1.25)])
    assert guest.take_log() == (
        "post=3 \nseq=7 step=2 sampled=1 backtrack=0 logprob=-0.50 mass=0.75 "
        "tokens=3 group=7 3:-0.50 1:-1.25 \n"
    )
    many = list(range(40))
    guest.step(many, backtrack=2, group=list(range(100, 130)))
    shown = " ".join(map(str, many))
    group = " ".join(map(str, range(100, 130)))
    seen = f"seq=7 step=3 sampled=0 backtrack=2 logprob=nan mass=nan tokens={shown} group={group} \n"
    assert guest.take_log() == f"post={shown} \n{seen}"


def test_verbs_of_pre_and_post(start: Callable[..., Guest]) -> None:
    guest = start("pre suspend", "pre go", "mid any", "post go", "pre fork 3", "mid any", "post stop")
    first = guest.step()
    assert first.pre == (SUSPEND, 0) and first.mid is None
    assert guest.step().pre == (CONTINUE, 1)
    forked = guest.step([1], children=(8, 9))
    assert forked.pre == (FORK, 3)
    guest.take_log()
    for child in forked.children:
        assert child.mid().kind == ALL
    assert ["seq=8" in forked.children[0].take_log(), "group=7 8 9" in forked.children[1].take_log()] == [
        True
    ] * 2
    last = guest.step([1])
    assert (last.post, last.pre, last.mid) == (STOP, None, None)
    assert start("pre stop").step().pre == (STOP, 0)


def test_waits(start: Callable[..., Guest]) -> None:
    lines = ["pre await 250 first 3 the-second 0", "pre await 0 x 1", "pre await 7", "pre suspend", "pre go"]
    guest = start(*lines, "mid any")
    found = [guest.step() for _ in lines]
    assert [answer.pre for answer in found] == [(SUSPEND, 0)] * 4 + [(CONTINUE, 1)]
    assert [(answer.waits, answer.wait_ms) for answer in found] == [
        ([("first", 3), ("the-second", 0)], 250),
        ([("x", 1)], 0),
        ([], 7),
        ([], 0),
        ([], 0),
    ]


def test_rows(start: Callable[..., Guest]) -> None:
    rows = ["any", "set 1 3", "given 0 8", "same", "force 5", "sparse 3 1", "dense", "splice 2 1 1 0", "stop"]
    guest = start(*(line for row in rows for line in ("pre go", f"mid {row}")))
    found = [guest.step().row for _ in rows]
    assert [mid.kind for mid in found[:7]] == [ALL, BITMASK, BITMASK, BITMASK, TOKEN, SPARSE, DENSE]
    assert [mid.same for mid in found[:7]] == [False, False, False, True, False, False, False]
    assert found[1].allowed == [1, 3] and found[1].temperature == 0 and found[1].top_logprobs == 0
    assert found[2].allowed == [0, 8] and found[2].temperature == 0.5 and found[2].top_logprobs == 3
    assert found[2].truncation == (0.5, 4, 0.25, 0.75, 1.5)
    assert not any(found[1].truncation + found[3].truncation)
    assert found[4].token == 5
    assert found[5].biases == {3: 1.5, 1: -math.inf} and found[5].default == -math.inf
    assert found[6].biases == dict.fromkeys(range(9), 0.25)
    assert (found[7].verb, found[7].backtrack, found[7].tokens) == (SPLICE, 2, [1, 1, 0])
    assert found[8].verb == STOP


def test_looks_drafts_and_followers(start: Callable[..., Guest]) -> None:
    guest = start(
        "pre go", "mid look", "mid look 2", "mid any", "pre go", "mid expects 3 1", "pre go", "mid follow 9"
    )
    first = guest.step().row
    assert (first.verb, first.top_logprobs) == (LOOK, 0)
    guest.take_log()
    second = guest.show(logits=[0.5, -1.25, 7, 3, 9, -math.inf, 1, 2, 0])
    assert (second.verb, second.top_logprobs) == (LOOK, 2)
    assert guest.take_log().endswith(" mass=nan tokens=group=7 looked 0.50 -1.25 7.00 3.00 \n")
    assert guest.show(top=[(3, -0.5), (1, -1.25)]).kind == ALL
    assert guest.take_log().endswith(" mass=nan tokens=group=7 3:-0.50 1:-1.25 looked \n")
    drafted = guest.step().row
    assert (drafted.kind, drafted.flags, drafted.tokens) == (ALL, MID_DRAFTS, [3, 1])
    last = guest.step().row
    assert (last.verb, last.token, last.temperature, last.model) == (FOLLOW, 9, -0.5, "")


def test_the_name_of_a_second_model_and_a_look_at_the_own_logits(start: Callable[..., Guest]) -> None:
    guest = start("pre go", "mid own", "mid amateur 9")
    assert guest.step().row.flags == MID_OWN
    last = guest.show(logits=[0.0] * 9)
    assert (last.verb, last.token, last.temperature, last.model) == (FOLLOW, 9, 2.0, "amateur")


def test_a_mask_with_the_number_of_the_last_row_is_not_passed_again(start: Callable[..., Guest]) -> None:
    rows = {
        "numbered 1 3": ([3], False),
        "numbered 1 3 ": ([3], True),
        "set 3": ([3], False),
        "numbered 1 3  ": ([3], False),
        "numbered 2 4": ([4], False),
        "numbered 2 4 ": ([4], True),
        "splice 0 1": ([], False),
        "numbered 2 4  ": ([4], False),
        "same": ([4], True),
        "force 5": ([], False),
        "numbered 2 4   ": ([4], False),
    }
    guest = start(*(line for row in rows for line in ("pre go", f"mid {row.rstrip()}")))
    assert [((row := guest.step().row).allowed, row.same) for _ in rows] == list(rows.values())


def test_flags(start: Callable[..., Guest]) -> None:
    rows = ["held 6", "spared", "any", "stop"]
    guest = start(*(line for row in rows for line in ("pre go", f"mid {row}")))
    held, spared, plain, stop = (guest.step().row for _ in rows)
    assert (held.verb, held.tokens, held.flags) == (SPLICE, [6], 1)
    assert (spared.kind, spared.top_logprobs, spared.flags) == (ALL, 2, 2 | 4)
    assert (plain.flags, stop.verb, stop.flags) == (0, STOP, 0), "flags are of one result"


def test_changes_of_a_named_result(start: Callable[..., Guest]) -> None:
    """A result with a name is changed in place, and can be returned by the last of its changes."""
    mid = start("pre go", "mid named").step().row
    assert (mid.kind, mid.temperature, mid.top_logprobs, mid.flags) == (ALL, 0.5, 2, 1 | 2 | 4)


def test_results_own_or_refer_to_their_data_as_documented(start: Callable[..., Guest]) -> None:
    guest = start("pre go", "mid move", "mid referred")
    guest.take_log()
    mid = guest.step().row
    assert guest.take_log().split("\n")[1] == "1 1 1 1 ", "nothing that is moved in is copied"
    assert mid.kind == DENSE and mid.biases == {**dict.fromkeys(range(9), 0.75), 1: -1.0}


def test_variables(start: Callable[..., Guest]) -> None:
    commands = [
        "get x",
        "put x one",
        "append x two",
        "get x",
        "swap x lost 1",
        "swap x three 2",
        "get x",
        "swap y new 0",
    ]
    guest = start("pre go", *(f"mid {command}" for command in commands), "mid any")
    guest.take_log()
    guest.step()
    assert guest.take_log().split("\n")[1:-1] == [
        "x missing",
        "@1",
        "@2",
        "x=onetwo@2",
        "0",
        "1",
        "x=three@3",
        "1",
    ]


def test_arguments_of_tools(start: Callable[..., Guest]) -> None:
    schema = '{"enum":[1.5,"a]\\"",{"b":[]},null],"title":"x"}'
    calls = f'[{{"schema":null,"name":"now"}},{{"name":"add","description":"+","schema":{schema}}}]'
    guest = start(
        "pre go",
        f'mid put calls {{"value":{calls}}}',
        *(f"mid tool calls {name}" for name in ("add", "now", "other")),
        'mid put calls {"error":{"code":"gone"}}',
        "mid tool calls add",
        'mid put calls {"value":[]}',
        "mid tool calls add",
        "mid any",
    )
    guest.take_log()
    guest.step()
    found = [line for line in guest.take_log().split("\n")[1:-1] if line[0] != "@"]
    assert found == [schema, *["nothing"] * 4]
    with pytest.raises(ControllerFailed, match="the list of calls is not JSON: a value expected at byte 20"):
        start("pre go", 'mid put calls {"value":[{"schema":', "mid tool calls add").step()


def test_host_functions(start: Callable[..., Guest]) -> None:
    guest = start(
        "pre go", "mid tokenize abba", "mid can 1", "mid can 99", "mid vocabulary", "mid log", "mid end"
    )
    guest.take_log()
    assert guest.step().row.verb == STOP
    assert guest.take_log().split("\n")[1:-1] == [
        "tokenized=3 1 0 ",
        "1",
        "0",
        "eos=6 5 6 4 -1 -1 [a][b][][ab][<s> special][</s> special eos][<end> special eos][][]",
        "logged",
    ]


def test_text_of_tokens(start: Callable[..., Guest]) -> None:
    guest = start("pre go", "mid text 3 0 4 2 1 6 8 3", "mid text", "mid any")
    guest.take_log()
    guest.step()
    assert guest.take_log().split("\n")[1:-1] == ["text=ababab", "text="], "special tokens have no text"


@pytest.mark.parametrize(
    ("text", "lines"),
    [("a", "[a]"), ("a/", "[a]"), ("a/b", "[a][b]"), ("/", "[]"), ("a//b//", "[a][][b][]"), ("/a", "[][a]")],
)
def test_lines(start: Callable[..., Guest], text: str, lines: str) -> None:
    guest = start("pre go", f"mid lines {text}", "mid any")
    guest.take_log()
    guest.step()
    assert guest.take_log().split("\n")[1] == lines


def test_failures(start: Callable[..., Guest]) -> None:
    with pytest.raises(ControllerFailed, match="because"):
        start("pre go", "mid fail because").step()
    with pytest.raises(AiciError, match="memory limit"):
        start("pre go", "mid exhaust").step()


def test_only_named_callbacks_are_exported(program: Callable[[str], Program]) -> None:
    assert all(program("script").has[e] for e in (Export.INIT_PROMPT, Export.PRE, Export.POST))
    assert not any(program("uppercase").has[e] for e in (Export.INIT_PROMPT, Export.PRE, Export.POST))


@pytest.mark.parametrize("named", ["", ", pre_process", ", post_process, pre_process"])
def test_callbacks_must_be_named(tmp_path: Path, named: str) -> None:
    source = tmp_path / "forgetful.cpp"
    source.write_text(
        f"""#include "aici/sdk.hpp"
class Forgetful : public aici::Controller {{
 public:
  aici::MidResult mid_process(std::span<const aici::SeqId>) {{ return aici::MidResult::sample_any(); }}
  aici::PostResult post_process(std::span<const aici::TokenId>) {{ return aici::PostResult::go_on(); }}
}};
AICI_REGISTER(Forgetful{named});
"""
    )
    with pytest.raises(BuildError, match="must name init_prompt, pre_process and post_process"):
        build_controller(source, tmp_path / "forgetful.wasm")
