"""Patterns that are refused: where, and what the message says."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.controllers.regex.engine import Engine, Refused
from tests.thorough import cases

# pattern, byte offset, how the message begins, what else it says
CASES: list[tuple[str, int, str, str]] = [
    # groups
    ("a(b", 1, "column 2: this group is not closed", "')' is missing"),
    ("(a(b)", 0, "column 1: this group is not closed", ""),
    ("a)", 1, "column 2: ')' without a group", r"\)"),
    ("(?i", 0, "column 1: this group is not closed", ""),
    ("(?z)", 2, "column 3: unknown flag 'z'", "allowed are i, m, s, x, u, U"),
    ("(?i-é:a)", 4, "column 5: unknown flag 'é'", ""),
    ("(?)", 2, "column 3: there are no flags after '(?'", ""),
    ("(?i-)a", 4, "column 5: there are no flags after '-'", ""),
    ("(?<1a>x)", 3, "column 4: bad group name", "first a letter"),
    ("(?<a", 4, "column 5: bad group name", ""),
    ("(?<a>x)(?P<a>y)", 7, "column 8: there is another group with the name 'a'", ""),
    # not regular, or not in this dialect
    (r"(a)\1", 3, "column 4: back-references", r"\x{...}"),
    (r"(?<n>a)\k<n>", 7, "column 8: back-references", ""),
    (r"(a)\g1", 3, "column 4: back-references", ""),
    ("(?P=n)", 0, "column 1: back-references", ""),
    (r"\07", 0, "column 1: back-references and octal", ""),
    ("(?>a)", 0, "column 1: atomic groups are not supported", "(?:...)"),
    ("(?R)", 0, "column 1: recursion", ""),
    ("(?(1)a|b)", 0, "column 1: conditional groups", ""),
    ("(?|a|b)", 0, "column 1: branch reset groups", ""),
    ("(?#c)", 0, "column 1: comments", ""),
    ("(*FAIL)", 0, "column 1: verbs", r"\*"),
    (r"a\Z", 1, r"column 2: \Z means different things", r"\z"),
    (r"\X", 0, r"column 1: \X is not supported", ""),
    (r"\G", 0, r"column 1: \G is not supported", ""),
    (r"\<a", 0, "column 1: \\< and \\>", r"\b{start}"),
    # escapes
    ("ab\\", 2, "column 3: a backslash at the end", ""),
    (r"\y", 0, r"column 1: unknown escape \y", r"allowed are \n"),
    (r"é\e", 2, r"column 2: unknown escape \e", ""),
    (r"\é", 0, "column 1: only ASCII characters can be escaped", ""),
    (r"\x4", 0, "column 1: bad escape", r"\xHH or \x{H...}"),
    (r"\u12", 0, "column 1: bad escape", r"\uHHHH"),
    (r"\x{}", 0, "column 1: bad escape", ""),
    (r"\x{110000}", 0, r"column 1: \x{110000} is not a character", ""),
    (r"\ud800", 0, r"column 1: \ud800 is not a character", ""),
    (r"\ud83d\u0041", 0, "column 1: a high surrogate without a low one", ""),
    (r"(?-u)\xff", 5, r"column 6: with (?-u) \xff would be a byte", r"\u{...}"),
    (r"\E", 0, r"column 1: \E without \Q", ""),
    (r"\b{foo}", 0, "column 1: unknown word boundary", r"\b{start}"),
    # properties
    (r"\p{Foo}", 0, r"column 1: unknown property \p{Foo}", "scripts (Greek, Han)"),
    (r"\pQ", 0, r"column 1: unknown property \pQ", ""),
    (r"\p", 0, r"column 1: unknown property \p", ""),
    (r"\p{L", 0, "column 1: this property is not closed", ""),
    (r"\p{scx=Greek}", 0, "column 1: unknown property", "sc=Script"),
    (r"\p{sc=Lu}", 0, "column 1: unknown property", ""),
    # classes
    ("[a", 0, "column 1: this class is not closed", ""),
    ("[]", 0, "column 1: this class is not closed", ""),
    ("[[a]", 0, "column 1: this class is not closed", ""),
    ("x[b-a]", 2, "column 3: the range 'b-a' is empty", ""),
    (r"[\w-a]", 1, "column 2: a range needs a character on both sides", ""),
    (r"[a-\d]", 1, "column 2: a range needs a character on both sides", ""),
    ("[a-[b]]", 3, "column 4: a range cannot end with a class", ""),
    ("[[:foo:]]", 1, "column 2: unknown POSIX class", "alnum, alpha"),
    ("[[:alpha]]", 1, "column 2: unknown POSIX class", ""),
    (r"[\b]", 1, r"column 2: \b in a class", r"\x08"),
    (r"[\A]", 1, r"column 2: \A has no meaning in a class", ""),
    ("[a&&]", 4, "column 5: an operand of", ""),
    ("[!--]", 4, "column 5: an operand of", ""),
    ("[&&a]", 2, "column 3: an operand of", ""),
    # repetition
    ("*a", 0, "column 1: there is nothing to repeat before '*'", r"\*"),
    ("a|+", 2, "column 3: there is nothing to repeat before '+'", ""),
    ("(?i)?", 4, "column 5: there is nothing to repeat before '?'", ""),
    ("({2})", 1, "column 2: there is nothing to repeat before '{'", r"\{"),
    ("a**", 2, "column 3: a repetition directly after a repetition", "(?:...)*"),
    ("a{2}{3}", 4, "column 5: a repetition directly after a repetition", ""),
    ("a*+", 2, "column 3: a repetition directly after a repetition", ""),
    ("a{", 1, "column 2: this is not a repetition", r"\{"),
    ("a{x}", 1, "column 2: this is not a repetition", ""),
    ("a{1", 1, "column 2: this repetition is not closed", ""),
    ("a{1,2", 1, "column 2: this repetition is not closed", ""),
    ("a{ 2 }", 1, "column 2: this is not a repetition", "without spaces"),
    ("a{,3}", 1, "column 2: the lower bound of this repetition is missing", "{0,...}"),
    ("a{3,2}", 1, "column 2: the upper bound of this repetition is less", ""),
    ("a{9999999999}", 1, "column 2: the count of this repetition is too large", ""),
    # the rest matches nothing
    ("a^b", 0, "column 1: no text matches this pattern", ""),
    (r"a\bb", 0, "column 1: no text matches", ""),
    ("[a&&b]", 0, "column 1: no text matches", ""),
    (r"[^\w\W]", 0, "column 1: no text matches", ""),
    ("(?not:(?s:.*))", 0, "column 1: no text matches", ""),
    # where
    ("é中😀(", 9, "column 4: this group", ""),
    ("a\né\nb)", 6, "line 3, column 2: ')' without a group", ""),
    ("(?x)\n  a # (\n  **", 16, "line 3, column 4: a repetition directly after", ""),
    # inside (?until:...) and (?not:...)
    ("x(?until:^a)", 1, "column 2: anchors and word boundaries are not supported inside", ""),
    (r"(?not:a\b)", 0, "column 1: anchors and word boundaries are not supported inside", ""),
    ("x(?until:(?<!b)a)", 1, "column 2: look-arounds are not supported inside", ""),
    ("(?not:a(?=b$))", 0, "column 1: look-arounds are not supported inside", ""),
    ("a(?=b)", 0, "column 1: no text matches this pattern", ""),
    ("(?<=b)a", 0, "column 1: no text matches this pattern", ""),
    ("(?=a(b)", 0, "column 1: this group is not closed", ""),
]


@pytest.mark.parametrize(("pattern", "offset", "begins", "says"), CASES)
def test_refused(engine: Engine, pattern: str, offset: int, begins: str, says: str) -> None:
    with pytest.raises(Refused) as caught:
        engine.compile(pattern)
    assert caught.value.message.startswith(begins), caught.value.message
    assert says in caught.value.message
    assert caught.value.offset == offset


def test_a_pattern_must_be_utf8(engine: Engine) -> None:
    for bad in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe4\xb8"):
        with pytest.raises(Refused, match="column 2: the pattern is not valid UTF-8") as caught:
            engine.compile(b"a" + bad)
        assert caught.value.offset == 1


PIECES = [
    r"(?",
    r"(?:",
    r"[^",
    r"[[:",
    r":]]",
    r"&&",
    r"\p{",
    r"\x",
    r"\u",
    r"{2}",
    r"{1,",
    r"é",
    r"(?i)",
    r"(?x)",
    r"(?until:",
    r"(?not:",
    r"(?!",
    r"(?<=",
    r"\b",
    r"\d",
    r"\Q",
    r"\E",
]
pieces = st.sampled_from([*r"()[]{}|*+?^$.\-,:&~#<>=!La09isu ", "\n", *PIECES])


@settings(
    max_examples=cases(500, 1500),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(parts=st.lists(pieces, max_size=12))
def test_any_pattern_is_accepted_or_refused_with_a_position(engine: Engine, parts: list[str]) -> None:
    pattern = "".join(parts)
    try:
        engine.compile(pattern)
    except Refused as refused:
        assert 0 <= refused.offset <= len(pattern.encode())
        assert refused.message.startswith(("column ", "line "))
    else:
        assert engine.run(b"a")[0] != 0
