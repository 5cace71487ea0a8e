"""The module re of scripts in Python finds what Python's own re finds."""

from __future__ import annotations

import json
import re
import warnings
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aicirt.contract.errors import ControllerError
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
from aici import arg, gen
{ASK}
async def main():
    await gen(regex="x")
    for case, expected in arg:
        try:
            found = ask(*case)
        except re.error as error:
            found = "error: " + str(error)
        if found != expected:
            print(json.dumps([case, found, expected]))
    print("all", len(arg))
"""

_here: dict[str, Any] = {"re": re}
exec(ASK, _here)


def expected(case: Case) -> Any:
    """The answer of Python, as JSON has it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about nested sets, which Python does not support yet
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
def test_patterns_match_as_in_cpython(python: Scripts, cases: list[Case]) -> None:
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
    # rounds of a repetition that may be empty: the one after an empty one is not begun
    *(
        (pattern, 0, "aab")
        for pattern in (
            *("(?:|a)*", "(|a)*b", "(|a)+", "(a|)+", "(?:a|())*", "(()|a)+b", "(a*)*", "(a*)+b", "(a*?)*?b"),
            *(
                "(?:(a)|b*)*",
                "(?:(|a)b?)*",
                "((|a)*|b)*",
                "(?:|(a))+?b",
                "(?:(?:|a)+|b)+",
                "(|a){2,3}",
                "(|a){2,}b",
            ),
        )
    ),
]


def test_examples(python: Scripts) -> None:
    compare(python, EXAMPLES)
    long = "word é 12 " * 200
    compare(python, [(r"\w+ \d+", 0, long), (r"(\w)(\w)?", re.I, long[:300])])


# -- functions, objects, errors --------------------------------------------------------------------------


def run(python: Scripts, body: str, arg: Any = None) -> Any:
    """Runs a function with this body in the controller and returns its result, passed as JSON."""
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    source = (
        f"import json, re\nfrom aici import arg, gen\ndef answer():\n{lines}"
        'async def main():\n    await gen(regex="x")\n    print(json.dumps(answer()))\n'
    )
    return json.loads(check(python.play(source, "x", arg=arg)).log)


def same(python: Scripts, body: str) -> Any:
    """Runs the function in the controller and here, asserts equal results, and returns them."""
    here: dict[str, Any] = {"re": re}
    exec("def answer():\n" + "".join(f"    {line}\n" for line in body.strip().splitlines()), here)
    found = run(python, body)
    assert found == json.loads(json.dumps(here["answer"]()))
    return found


def test_replacements_name_groups_or_are_functions(python: Scripts) -> None:
    same(
        python,
        r"""
p = re.compile(r"(?P<first>\w+) (\w+)?")
answers = [re.sub(r"(\w)(\d)", r"\2\1", "a1 b2"), p.sub("", "x ")]
answers += [p.sub(r"\2\g<first>\g<0>\g<2>\n\\\.\101", "ab cd")]
answers += [p.sub(lambda m: m["first"].upper() + str(m[2]), "ab cd ef "), p.subn("-", "a b c d e f", 2)]
answers += [re.sub("x*", "-", "abxd"), re.sub("é", "\u4e2d", "éaé", count=1)]
answers += [p.match("ab cd").expand(r"<\1>")]
answers += [re.sub("a", "b", "AaA", flags=re.I), re.split("[,;] *", "a, b;c", maxsplit=1)]
return answers
""",
    )


def test_attributes_of_patterns_and_matches(python: Scripts) -> None:
    same(
        python,
        r"""
p = re.compile(r"(?P<key>\w)(?:=(?P<value>\d))?")
m = p.search("é: x", 2)
answers = [p.pattern, p.groups, p.groupindex["value"], p.flags == re.U, re.compile(p) is p, m.string]
answers += [m.re is p, m.pos, m.endpos, m.span(), m.start("key"), m.end(2), m["key"], m.group(1, "value")]
answers += [m.groups("none"), m.groupdict(default=1)["value"], m.lastgroup, m.lastindex, bool(m)]
answers += [re.compile("a", re.I | re.M).flags & 10, re.escape("a.b*[é]-\n_"), isinstance(p, re.Pattern)]
answers += [[t.lastgroup for t in re.finditer(r"(?P<n>\d+)|(?P<w>\w+)|(?P<o>\S)", "x1 = 2 + yé")]]
try:
    m.group("other")
except IndexError as error:
    answers.append(str(error))
return answers
""",
    )


def test_bytes(python: Scripts) -> None:
    same(
        python,
        r"""
found = re.findall(rb"[\xc3-\xff]\w?", b"a\xc3\xa9b\xffz") + re.split(b", ", b"a, b")
found += [re.sub(b"a", rb"\\\g<0>", b"ba")]
spans = [list(re.search(b"(?i)B", b"ab").span()), re.search(rb"\w", b"\xe9") is None]
return [list(f) for f in found] + spans
""",
    )
    for call in ('re.search("a", b"a")', 're.search(b"a", "a")', 're.sub("a", b"b", "a")', "re.compile(1)"):
        body = f"try:\n    {call}\nexcept TypeError as error:\n    return str(error)"
        assert "str" in run(python, body), call


WRONG = [
    *(
        "(a",
        "a)",
        "[a",
        "*a",
        "a**",
        "a{2,1}",
        "a{2}{3}",
        "^*",
        r"\b+",
        "a|*",
        "(?P<a>x)(?P<a>y)",
        "(?P<1>x)",
    ),
    *(
        "(?P<a",
        "(?P<>x)",
        r"\q",
        r"[\q]",
        "[b-a]",
        r"[a-\d]",
        r"\x4",
        r"\u12",
        "a(?i)b",
        "(?z)",
        "(?#a",
        "\\",
    ),
]


def test_invalid_patterns_fail_at_the_same_position_as_in_cpython(python: Scripts) -> None:
    body = """
said = []
for p in arg:
    try:
        re.compile(p)
        said.append("")
    except re.error as error:
        said.append(str(error))
return said
"""
    for pattern, said in zip(WRONG, run(python, body, WRONG), strict=True):
        with pytest.raises(re.error) as caught:
            re.compile(pattern)
        why, at = said.rsplit(" at position ", 1)
        assert (why.split()[0], int(at)) == (caught.value.msg.split()[0], caught.value.pos), said


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"(a)\1", "backreferences such as \\1 are not supported"),
        ("(?P<x>a)(?P=x)", "backreferences are not supported"),
        ("a(?=b)", "lookahead and lookbehind are not supported"),
        ("a(?!b)", "lookahead and lookbehind are not supported"),
        ("(?<=b)a", "lookahead and lookbehind are not supported"),
        ("(?<!b)a", "lookahead and lookbehind are not supported"),
        ("(?>a)", "atomic groups are not supported"),
        ("a*+", "possessive repetitions such as a*+ are not supported"),
        ("(a)?(?(1)b)", "conditional groups are not supported"),
        ("((a{100}){100}){100}", "more than 30000 states"),
        ("((?:){100000}){100000}", "more than 30000 states"),
        ("a{2000000}", "the repetition number is too large"),
        ("(" * 101 + ")" * 101, "more than 100 groups in each other"),
        ("(?:" * 9 + "a" + "*)" * 9 + "*", "more than 8 repetitions within each other of what may be empty"),
        ("(a)" * 90 + "(?:b{100}){100}", "of at most 262144"),
    ],
)
def test_unsupported_patterns_are_refused_with_a_reason(python: Scripts, pattern: str, why: str) -> None:
    body = "try:\n    re.compile(arg)\nexcept re.error as error:\n    return str(error)"
    assert why in run(python, body, pattern)


@pytest.mark.parametrize(
    "pattern", ["(a*)*b", "(a|a)*b", "(a|aa)+$", "(((a*)*)*)*b", "(.*)(.*)(.*)(.*)b", "(a?){50}b"]
)
def test_no_pattern_is_catastrophic(python: Scripts, pattern: str) -> None:
    """Backtracking would take ages, or the square of the text."""
    body = """
text = "a" * 50000 + "c"
return re.match(arg, text) is None and re.fullmatch(arg, text) is None
"""
    assert run(python, body, pattern) is True  # within the limits of a step


def test_an_uncaught_pattern_error_names_line_and_pattern(python: Scripts) -> None:
    with pytest.raises(ControllerError) as caught:
        python.play('import re\n\nP = re.compile("(a")\n')
    assert "line 3" in str(caught.value) and "missing ), unterminated subpattern at position 0" in str(
        caught.value
    )
