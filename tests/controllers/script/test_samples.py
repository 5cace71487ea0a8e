"""The sample scripts: each keeps its structural promise, whatever the model writes.

A simulated model writes, which takes a tenth of the time; or the default one, where its chat template, its
probabilities or the length of its tokens matter, and for all samples with `test.sh --thorough`. A sample
begins with one line that says what it is, and names a prompt, and an argument where it has one.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pyaici import LlamaEngine, LlamaModel, load_library
from pyaici.client.runtime import Runtime
from pyaici.engines.engine import FinishReason, Request, Sampling
from pyaici.models import default_gguf_path
from pyaici.testing import Playground
from pyaici.testing.playground import PATIENT
from tests.thorough import thorough

CONTROLLERS = Path(__file__).resolve().parents[3] / "controllers"
LANGUAGES = {".py": "pyctrl", ".js": "jsctrl"}
SAMPLES = sorted(path for name in LANGUAGES.values() for path in (CONTROLLERS / name / "samples").iterdir())
#: " * " begins lines of comments in JavaScript
_FIELD = r"^(?: \* )?{}: (.+)$"


@dataclass(frozen=True)
class Sample:
    """A sample script, with the prompt and the argument that it proposes."""

    path: Path
    source: str
    prompt: str
    arg: Any

    @classmethod
    def read(cls, path: Path) -> Sample:
        source = path.read_text()
        prompt = re.search(_FIELD.format("Prompt"), source, re.MULTILINE)
        assert prompt, f"{path.name} proposes no prompt"
        found = re.search(_FIELD.format("Argument"), source, re.MULTILINE)
        arg = found and found[1]
        return cls(path, source, prompt[1], json.loads(arg) if arg and arg[0] in "[{" else arg)

    @property
    def argument(self) -> str:
        return json.dumps({"script": self.source, "name": self.path.name, "arg": self.arg})


@dataclass(frozen=True)
class Played:
    """The results of a sample: the text of the first sequence, and the texts of all forks."""

    sample: Sample
    text: str
    variables: dict[str, str]
    texts: list[str]
    log: str = ""


@pytest.fixture(scope="module")
def engine() -> Iterator[LlamaEngine]:
    with (
        LlamaModel(load_library(), default_gguf_path()) as model,
        Runtime(workers=1, limits=PATIENT) as runtime,
    ):
        with LlamaEngine(model, runtime) as engine:
            yield engine


@pytest.fixture(scope="module")
def playground() -> Iterator[Playground]:
    with Playground() as playground:
        yield playground


PASSAGES = {
    "bridge": "The bridge over the river was built by the town, and opened on 3 May 1931.",
    "tower": "The tower has 120 steps.",
}


def calculate(operation: str, a: int, b: int) -> int:
    return a + b if operation == "add" else a * b


def search(query: str) -> str:
    """Looks for the words in a database, and returns the passage with most of them."""
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.execute("create table passages (name, text)")
        database.executemany("insert into passages values (?, ?)", PASSAGES.items())
        found = [
            text
            for word in query.split()
            for (text,) in database.execute("select text from passages where text like ?", [f"%{word}%"])
        ]
    return max(found, key=found.count, default=PASSAGES["bridge"])


def check(name: str) -> dict[str, Any]:
    accepted = len(name) % 2 == 0
    return {"accepted": accepted, "reason": "" if accepted else "its number of characters is odd"}


#: what the samples call
TOOLS: dict[str, Callable[..., Any]] = {"calculate": calculate, "search": search, "check": check}

#: what a sample that is a conversation receives
MESSAGES = ("remember My name is Zoe.", "What is my name?", "remember I like tea.", "What do I like?", None)


def play(engine: LlamaEngine, sample: Sample) -> Played:
    endless = sample.path.stem == "no_e"  # a mask alone does not end the text
    request = Request(
        [{"role": "user", "content": sample.prompt}],
        controller=LANGUAGES[sample.path.suffix],
        arg=sample.argument,
        sampling=Sampling(seed=1),
        max_tokens=25 if endless else 250 if sample.path.stem in ("react", "skeleton") else 100,
        calls=TOOLS if re.search(r"\bcall\(", sample.source) else "",
        name="sample" if "receive(" in sample.source else "",
    )
    number = engine.add(request)
    for message in MESSAGES if request.name and engine.runtime is not None else ():
        engine.runtime.answerer.send(request.name, message)
    engine.run()
    results = engine.results(number)
    for result in results:
        assert result.error is None, result.error
        assert endless or result.finish_reason is FinishReason.STOP, result.text
    variables = {name: value.decode() for name, value in results[0].variables.items()}
    return Played(sample, results[0].text, variables, [result.text for result in results], results[0].log)


# -- what each promises ----------------------------------------------------------------------------------


def five_items(played: Played) -> None:
    lines = played.text.splitlines()
    assert [re.fullmatch(r"(\d)\. [A-Z][a-z]+( [a-z]*)?", line)[1] for line in lines] == list("12345")  # type: ignore[index]
    assert played.variables["items"].split(", ") == [line[3:] for line in lines]


def yes_no(played: Played) -> None:
    start = {"Yes": "Yes, because ", "No": "No: "}[played.variables["answer"]]
    assert played.text.startswith(start) and "\n" not in played.text


def record(played: Played) -> None:
    found = json.loads(played.text)
    assert list(found) == ["name", "born", "century"]
    assert 1700 <= found["born"] < 1900 and found["century"] == (found["born"] - 1) // 100 + 1
    assert json.loads(played.variables["record"]) == found


def chain(played: Played) -> None:
    choice = played.variables["choice"]
    assert re.fullmatch("[a-z]{3,12}", choice)
    assert played.text.startswith(f"The {choice} is ") and "Animal 1" not in played.text


def best_of(played: Played) -> None:
    assert len(played.texts) == 4 and len(set(played.texts)) > 1
    assert float(played.variables["score"]) < 0
    assert re.fullmatch(r'[A-Z][^\n"]{,60}[.!]?', played.text)


def vote(played: Played) -> None:
    votes = [played.variables[f"vote{number}"] for number in range(5)]
    found = re.fullmatch(r"(\d{1,3}) \((\d) of 5 say so\)", played.text)
    assert found
    most = max(votes.count(vote) for vote in votes)
    assert votes.count(f" {found[1]}") == int(found[2]) == most


def is_right_sum(text: str) -> bool:
    found = re.fullmatch(r"([12]\d) \+ ([12]\d) = (\d\d)", text)
    assert found, text
    return int(found[1]) + int(found[2]) == int(found[3])


def retry(played: Played) -> None:
    rejected = re.findall(r"^wrong: (.*)$", played.log, re.MULTILINE)
    assert not any(is_right_sum(line) for line in rejected)
    if len(rejected) == 8:
        assert played.text == "I found none." and "attempts" not in played.variables
    else:
        assert is_right_sum(played.text) and played.variables["attempts"] == str(len(rejected) + 1)


def banned(played: Played) -> None:
    assert len(played.text) > 60
    for word in played.sample.arg:
        assert f" {word}" not in played.text


def translate(played: Played) -> None:
    lines = played.text.splitlines()
    assert lines[::2] == [f"English: {line}" for line in played.sample.arg]
    assert len(lines) == 6 and all(re.match(r"French: \S", line) for line in lines[1::2])
    assert played.variables["translation"].split("\n") == [line[8:].strip() for line in lines[1::2]]


def sql(played: Played) -> None:
    query = played.variables["query"]
    assert played.text == f"```sql\n{query}\n```"
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE songs(title, artist, year)")
    database.execute(query)
    database.close()


def tool_call(played: Played) -> None:
    call = json.loads(played.variables["call"])
    a, b = call["arguments"]["a"], call["arguments"]["b"]
    result = {"add": a + b, "multiply": a * b}[call["tool"]]
    assert call["result"] == result and f"\nResult: {result}\nSo the answer is {result}" in played.text
    assert f"Tool: {call['tool']}\n" in played.text


def chat(played: Played) -> None:
    answer, river = played.variables["answers"].rsplit("\n", 1)
    assert played.text == f"{answer}\nuser\n{played.sample.arg}\nassistant\n{river}"


def quote(played: Played) -> None:
    found = re.fullmatch('The document says: "([^"]+)"', played.text)
    assert found and found[1] in played.sample.arg


def prefix(played: Played) -> None:
    assert played.text.startswith(played.sample.arg) and len(played.text) > len(played.sample.arg)
    assert played.text.count(".") <= 1


def beam(played: Played) -> None:
    assert played.text == played.variables["best"]
    scores = {name[4:]: float(value) for name, value in played.variables.items() if name.startswith("beam")}
    last = [name for name in scores if len(name) == 8]
    assert 2 <= len(last) <= 6  # three beams, two children each; scores fall as texts grow
    assert all(scores[name] <= scores[name[:-1]] + 1e-6 for name in scores if len(name) > 1)


def couplet(played: Played) -> None:
    first, second = played.text.splitlines()
    rhymes = {"cat": "hat mat bat", "dog": "log frog fog", "mouse": "house blouse"}
    animal = re.fullmatch(r"There was a little (cat|dog|mouse),", first)
    assert animal
    *words, last = second.rstrip(".").split(" ")
    assert last in rhymes[animal[1]].split() and last == played.variables["rhyme"]
    assert 2 <= len(words) <= 5 and second.endswith(".")


def no_e(played: Played) -> None:
    assert len(played.text) > 20 and "e" not in played.text.lower()


def sure(played: Played) -> None:
    assert played.text in {"Positive", "Negative", "Neutral"}
    assert 1 / 3 <= float(played.variables["share"]) <= 1


def react(played: Played) -> None:
    found = re.findall(r"Action: (add|multiply) (\d+), (\d+)\nObservation: (\d+)", played.text)
    assert len(found) == int(played.variables["steps"])
    for operation, a, b, result in found:
        assert calculate(operation, int(a), int(b)) == int(result)
    assert played.text.endswith(f"Answer: {played.variables['answer']}")


def look_up(played: Played) -> None:
    passage, quotation = played.variables["passage"], played.variables["quotation"]
    assert passage in PASSAGES.values() and quotation in passage
    assert played.text.endswith(f'"{quotation}"')


def validate(played: Played) -> None:
    if "name" not in played.variables:
        assert played.text == "There is no such name."
        return
    name = played.variables["name"]
    assert check(name)["accepted"] and played.text == f"User name: {name}"


def skeleton(played: Played) -> None:
    points = played.variables["points"].split("; ")
    lines = [line for line in played.text.splitlines() if line]
    assert [line[3:].strip() for line in lines[:3]] == points
    assert [re.fullmatch(r"(\d)\. [^\n.]+\.", line)[1] for line in lines[3:]] == list("123")  # type: ignore[index]


#: of the samples that do without tools of an MCP server; test_workflows.py has the others
def conversation(played: Played) -> None:
    assert "My name is Zoe.\nWhat is my name?" in played.text
    assert "My name is Zoe.\nI like tea.\nWhat do I like?" in played.text
    assert played.variables["facts"] == "My name is Zoe.\nI like tea."
    assert played.text.endswith(played.variables["answer"])


PROMISES: dict[str, Callable[[Played], None]] = {
    check.__name__: check
    for check in (
        *(five_items, yes_no, record, chain, best_of, vote, retry, banned, translate, sql, tool_call, quote),
        *(prefix, beam, couplet, no_e, sure, chat, react, look_up, validate, skeleton, conversation),
    )
}


#: those that need the tokens, the probabilities or the chat template of a model
OF_MODELS = ("banned", "chain", "chat", "conversation", "sql", "sure")
#: what the simulated model writes as far as a script lets it
WISH = 'The cat is a small animal. It likes 25 apples, and 12 pears; so it says Yes: "no". ' * 3
WISHES = {"couplet": " cat,\nIt had a big old hat.\n"}


def tried(promises: Iterable[str], of_models: Sequence[str]) -> list[Path]:
    """Returns the samples that run with the default model: all, or a few, in their first language."""
    names = promises if thorough() else of_models
    chosen = [[path for path in SAMPLES if path.stem == name] for name in names]
    return [path for paths in chosen for path in (paths if thorough() else paths[:1])]


def simulated(promises: Iterable[str], of_models: Sequence[str]) -> list[Path]:
    """Returns the samples that run with the simulated model, in both languages."""
    return [path for path in SAMPLES if path.stem in promises and path.stem not in of_models]


def pretend(playground: Playground, path: Path, calls: dict[str, Callable[..., Any]]) -> Played:
    """Runs a sample with the simulated model."""
    sample = Sample.read(path)
    wish = WISHES.get(path.stem, WISH)
    found = playground.play(path, wish, arg=sample.arg, prompt=sample.prompt, calls=calls, max_tokens=600)
    assert found.error is None and (found.finish_reason == "stop" or path.stem == "no_e"), found.error
    variables = {name: value.decode() for name, value in found.variables.items()}
    return Played(
        sample, found.text, variables, [found.text, *(fork.text for fork in found.forks)], found.log
    )


@pytest.mark.slow
@pytest.mark.parametrize("path", tried(PROMISES, OF_MODELS), ids=lambda path: path.name)
def test_a_sample_does_what_it_promises(engine: LlamaEngine, path: Path) -> None:
    PROMISES[path.stem](play(engine, Sample.read(path)))


@pytest.mark.parametrize("path", simulated(PROMISES, OF_MODELS), ids=lambda path: path.name)
def test_a_sample_keeps_its_promise_with_a_simulated_model(playground: Playground, path: Path) -> None:
    PROMISES[path.stem](pretend(playground, path, TOOLS))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_samples_are_short_and_begin_with_a_description(path: Path) -> None:
    sample = Sample.read(path)
    first, *rest = sample.source.splitlines()
    assert re.fullmatch(r'(""|/\*)[*"] ?[A-Z].{10,100}\.', first), first
    assert 10 <= len([line for line in rest if line.strip()]) <= 70
    assert max(len(line) for line in sample.source.splitlines()) <= 110


def test_samples_in_both_languages_suggest_the_same_prompts() -> None:
    for path in SAMPLES:
        if path.suffix == ".js":
            other = Sample.read(CONTROLLERS / "pyctrl" / "samples" / f"{path.stem}.py")
            sample = Sample.read(path)
            assert (sample.prompt, sample.arg) == (other.prompt, other.arg)
            assert sample.source.splitlines()[0].strip("/* ") == other.source.splitlines()[0].strip('"')


def test_a_broken_promise_is_detected() -> None:
    sample = Sample(Path("x.py"), "", "", ["sun"])
    for promise, text, variables in (
        (five_items, "1. Apple\n2. Pear\n", {"items": "Apple, Pear"}),
        (retry, "10 + 11 = 22", {"attempts": "1"}),
        (retry, "10 + 11 = 21", {"attempts": "2"}),
        (retry, "I found none.", {}),
        (banned, "a long text about the sun " * 9, {}),
        (record, '{"name": "A", "born": 1850, "century": 18}', {"record": "{}"}),
    ):
        with pytest.raises(AssertionError):
            promise(Played(sample, text, variables, [text]))


def test_quotes_end_within_the_document(playground: Playground) -> None:
    """A pretended model that would rather write something else quotes, too."""
    sample = Sample.read(CONTROLLERS / "pyctrl" / "samples" / "quote.py")
    wish = 'The document says: "It opened in 1999 by Bob'
    text = playground.play("pyctrl", wish, arg=sample.argument, max_tokens=200).text
    found = re.fullmatch('The document says: "([^"]*)"', text)
    assert found and found[1] in sample.arg


@pytest.mark.parametrize("name", ["pyctrl/samples/retry.py", "jsctrl/samples/retry.js"])
def test_retry_accepts_a_late_right_sum_and_gives_up_after_eight_wrong_ones(
    name: str, playground: Playground
) -> None:
    """The simulated model leaves the last digit open. The seed selects it, and most digits are wrong."""
    sample = Sample.read(CONTROLLERS / name)
    ends = set()
    for seed in range(1, 7):
        played = playground.play(sample.path, "12 + 13 = 2", seed=seed)
        variables = {key: value.decode() for key, value in played.variables.items()}
        retry(Played(sample, played.text, variables, [played.text], played.log))
        ends.add((played.text, "<-" in played.history))
    assert ends >= {("12 + 13 = 25", True), ("I found none.", True)}
