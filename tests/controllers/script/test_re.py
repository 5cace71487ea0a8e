"""The module re of scripts in Python finds what Python's own re finds."""

from __future__ import annotations

import json
import re
import warnings
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.controllers.script.conftest import Scripts, check

#: a pattern, flags and a text
Case = tuple[str, int, str]

#: all that the module finds of a pattern in a text; the same lines run in the controller and here
ASK = r"""
def one(match, groups):
    if match is None:
        return None
    spans = [list(match.span(i)) for i in range(groups + 1)]
    return [spans, list(match.groups()), match.groupdict(), match.lastindex, match.lastgroup]

def ask(pattern, flags, text):
    p = re.compile(pattern, flags)
    n = p.groups
    found = [one(m, n) for m in (p.search(text), p.match(text), p.fullmatch(text))]
    found.append(one(p.search(text, 1, 4), n))
    found.append([one(m, n) for m in p.finditer(text)])
    found.append([list(f) if isinstance(f, tuple) else f for f in p.findall(text)])
    found.append([p.split(text), p.split(text, 2), list(p.subn("<\\g<0>>", text)), p.sub("-", text, 1)])
    found.append(p.sub(lambda m: str(m.end()), text))
    return found
"""

#: says which of the cases are answered otherwise than expected, for the log has not room for all answers
COMPARE = f"""
import json, re
from aici import argument, gen
{ASK}
async def main():
    await gen(regex="x")
    for case, expected in argument:
        try:
            found = ask(*case)
        except re.error as error:
            found = "error: " + str(error)
        if found != expected:
            print(json.dumps([case, found, expected]))
    print("all", len(argument))
"""

_here: dict[str, Any] = {"re": re}
exec(ASK, _here)


def expected(case: Case) -> Any:
    """The answer of Python, as JSON has it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of sets in sets, which are none yet
        return json.loads(json.dumps(_here["ask"](*case)))


def compare(python: Scripts, cases: list[Case]) -> None:
    """Raises AssertionError for the cases with other answers than Python's."""
    log = check(python.play(COMPARE, "x", arg=[(case, expected(case)) for case in cases])).log
    *wrong, last = log.splitlines()
    assert last == f"all {len(cases)}", log
    assert not wrong, "case, found, expected:\n" + "\n".join(wrong)


# -- patterns of all kinds -------------------------------------------------------------------------------

LETTERS = "abAé\u042f\u044f1_ -\n\u4e2d"

_atoms = st.sampled_from(
    [
        *("a", "b", "A", "é", "\u042f", "\u4e2d", "1", ".", "^", "$", r"\b", r"\B", r"\A", r"\Z"),
        *(r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", r"\n", r"\x61", r"\u00e9", r"\.", "-", " ", "", "(?:)"),
        *(
            "[ab]",
            "[^a]",
            "[a-c1]",
            r"[\d_]",
            r"[^\w]",
            "[é-я]",
            r"[\s-]",
            r"[]a]",
            "[^-b]",
            "(?i:a)",
            "(?s:.)",
        ),
    ]
)
_quantifiers = st.sampled_from(
    ["*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,2}", "{,2}", "{1,}", "{2,3}?"]
)


def _quantified(parts: tuple[str, str]) -> str:
    return "(?:{}){}".format(*parts)


_patterns = st.recursive(
    _atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join).map("(?:{})".format),
        st.tuples(inner, _quantifiers).map(_quantified),
        inner.map("({})".format),
        st.tuples(inner, _quantifiers).map(lambda p: "({}){}".format(*p)),
    ),
    max_leaves=6,
)
_cases = st.tuples(
    _patterns,
    st.sets(st.sampled_from([re.I, re.M, re.S, re.A])).map(lambda flags: int(sum(flags))),
    st.text(LETTERS, max_size=8),
)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
    ],
)
@given(st.lists(_cases, min_size=25, max_size=100))
def test_any_pattern_finds_what_it_does_in_python(python: Scripts, cases: list[Case]) -> None:
    compare(python, cases)


EXAMPLES: list[Case] = [
    (r"(?P<key>\w+)\s*=\s*(?P<value>\d+)", 0, "a = 1, b=22; größe =3"),
    (r"(\d{4})-(\d\d)-(\d\d)", 0, "from 2024-01-31 to 2025-12-01"),
    (r"[\w.+-]+@[\w-]+\.[\w.]+", 0, "mail a.b+c@d-e.org, or x@y.z."),
    (r'"(?:[^"\\]|\\.)*"', 0, r'say "a \" b" and "c"'),
    (r"^(#+)\s+(.*?)\s*$", re.M, "# One \ntext\n## Two\n"),
    (r"<(\w+)(?:\s[^>]*)?>(.*?)</", re.S, "<a href='x'>text\nmore</a><b></b>"),
    (r"\s*,\s*", 0, "a , b,c ,d"),
    (r"(?i)answer:\s*(yes|no)", 0, "The ANSWER: Yes."),
    (r"(?ms)^a.*?^b$", 0, "a\nx\nb\nc"),
    (r"(a)|(b)|(?P<c>c)", 0, "cab"),
    (r"(?x) a  # a letter\n [ ] b \# ", 0, "a b# "),
    ("(?# a comment)a(?#and another)*", 0, "aaa"),
    (r"x{2}{", 0, "xx{"),
    ("a{,}b{1,x}", 0, "aab{1,x}"),
    (r"[]\-^a]+", 0, "a-]^b"),
    (r"[\0\x41\101\t]+", 0, "A\0\t"),
    (r"\bfoo\b|\Bbar", 0, "foo xbar bar foobar"),
    (r"$|a", 0, "ba\n"),
    (r"", 0, "é\u4e2d"),
    (r"[^\W\d]+", 0, "a1b_ ñé²"),
    (r"ǅ?straße\s+ΑΒΓ", re.I, "STRAße\u2003αβγ"),
    (r"(?i:a)b(?-i:c)", re.I, "Abc ABc abC"),
    (r"(?:(a)|b)*", 0, "ab"),
    (r"(a|ab)(c|bcd)(d*)", 0, "abcd"),
    (r"(\w+?)(\d*)$", 0, "abc123"),
]


def test_examples(python: Scripts) -> None:
    compare(python, EXAMPLES)
    long = "word é 12 " * 200
    compare(python, [(r"\w+ \d+", 0, long), (r"(\w)(\w)?", re.I, long[:300])])
