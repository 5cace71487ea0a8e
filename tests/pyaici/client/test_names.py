"""Names and arguments of controllers, and the errors after the runtime is closed."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aicirt.contract.abi import Verb
from aicirt.contract.errors import ArgumentError, ClosedError, ModuleError, UnknownControllerError
from aicirt.contract.messages import StepInput
from pyaici.bundled import PYTHON, bundled_controllers
from pyaici.client.runtime import Runtime
from pyaici.scripting.script import Script
from tests.simulation import World

from .conftest import VOCABULARY


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with Runtime(store=tmp_path_factory.mktemp("names") / "store", workers=1) as runtime:
        runtime.register(VOCABULARY)
        yield runtime


def identity(name: str) -> str:
    return hashlib.sha256(bundled_controllers()[name].read_bytes()).hexdigest()


def test_a_bundled_controller_is_uploaded_when_it_is_first_needed(runtime: Runtime) -> None:
    assert runtime.list() == [] == list(runtime.bundled), "this test must be the first one of the file"
    seq = runtime.instantiate("regex", "[0-9]+")
    assert runtime.begin_step([StepInput(seq)]).wait().mid[seq].verb == Verb.SAMPLE
    (module,) = runtime.list()
    assert module.id == identity("regex") and runtime.bundled == {"regex": module.id}
    assert runtime.describe("regex").id == runtime.find("regex") == module.id
    runtime.prepare("yesno")
    assert len(runtime.list()) == 2


def test_find_returns_the_id_for_every_kind_of_name(runtime: Runtime, guest_wasm: Path) -> None:
    guest = runtime.upload(guest_wasm).id
    runtime.tag(guest, "mine")
    for name in ("mine", guest, guest[:12]):
        assert runtime.find(name) == guest
    runtime.tag("regex", "digits")
    assert runtime.find("digits") == identity("regex")
    script = Script("greet", PYTHON, "async def main():\n    pass\n")
    stored = runtime.upload_script(script.stored(runtime.find("pyctrl"))).id
    runtime.tag(stored, "greeting")
    assert runtime.find("greeting") == runtime.find(stored) == stored


@pytest.mark.parametrize("call", ["find", "prepare", "place", "instantiate", "describe"])
def test_an_unknown_name_is_an_error_that_lists_the_bundled_controllers(runtime: Runtime, call: str) -> None:
    with pytest.raises(
        UnknownControllerError, match=r"no controller is called 'rejex'.*bundled: .*regex.*--tag"
    ):
        getattr(runtime, call)("rejex")
    with pytest.raises(UnknownControllerError, match="a whole id has 64 digits"):
        getattr(runtime, call)("0123456789ab")
    file = str(bundled_controllers()["regex"])
    with pytest.raises(UnknownControllerError, match="no controller is called"):
        getattr(runtime, call)(file)  # names may come from clients, which must not read files


def test_a_removed_bundled_controller_is_uploaded_again(runtime: Runtime) -> None:
    module = runtime.find("yesno")
    for name in ("yesno", module):
        assert runtime.remove(module)
        assert module not in [known.id for known in runtime.list()]
        runtime.free([runtime.instantiate(name)])
        assert module in [known.id for known in runtime.list()]


def test_names_of_bundled_controllers_cannot_be_tags(runtime: Runtime, guest_wasm: Path) -> None:
    guest = runtime.upload(guest_wasm).id
    with pytest.raises(ModuleError, match=r"'regex' cannot be a tag: .* bundled controller.* another tag"):
        runtime.tag(guest, "regex")
    assert "regex" not in runtime.describe(guest).tags


@pytest.mark.parametrize("arg", [{"type": "integer"}, {"enum": ["é", None, 1.5]}, {"anyOf": [{"const": 1}]}])
def test_a_dict_is_passed_as_json(runtime: Runtime, arg: dict[str, Any]) -> None:
    runtime.prepare("json_schema", arg)
    seq = runtime.instantiate("json_schema", arg)
    assert runtime.begin_step([StepInput(seq)]).wait().mid[seq].verb in (Verb.SAMPLE, Verb.SPLICE)


def test_a_list_is_passed_as_json(runtime: Runtime) -> None:
    seq = runtime.instantiate("choice", ["only"])
    answer = runtime.begin_step([StepInput(seq)]).wait().mid[seq]
    assert answer.verb == Verb.SPLICE
    assert b"".join(VOCABULARY.tokens[token] for token in answer.ff_tokens) == b"only"


@pytest.mark.parametrize(
    ("arg", "words"),
    [
        (5, "must be a text, bytes, or a dict or list for JSON, not int"),
        (None, "not NoneType"),
        ({"x": {1, 2}}, "cannot be written as JSON"),
        ([float("nan")], "cannot be written as JSON"),
        (["\ud800"], "UTF-8"),
    ],
)
def test_arguments_without_json_are_refused(runtime: Runtime, arg: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        runtime.instantiate("json_schema", arg)


CALLS: list[Callable[[Runtime, int], object]] = [
    lambda runtime, _: runtime.register(VOCABULARY),
    lambda runtime, _: runtime.upload(b""),
    lambda runtime, _: runtime.find("regex"),
    lambda runtime, _: runtime.find("mine"),
    lambda runtime, _: runtime.tag("mine", "other"),
    lambda runtime, _: runtime.untag("other"),
    lambda runtime, _: runtime.remove("mine"),
    lambda runtime, _: runtime.list(),
    lambda runtime, _: runtime.list_page(),
    lambda runtime, _: runtime.health(),
    lambda runtime, _: runtime.prepare("yesno"),
    lambda runtime, _: runtime.place("yesno"),
    lambda runtime, _: runtime.instantiate("yesno"),
    lambda runtime, seq: runtime.clone(seq),
    lambda runtime, seq: runtime.clone_each([seq]),
    lambda runtime, seq: runtime.wants_logprobs(seq),
    lambda runtime, seq: runtime.is_repeatable(seq),
    lambda runtime, seq: runtime.begin_step([StepInput(seq)]),
    lambda runtime, _: runtime.begin_step([]),
]


@pytest.mark.parametrize("registered", [True, False])
def test_every_call_after_close_says_that_the_runtime_is_closed(world: World, registered: bool) -> None:
    with Runtime(workers=1) as runtime:
        seq = 1
        if registered:
            runtime.register(VOCABULARY)
            seq = runtime.instantiate("yesno")
    for call in CALLS:
        with pytest.raises(ClosedError, match="the runtime has been closed"):
            call(runtime, seq)
    runtime.free([seq])
    runtime.close()
    assert not runtime.is_connected() and not runtime.is_live(seq)


def test_a_call_that_close_interrupts_says_that_the_runtime_is_closed(guest_wasm: Path) -> None:
    runtime = Runtime(workers=1)
    runtime.register(VOCABULARY)
    module = runtime.upload(guest_wasm).id
    errors: list[Exception] = []
    begun = threading.Event()

    def prepare() -> None:
        try:
            for number in range(10_000):
                runtime.prepare(module, f"ok {number}")
                begun.set()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=prepare)
    thread.start()
    begun.wait()
    runtime.close()
    thread.join()
    assert len(errors) == 1 and isinstance(errors[0], ClosedError), errors
