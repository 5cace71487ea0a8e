"""Actions that `main` awaits: the same script in both languages has the same effect."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from aicirt.contract.errors import ControllerError, ControllerFailed
from pyaici.client.arguments import ALL
from tests.controllers.script.conftest import Pair, Play, Scripts, check

NUMBER: Pair = (
    """
from aici import *
NUMBER = regex("[0-9]+")
async def main():
    await force("It is ")
    number = int(await gen(NUMBER, max_tokens=4))
    await force(" = " + str(number * 2) + " / 2")
    print("number", number)
""",
    """
import { regex, force, gen } from "aici";
const NUMBER = regex(/[0-9]+/);
export async function main() {
  await force("It is ");
  const number = Number(await gen(NUMBER, { maxTokens: 4 }));
  await force(" = " + number * 2 + " / 2");
  console.log("number", number);
}
""",
)


def test_fixed_text_and_a_pattern(play: Play) -> None:
    transcript = check(play(NUMBER, "It is 42 = 84 / 2"))
    assert (transcript.text, transcript.finish_reason) == ("It is 42 = 84 / 2", "stop")
    assert transcript.log == "number 42\n"
    # the next splice removes the blank with which the model left the pattern
    assert transcript.history == "{It is }42 <- >{ = 84 / 2}"


def test_same_text_without_splices_and_held_ends_until_the_model_ends(play: Play) -> None:
    capabilities = replace(ALL, ff_tokens=False)
    assert check(play(NUMBER, "It is 42", capabilities=capabilities)).text == "It is 42 = 84 / 2"
    capabilities = replace(ALL, hold_end=False)
    transcript = check(play(NUMBER, "It is 42", capabilities=capabilities))
    assert (transcript.text, transcript.finish_reason, transcript.log) == ("It is 42", "eos", "number 42\n")


KINDS: list[tuple[str, str, str, str]] = [
    ('choice=["red", "green"]', '{ choice: ["red", "green"] }', "green", "green"),
    ('regex="[a-c]{3}"', "{ regex: /[A-C]{3}/i }", "abc", "abc"),
    (
        'schema={"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "boolean"}},'
        ' "required": ["b", "a"], "additionalProperties": False}',
        '{ schema: { type: "object", properties: { b: { type: "integer" }, a: { type: "boolean" } },'
        ' required: ["b", "a"], additionalProperties: false } }',
        '{"b": 1, "a": true}',
        '{"b": 1, "a": true}',
    ),
    ("substring='the quick fox'", '{ substring: "the quick fox" }', "quick f", "quick f"),
    ("substring('the quick fox', end='!')", 'substring("the quick fox", "!")', "quick!", "quick!"),
    ("kbnf=\"start ::= 'a' | 'b' 'c';\"", "{ kbnf: \"start ::= 'a' | 'b' 'c';\" }", "bc", "bc"),
    ("kbnf=\"start ::= 'a' 'b'?;\"", "{ kbnf: \"start ::= 'a' 'b'?;\" }", "ab", "a"),
    (
        """kbnf='{"grammar": "start ::= #\\'ab?\\';", "end": "model"}'""",
        """{ kbnf: JSON.stringify({ grammar: "start ::= #'ab?';", end: "model" }) }""",
        "ab",
        "ab",
    ),
    ('lark=\'start: "a" "b"?\'', '{ lark: \'start: "a" "b"?\' }', "ab", "ab"),
    ("gbnf='root ::= \"x\" [0-9]'", "{ gbnf: 'root ::= \"x\" [0-9]' }", "x7", "x7"),
    ('yacc=\'%% s: "a" s | "b" ;\'', '{ yacc: \'%% s: "a" s | "b" ;\' }', "aab", "aab"),
]


@pytest.mark.parametrize(("in_python", "in_javascript", "wish", "text"), KINDS, ids=[k[0] for k in KINDS])
def test_patterns(play: Play, in_python: str, in_javascript: str, wish: str, text: str) -> None:
    pair = (
        f"from aici import *\nasync def main():\n    print(await gen({in_python}))\n    await force('.')",
        f'import {{ gen, force, substring }} from "aici";\n'
        f"export async function main() {{ console.log(await gen({in_javascript})); force('.'); }}",
    )
    transcript = check(play(pair, wish))
    assert transcript.text == text + "."
    assert transcript.log == text + "\n"


TRIP = 'start: "to " city " or " city\ncity[capture]: /[A-Z][a-z]+/'


@pytest.mark.parametrize(
    ("kind", "pattern"), [("lark", TRIP), ("regex", "to (?:(?P<city>[A-Z][a-z]+)(?: or )?){2}")]
)
def test_captures_become_variables(play: Play, kind: str, pattern: str) -> None:
    pair = (
        f"from aici import *\nasync def main():\n    await gen({kind}={pattern!r})\n"
        "    print(get_var('city'))\n"
        "    await force('.')",
        'import { gen, force, getVar } from "aici";\nexport async function main() {\n'
        f"  await gen({{ {kind}: {json.dumps(pattern)} }}); console.log(getVar('city')); force('.'); }}",
    )
    transcript = check(play(pair, "to Oslo or Ely!"))
    assert (transcript.text, transcript.log) == ("to Oslo or Ely.", "Ely\n")
    assert transcript.variables == {"city": b"Ely", "city[0]": b"Oslo", "city[1]": b"Ely"}


def test_named_groups_beside_a_word_boundary_become_no_variables(play: Play) -> None:
    pattern = r"(?P<word>[a-z]+)\b [a-z]+"
    pair = (
        f"from aici import *\nasync def main():\n    await gen(regex={pattern!r})\n    await force('.')",
        'import { gen, force } from "aici";\nexport async function main() {\n'
        f"  await gen({{ regex: {json.dumps(pattern)} }}); force('.'); }}",
    )
    transcript = check(play(pair, "to oslo!"))
    assert transcript.text == "to oslo."
    assert transcript.log.startswith(
        "warning: the named groups become no variables: column 17: with named groups"
    )
    assert not transcript.variables


@pytest.mark.parametrize("how", ["regex=PATTERN", "regex(PATTERN)"])
@pytest.mark.parametrize(
    ("pattern", "wish", "text"),
    [
        ('"[a-c]+", re.I', "aBc1", "aBc"),
        ('"(?i)[a-c]+"', "aBc1", "aBc"),
        ('".x  # text", re.S | re.X', "\nx", "\nx"),
        ('r"\\w+", re.A', "éa", "a"),
        ('"a$\\\\nb", re.M', "a\nb", "a\nb"),
        ('b"[0-9]+"', "12x", "12"),
        ('b"[a-z]+", re.I', "aB1", "aB"),
    ],
)
def test_compiled_patterns_work_as_their_text(
    python: Scripts, how: str, pattern: str, wish: str, text: str
) -> None:
    source = (
        f"import re\nfrom aici import *\nPATTERN = re.compile({pattern})\n"
        f"async def main():\n    await gen({how})\n    await force('.')\n"
    )
    assert check(python.play(source, wish)).text == text + "."


@pytest.mark.parametrize(
    ("in_python", "in_javascript"),
    [("choice='abc'", "{ choice: 'abc' }"), ("choice('abc')", "choice('abc')")],
)
def test_a_text_instead_of_a_list_of_texts_is_refused(play: Play, in_python: str, in_javascript: str) -> None:
    """A text is a sequence of its letters, so the model would choose one of these."""
    pair = (
        "from aici import *\nasync def main():\n    try:\n"
        f"        await gen({in_python})\n    except TypeError as error:\n        print(error)\n",
        'import { choice, gen } from "aici";\nexport async function main() {\n'
        f"  try {{ await gen({in_javascript}); }}\n"
        "  catch (error) { console.log(error.message); }\n}\n",
    )
    assert "choice takes a list of texts, not one text: write " in check(play(pair, "a")).log


def test_a_pattern_of_another_type_is_refused(python: Scripts) -> None:
    with pytest.raises(ControllerError, match="regex takes a text or a compiled pattern, not int"):
        python.play("from aici import *\nregex(5)\nasync def main():\n    pass\n")


STOPS: Pair = (
    """
from aici import *
async def main():
    for i in range(arg["times"]):
        out = await generate(stop=arg["stop"], include_stop=arg["include"], max_tokens=30)
        print(out.finish_reason, repr(out.text), out.text == detokenize(out.tokens).decode())
        await force("|")
""",
    """
import { arg, generate, force, detokenize } from "aici";
export async function main() {
  for (let i = 0; i < arg.times; i++) {
    const out = await generate({ stop: arg.stop, includeStop: arg.include, maxTokens: 30 });
    console.log(out.finishReason, `'${out.text}'`, out.text === detokenize(out.tokens) ? "True" : "False");
    force("|");
  }
}
""",
)


@pytest.mark.parametrize("stop", ["e ", ["e ", "zzz"], ["brown", "e "]])
def test_stop_strings_end_a_text_within_a_token(play: Play, stop: object) -> None:
    wish = "see the quick brown fox"
    transcript = check(play(STOPS, wish, arg={"stop": stop, "include": False, "times": 1}))
    assert transcript.log == "stop 'se' True\n"
    assert transcript.text == "se|"
    transcript = check(play(STOPS, wish, arg={"stop": stop, "include": True, "times": 1}))
    assert (transcript.log, transcript.text) == ("stop 'see ' True\n", "see |")


def test_without_a_stop_string_the_model_ends_the_text(play: Play) -> None:
    transcript = check(play(STOPS, "abc", arg={"stop": "xyz", "include": False, "times": 1}))
    assert (transcript.log, transcript.text) == ("eos 'abc' True\n", "abc|")


LIMITS: Pair = (
    """
from aici import *
async def main():
    for limits in arg:
        here = label()
        out = await generate(max_tokens=limits[0], max_bytes=limits[1])
        print(out.finish_reason, out.text, len(out.tokens) == len(here.tokens))
        backtrack(here)
""",
    """
import { arg, backtrack, generate, label } from "aici";
export async function main() {
  for (const [maxTokens, maxBytes] of arg) {
    const here = label();
    const out = await generate({ maxTokens, maxBytes });
    console.log(out.finishReason, out.text, out.tokens.length === here.tokens.length ? "True" : "False");
    backtrack(here);
  }
}
""",
)


def test_limits_of_tokens_and_bytes(play: Play) -> None:
    limits = [[2, None], [None, 1], [None, 5], [0, None], [None, 0], [None, 4]]
    transcript = check(play(LIMITS, "xxäöü...", arg=limits))
    assert transcript.log.splitlines() == [
        "max_tokens xx True",
        "max_bytes x True",
        "max_bytes xxä True",  # 4 bytes: the next character would be cut
        "max_tokens  True",
        "max_bytes  True",
        "max_bytes xxä True",
    ]
    assert transcript.text == ""


SCORES: Pair = (
    """
from aici import *
async def main():
    out = await generate(regex="[a-z ]+", max_tokens=4, top_logprobs=3)
    for token in out.details:
        print(token.token, token.logprob, token.allowed_mass, [t[0] for t in token.top_logprobs])
    print(out.logprob)
    one = await sample(TokenSet(tokenize("7")), top_logprobs=2)
    print(token_bytes(one.token) == b"7", one.logprob < -1, len(one.top_logprobs))
""",
    """
import { generate, sample, TokenSet, tokenize, tokenBytes } from "aici";
export async function main() {
  const out = await generate({ regex: "[a-z ]+", maxTokens: 4, topLogprobs: 3 });
  for (const { token, logprob, allowedMass, topLogprobs } of out.details)
    console.log(token, logprob, allowedMass, `[${topLogprobs.map((t) => t.token).join(", ")}]`);
  console.log(out.logprob);
  const one = await sample(new TokenSet(tokenize("7")), { topLogprobs: 2 });
  const isSeven = tokenBytes(one.token)[0] === 55;
  console.log(isSeven ? "True" : "False", one.logprob < -1 ? "True" : "False", one.topLogprobs.length);
}
""",
)


def test_log_probabilities_and_most_likely_tokens(play: Play) -> None:
    transcript = check(play(SCORES, "the end"))
    *lines, total, one = transcript.log.splitlines()
    assert one == "True True 2"
    assert len(lines) == 2
    logprobs = []
    for line, token in zip(lines, transcript.tokens, strict=False):
        number, logprob, mass, best = line.split(" ", 3)
        assert int(number) == token
        assert -1 < float(logprob) <= 0 < float(mass) <= 1.0001
        top = [int(word) for word in best.strip("[]").split(", ")]
        assert len(top) == 3 and top[0] == token
        logprobs.append(float(logprob))
    assert math.isclose(sum(logprobs), float(total), rel_tol=1e-4)


LABELS: Pair = (
    """
from aici import *
async def main():
    await force("Once ")
    start = label()
    words = await gen(stop=" ")
    inner = label()
    await force("!", after=start)
    place = len(prompt_tokens()) + len(tokenize("Once "))
    print(repr(words), repr(start.text), len(start.tokens), start.position == place)
    try:
        inner.text
    except Error as error:
        print(error)
    rest = await gen(max_tokens=1)
    print(repr(text()), repr(prompt()))
""",
    """
import { force, label, gen, promptTokens, tokenize, text, prompt } from "aici";
export async function main() {
  force("Once ");
  const start = label();
  const words = await gen({ stop: " " });
  const inner = label();
  force("!", { after: start });
  const there = start.position === promptTokens().length + tokenize("Once ").length ? "True" : "False";
  console.log(`'${words}' '${start.text}'`, start.tokens.length, there);
  try {
    inner.text;
  } catch (error) {
    console.log(error.message);
  }
  await gen({ maxTokens: 1 });
  console.log(`'${text()}' '${prompt()}'`);
}
""",
)


def test_labels_and_backtracking(play: Play) -> None:
    transcript = check(play(LABELS, "Once upon a time", prompt="Tell me: "))
    lines = transcript.log.splitlines()
    assert lines[0] == "'upon' '!' 1 True"
    assert lines[1] == "this label is no longer valid: the text was rewound to before it"
    assert lines[2].startswith("'Once !") and lines[2].endswith(" 'Tell me: '")
    assert transcript.text.startswith("Once !")


LEAVE: Pair = (
    """
from aici import *
async def main():
    print(repr(await gen(regex="[a-z]+", leave=arg)))
    await force("|")
""",
    """
import { gen, force, arg } from "aici";
export async function main() {
  console.log(`'${await gen({ regex: "[a-z]+", leave: arg })}'`);
  force("|");
}
""",
)


def test_a_pattern_ends_where_the_model_leaves_it(play: Play) -> None:
    # "e " is a token, which begins with the end of the pattern's text
    transcript = check(play(LEAVE, "the tree is", arg=True))
    assert (transcript.log, transcript.text) == ("'the'\n", "the|")
    transcript = check(play(LEAVE, "thetree is", arg=True))
    assert (transcript.log, transcript.text) == ("'thetree'\n", "thetree|")
    transcript = check(play(LEAVE, "the tree is", arg=False))
    assert transcript.log == "'thetreeis'\n"


FORGOTTEN: Pair = (
    "from aici import *\nasync def main():\n    gen(max_tokens=3)\n    await force('x')\n",
    'import { gen, force } from "aici";\n'
    "export async function main() { gen({ maxTokens: 3 }); force('x'); }\n",
)


def test_a_forgotten_await_is_reported(play: Play) -> None:
    transcript = check(play(FORGOTTEN, "abc"))
    assert transcript.text == "x"
    assert transcript.log == "warning: gen(...) was never awaited: write await gen(...)\n"


BIASES: Pair = (
    "from aici import *\n"
    "async def main():\n"
    "    some = TokenSet(tokenize('bc'))\n"
    "    await sample(favoured=TokenSet(tokenize('c')), bias=99)\n"
    "    await sample(some, favoured=TokenSet(tokenize('ac')), bias=99)\n"
    "    await sample(some, favoured=TokenSet(tokenize('c')), bias=-99)\n"
    "    await force('.')\n",
    'import { TokenSet, force, sample, tokenize } from "aici";\n'
    "const set = (letters) => new TokenSet(tokenize(letters));\n"
    "export async function main() {\n"
    "  await sample(undefined, { favoured: set('c'), bias: 99 });\n"
    "  await sample(set('bc'), { favoured: set('ac'), bias: 99 });\n"
    "  await sample(set('bc'), { favoured: set('c'), bias: -99 });\n"
    "  force('.');\n}\n",
)


def test_a_bias_makes_tokens_more_or_less_likely(play: Play) -> None:
    assert check(play(BIASES, "bcaccb")).text == "ccb."


def test_biases_need_an_engine_that_supports_them(play: Play) -> None:
    with pytest.raises(ControllerFailed, match=r"this engine supports no biases \(capability dense\)"):
        play(BIASES, "bc", capabilities=replace(ALL, dense=False))
