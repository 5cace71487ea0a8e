"""Scripts in Python and JavaScript in requests to vLLM."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

import pytest

from pyaici import VllmEngine
from pyaici.client.runtime import Runtime
from pyaici.engines.engine import GenerationResult, Request
from pyaici.scripting.script import read_request
from tests.pyaici.engines.vllm.requests import FRANCE, YEAR, generate, parameters, texts

pytestmark = [pytest.mark.slow, pytest.mark.any_worker]

PYTHON = """
from aici import arg, backtrack, force, gen, generate, label, regex

WHEN = regex(" [12][0-9]{3}")

async def main():
    await force(arg["begin"])
    year = await gen(WHEN)
    place = label()
    for attempt in range(2):
        await gen(regex=" [a-z]{3,6}", max_tokens=4)
        print("removed:", place.text)
        await backtrack(place)
    await force(":")
    said = await generate(stop="e", max_tokens=40)
    await force(f"|{said.finish_reason}|{year}")
"""
JAVASCRIPT = """
import { arg, backtrack, force, gen, generate, label, regex } from "aici";

const WHEN = regex(/ [12][0-9]{3}/);

export async function main() {
  force(arg.begin);
  const year = await gen(WHEN);
  const place = label();
  for (let attempt = 0; attempt < 2; attempt++) {
    await gen({ regex: / [a-z]{3,6}/, maxTokens: 4 });
    console.log("removed:", place.text);
    backtrack(place);
  }
  force(":");
  const said = await generate({ stop: "e", maxTokens: 40 });
  force(`|${said.finishReason}|${year}`);
}
"""
LANGUAGES = {"python": PYTHON, "javascript": JAVASCRIPT}

ENDS = {
    "python": """
from aici import force, generate
async def main():
    said = await generate(max_tokens=10)
    await force(f" {said.finish_reason}, {len(said.text)}")
""",
    "javascript": """
import { force, generate } from "aici";
export async function main() {
  const said = await generate({ maxTokens: 10 });
  force(` ${said.finishReason}, ${said.text.length}`);
}
""",
}
FORKS = {
    "python": """
from aici import force, fork, gen
async def main():
    mine = await fork(2)
    await force(f" {mine}:")
    await gen(regex=" [a-z]{3,6}", max_tokens=4)
    await force(".")
""",
    "javascript": """
import { force, fork, gen } from "aici";
export async function main() {
  const mine = await fork(2);
  force(` ${mine}:`);
  await gen({ regex: / [a-z]{3,6}/, maxTokens: 4 });
  force(".");
}
""",
}
TURNS = {
    "python": """
from aici import gen, user
async def main():
    await gen(max_tokens=8)
    await user(" And then?")
    await gen(max_tokens=8)
""",
    "javascript": """
import { gen, user } from "aici";
export async function main() {
  await gen({ maxTokens: 8 });
  user(" And then?");
  await gen({ maxTokens: 8 });
}
""",
}
LOOKS = """
import json
from aici import likely, sample
async def main():
    for i in range(4):
        print(json.dumps(await likely(3) + (await likely(1) if i % 2 else [])))
        await sample(temperature=0)
"""
PREDICTION = {
    "python": """
from aici import arg, capability, gen
async def main():
    await gen(max_tokens=16, prediction=arg)
    print(capability("drafts"))
""",
    "javascript": """
import { arg, capability, gen } from "aici";
export async function main() {
  await gen({ maxTokens: 16, prediction: arg });
  console.log(capability("drafts"));
}
""",
}
FAULTS = {
    "python": (
        """
from aici import gen
def share(total, people):
    return total // people
async def main():
    await gen(regex=" [a-z]{3,6}", max_tokens=4)
    share(1, 0)
""",
        ('File "script.py", line 7, in main', 'File "script.py", line 4, in share', "ZeroDivisionError"),
    ),
    "javascript": (
        """
import { gen } from "aici";
const share = (total) => total.nothing.at(0);
export async function main() {
  await gen({ regex: / [a-z]{3,6}/, maxTokens: 4 });
  share({});
}
""",
        ("TypeError", "share (script.js:3:", "main (script.js:6:"),
    ),
}


def script(language: str, source: str, arg: Any = None, *, text: bool = False, **more: Any) -> Any:
    """Returns parameters with a script. `text`: the script is encoded as JSON, as over HTTP."""
    value: Any = {"language": language, "source": source, "arg": arg}
    options = {key: more.pop(key) for key in list(more) if not key.startswith("aici_")}
    extra = {"aici_script": json.dumps(value) if text else value, **more}
    return parameters(**{"max_tokens": 80, **options, "extra_args": extra})


@pytest.fixture(scope="session")
def expected(hf: Any, runtime: Runtime) -> GenerationResult:
    """The result of the Python script on Transformers."""
    from pyaici.bundled import LANGUAGES
    from pyaici.scripting.script import interpreter_file

    controller, arg = read_request({"language": "python", "source": PYTHON, "arg": {"begin": " Born in"}})
    language = next(one for one in LANGUAGES if one.controller == controller)
    module = runtime.upload(interpreter_file(language)).id
    result: GenerationResult
    (result,) = hf.run([Request(FRANCE, controller=module, arg=arg, max_tokens=80)])
    assert result.error is None
    assert re.fullmatch(r" Born in( [12]\d{3}):[^e]*\|stop\|\1", result.text, re.DOTALL), result.text
    assert result.log.count("removed:  ") == 2
    return result


@pytest.mark.parametrize("text", [False, True], ids=["object", "text"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_same_text_as_on_transformers(
    llm: Any, expected: GenerationResult, language: str, text: bool
) -> None:
    """The scripts use a pattern, rewind to a label, and stop at a string that may lie within a token."""
    free = parameters(max_tokens=12)
    alone = texts(llm, [(FRANCE, free)])
    request = script(language, LANGUAGES[language], {"begin": " Born in"}, text=text, aici_hold=True)
    choice, other = generate(llm, [(FRANCE, request), (FRANCE, free)])
    assert (choice.finish_reason, choice.stop_reason) == ("stop", "controller"), choice
    assert choice.text == expected.text
    assert [other.text] == alone


def test_results_have_the_same_log_as_on_transformers(llm: Any, expected: GenerationResult) -> None:
    """Runs scripts in both languages at once, through `VllmEngine`."""
    requests = []
    for language, source in LANGUAGES.items():
        controller, arg = read_request({"language": language, "source": source, "arg": {"begin": " Born in"}})
        requests.append(Request(FRANCE, controller=controller, arg=arg, max_tokens=80))
    results = VllmEngine(llm, max_sequences=2).run(requests)
    assert len(results) == 2
    for result in results:
        assert (result.text, result.log, result.error) == (expected.text, expected.log, None)
        assert result.backtracked > 0


def test_looks_show_the_same_as_on_transformers(llm: Any, hf: Any) -> None:
    """The text is that without looks, and that of others does not change."""
    controller, arg = read_request({"language": "python", "source": LOOKS})
    mate = Request("Once upon a time", max_tokens=12)
    seen = []
    for engine in (hf, VllmEngine(llm, max_sequences=2)):
        looking, other = engine.run([Request(FRANCE, controller=controller, arg=arg), mate])
        assert looking.error is None, looking.error
        logged = [pair for line in looking.log.splitlines() for pair in json.loads(line)]
        seen.append((looking.new_tokens, other.new_tokens, logged))
    (ours, ours_other, shown), (theirs, theirs_other, measured) = seen
    assert (ours, ours_other) == (theirs, theirs_other)
    (free,) = generate(llm, [(FRANCE, parameters(max_tokens=4))])
    assert list(free.token_ids) == theirs
    assert [token for token, _ in shown] == [token for token, _ in measured]
    assert [value for _, value in shown] == pytest.approx([value for _, value in measured], abs=0.02)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_prediction_changes_nothing(
    llm: Any, language: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a right nor a wrong one changes a token, and no drafts come with the results."""
    drafted: list[Any] = []
    monkeypatch.setattr("pyaici.client.step.DraftedSample", lambda *values, **_: drafted.append(values))
    caplog.set_level(logging.INFO, "vllm.aici")
    right = texts(llm, [(FRANCE, parameters(max_tokens=16))])[0]
    predictions = [(FRANCE, script(language, PREDICTION[language], text)) for text in ("", "one two", right)]
    assert texts(llm, predictions) == [right] * 3 and not drafted
    assert [record.getMessage()[-2:] for record in caplog.records if record.name == "vllm.aici"] == [" 0"] * 3


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_script_goes_on_after_the_models_end_token(llm: Any, language: str) -> None:
    end = llm.get_tokenizer().eos_token_id
    request = script(language, ENDS[language], aici_hold=True, logit_bias={end: 100.0})
    (choice,) = generate(llm, [(FRANCE, request)])
    assert (choice.text, choice.stop_reason) == (" eos, 0", "controller"), choice


@pytest.mark.parametrize("language", LANGUAGES)
def test_chat_grows_by_the_models_template(llm: Any, language: str) -> None:
    tokenizer = llm.get_tokenizer()
    chat = [{"role": "user", "content": "Count to five."}]
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
    request = script(language, TURNS[language], aici_hold=True)
    (choice,) = generate(llm, [({"prompt_token_ids": prompt}, request)])
    assert choice.stop_reason == "controller", choice
    answer, _, _ = tokenizer.decode(choice.token_ids).partition("<|im_end|>")
    chat += [{"role": "assistant", "content": answer}, {"role": "user", "content": " And then?"}]
    whole = tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
    written = [*prompt, *choice.token_ids]
    assert written[: len(whole)] == whole and len(whole) < len(written) <= len(whole) + 9


@pytest.mark.parametrize("language", LANGUAGES)
def test_forks_of_a_script_become_choices(llm: Any, language: str) -> None:
    """Without `aici_fork`, `fork` raises an error in the script."""
    request = script(language, FORKS[language], aici_fork=True, temperature=1.0, top_k=1, n=3)
    (output,) = llm.generate([FRANCE], [request], use_tqdm=False)
    first, second, unused = output.outputs
    for number, choice in enumerate((first, second)):
        assert re.fullmatch(rf" {number}: [a-z]{{3,}}\.", choice.text), choice
        assert (choice.finish_reason, choice.stop_reason) == ("stop", "controller")
    assert (unused.text, unused.stop_reason) == ("", "unused")
    (alone,) = generate(llm, [(FRANCE, script(language, FORKS[language]))])
    assert alone.finish_reason == "error" and alone.text == ""
    assert 'this engine cannot fork: see capability("fork")' in str(alone.stop_reason)


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_error_ends_its_own_request(llm: Any, language: str) -> None:
    """An error at run time comes with its stack trace. A script with a syntax error is refused."""
    source, places = FAULTS[language]
    others = [(FRANCE, parameters("regex", YEAR)), (FRANCE, parameters(max_tokens=30))]
    alone = [texts(llm, [other])[0] for other in others]
    wrong = script(language, source.replace("(regex=", "((regex=").replace("gen({", "gen(({"))
    failed, refused, *fine = generate(llm, [(FRANCE, script(language, source)), (FRANCE, wrong), *others])
    assert [choice.text for choice in fine] == alone
    assert failed.finish_reason == refused.finish_reason == "error"
    assert re.fullmatch(" [a-z]{3,}", failed.text), "the text before the error must be kept"
    for words in places:
        assert words in str(failed.stop_reason), failed.stop_reason
    assert "SyntaxError" in str(refused.stop_reason) and refused.text == ""
    assert re.search(r'script\.py", line 6|script\.js:5:', str(refused.stop_reason)), refused.stop_reason
