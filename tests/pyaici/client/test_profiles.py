"""Findings of a sequence serve later sequences of its owner, and contain no text of the sequence."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from aicirt.contract.abi import Verb
from aicirt.contract.messages import StepInput
from lab.system.waiting import wait_until
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime
from pyaici.toolchain import build_controller
from tests.simulation import World

from .conftest import GUESTS, VOCABULARY, thoroughly_real
from .test_secrets import forms, memory_files
from .test_warm import running

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def wasm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_controller(GUESTS / "found.c", tmp_path_factory.mktemp("found") / "found.wasm").path


def learned(runtime: Runtime) -> int:
    return int(runtime.health()["templates"]["learned"])


def play(runtime: Runtime, seq: int, entries: list[int]) -> list[str]:
    """Looks up entries in order, and returns what the guest prints, one word each."""
    return "".join(step(runtime, seq, [entry]) for entry in entries).split()


def renewed(runtime: Runtime, entries: list[int], words: list[str], owner: str | None = None) -> None:
    """Waits until new sequences start from the learned template: workers receive it after it is counted."""
    wait_until(lambda: play(runtime, runtime.instantiate("found", "r", owner=owner), entries) == words)


def step(runtime: Runtime, seq: int, tokens: list[int]) -> str:
    """Runs a step of a sequence, and returns what its guest prints."""
    result = runtime.begin_step([StepInput(seq, tokens)]).wait()
    while result.mid[seq].verb == Verb.LATE:  # the machine is busy
        result = runtime.begin_step([StepInput(seq)]).wait()
    return result.logs.get(seq, "")


@thoroughly_real
def test_a_later_sequence_finds_what_an_earlier_one_has_found(world: World | None, wasm: Path) -> None:
    """This holds in all workers that have the template, and for sequences that end themselves."""
    with running(wasm, workers=2) as runtime:
        seqs = [runtime.instantiate("found", "r") for _ in range(2)]
        assert play(runtime, seqs[0], [1, 2, 1]) == ["miss", "miss", "hit"]
        assert play(runtime, seqs[1], [1]) == ["miss"]
        runtime.free(seqs)
        wait_until(lambda: learned(runtime) == 1)
        for _ in range(4):
            renewed(runtime, [1], ["hit"])
        play(runtime, runtime.instantiate("found", "r"), [2, 50, 98])
        renewed(runtime, [1, 50, 98], ["hit"] * 3)
        assert runtime.health()["builder"]["built"] == 1, "nothing was built again"


def test_no_other_owner_and_no_other_argument_gets_it(world: World, wasm: Path) -> None:
    with running(wasm) as runtime:
        seq = runtime.instantiate("found", "r", owner="a")
        others = {"a": "rr", "b": "r"}
        for owner, argument in others.items():
            runtime.prepare("found", argument, owner=owner)
        play(runtime, seq, [1])
        runtime.free([seq])
        wait_until(lambda: learned(runtime) == 1)
        renewed(runtime, [1], ["hit"], owner="a")
        for owner, argument in others.items():
            assert play(runtime, runtime.instantiate("found", argument, owner=owner), [1]) == ["miss"]


def test_failures_affect_no_sequence(world: World, wasm: Path) -> None:
    with running(wasm) as runtime:
        for argument in "ftlhoswr":  # the last one shows that the others have been asked
            seq = runtime.instantiate("found", argument)
            play(runtime, seq, [1])
            runtime.free([seq])
        wait_until(lambda: learned(runtime) == 1)
        renewed(runtime, [1], ["hit"])
        for argument in "ftlhosw":
            assert play(runtime, runtime.instantiate("found", argument), [1]) == ["miss"]
        health = runtime.health()
        assert health["restarts"] == 0
        assert health["warm_failures"] == {"trap": 1}
        assert health["workers"][0]["memory"]["ended"] == 0


def test_a_sequence_that_fails_is_not_asked(world: World, wasm: Path) -> None:
    with running(wasm) as runtime:
        for entries in ([1, 99], [2]):
            seq = runtime.instantiate("found", "r")
            play(runtime, seq, entries)
            runtime.free([seq])
        wait_until(lambda: learned(runtime) == 1)
        renewed(runtime, [2, 1], ["hit", "miss"])


def test_it_is_off_without_a_budget(world: World, wasm: Path) -> None:
    with running(wasm, warm_budget_ms=0) as runtime:
        seq = runtime.instantiate("found", "r")
        play(runtime, seq, [1])
        runtime.free([seq])
        time.sleep(2.5)  # the supervisor asks its workers once a second
        assert play(runtime, runtime.instantiate("found", "r"), [1]) == ["miss"]
        assert learned(runtime) == 0


def test_findings_of_a_pattern_contain_no_text(tmp_path: Path) -> None:
    """The pattern distinguishes the places of the digits, but not the digits.

    The text begins with more bytes than the builder prepares in its short time.
    """
    wasm = build_controller(ROOT / "controllers" / "regex", tmp_path / "regex.wasm").path
    text, pattern = b"a" * 1000 + b"plugh cave xyzzy 4711-0815", "[a-z ]{10,3000} [0-9]{4}-[0-9]{4}"
    with Daemon(workers=1, store=tmp_path / "store", limits={"warm_budget_ms": 1}) as daemon:
        with Runtime(daemon.socket_path) as runtime:
            runtime.register(VOCABULARY)
            seq = runtime.instantiate(runtime.upload(wasm).id, pattern)
            for tokens in ([], *([byte] for byte in text)):
                step(runtime, seq, tokens)
            runtime.free([seq])
            wait_until(lambda: learned(runtime) == 1)
            places = memory_files(daemon.pid)
            assert any(name.startswith("/memfd:aici-snapshot") for name in places)
            for name, data in places.items():
                for part in (b"plugh", b"xyzzy", b"4711", b"0815"):
                    assert not any(form in data for form in forms(part)), name
