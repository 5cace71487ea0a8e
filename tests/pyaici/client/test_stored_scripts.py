"""Uploaded scripts: started by id and by tag, in the real interpreters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aicirt.contract.abi import Verb
from aicirt.contract.errors import ArgumentError, ModuleError, OwnerLimitError, UnknownControllerError
from aicirt.contract.messages import StepInput
from lab.runners.compiled import share
from pyaici.bundled import LANGUAGES, Language
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime
from pyaici.recording.vocabulary import small_vocabulary
from pyaici.scripting.script import Script, interpreter_file
from tests.aicirt.modules.wat import small_module

SOURCES = {
    "Python": "from aici import *\nasync def main():\n    await force(f'<{arg}>')\n",
    "JavaScript": 'import { force, arg } from "aici";\nexport async function main() { force(`<${arg}>`); }\n',
}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    limits = {"owner_upload_bytes": 150_000}
    store = share(tmp_path_factory.mktemp("scripts") / "store")
    with Daemon(workers=1, limits=limits, store=store) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with Runtime(store=share(tmp_path_factory.mktemp("own") / "store"), workers=1) as runtime:
        runtime.register(small_vocabulary())
        yield runtime


def first_text(runtime: Runtime, module: str, arg: str = "") -> str:
    seq = runtime.instantiate(module, arg)
    answer = runtime.begin_step([StepInput(seq)]).wait().mid[seq]
    runtime.free([seq])
    assert answer.verb == Verb.SPLICE
    return b"".join(small_vocabulary().tokens[token] for token in answer.ff_tokens).decode()


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.name)
def test_a_script_is_started_by_id_and_by_tag(runtime: Runtime, language: Language) -> None:
    interpreter = runtime.upload(interpreter_file(language)).id
    script = Script("greet", language, SOURCES[language.name])
    info = runtime.upload_script(script.stored(interpreter))
    assert (info.language, info.script, info.interpreter) == (language.name.lower(), "greet", interpreter)
    assert info.has_pre and info.imports, "these come from its interpreter"
    runtime.tag(info.id, "greeting")
    assert first_text(runtime, info.id, "Ann") == "<Ann>"
    assert first_text(runtime, "greeting", "[7]") in ("<[7]>", "<7>")
    runtime.prepare("greeting", "x")
    assert runtime.describe("greeting").id == info.id
    other = Script("greet", language, SOURCES[language.name].replace("<", "("))
    runtime.tag(runtime.upload_script(other.stored(interpreter)).id, "greeting")
    assert first_text(runtime, "greeting", "Bob") == "(Bob>"
    assert first_text(runtime, info.id, "Bob") == "<Bob>"
    assert runtime.remove(info.id)
    with pytest.raises(UnknownControllerError):
        runtime.instantiate(info.id, "Ann")


def test_a_script_without_its_interpreter_is_refused(runtime: Runtime) -> None:
    language = LANGUAGES[0]
    interpreter = runtime.upload(interpreter_file(language)).id
    script = Script("greet", language, SOURCES[language.name]).stored(interpreter)
    stored = runtime.upload_script(script).id
    assert first_text(runtime, stored, "Ann") == "<Ann>"
    assert runtime.remove(interpreter, force=True)
    with pytest.raises(ModuleError, match="needs its interpreter"):
        runtime.instantiate(stored, "Ann")
    runtime.upload(interpreter_file(language))
    assert first_text(runtime, stored, "Ann") == "<Ann>"


def test_invalid_scripts_are_refused(runtime: Runtime) -> None:
    language = LANGUAGES[0]
    interpreter = runtime.upload(interpreter_file(language)).id
    with pytest.raises(ModuleError, match="is empty"):
        runtime.upload_script(Script("x", language, "").stored(interpreter))
    with pytest.raises(ModuleError, match="needs its interpreter"):
        runtime.upload_script(Script("x", language, "x = 1").stored("ab" * 32))
    wrong = runtime.upload_script(Script("wrong", language, "def f(:\n").stored(interpreter))
    with pytest.raises(ArgumentError, match="SyntaxError"):
        runtime.instantiate(wrong.id)
    right = runtime.upload_script(Script("x", language, SOURCES[language.name]).stored(interpreter))
    with pytest.raises(ArgumentError, match="UTF-8"):
        runtime.instantiate(right.id, b"\xff")


def test_scripts_count_towards_the_upload_quota(daemon: Daemon, tmp_path: Path) -> None:
    module = tmp_path / "small.wasm"
    module.write_bytes(small_module())
    with Runtime(daemon.socket_path, owner="ann") as runtime:
        interpreter = runtime.upload(module).id
        script = Script("long", LANGUAGES[0], "#" * 2000)
        stored = runtime.upload_script(script.stored(interpreter))
        assert stored.owners == ["ann"]
        with pytest.raises(OwnerLimitError, match="has uploaded"):
            runtime.upload_script(Script("other", LANGUAGES[0], "#" * 2000).stored(interpreter))
        assert runtime.upload_script(script.stored(interpreter)) == stored, (
            "a known script must not count again"
        )
