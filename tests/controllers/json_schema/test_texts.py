"""Strings with large lengths, partly anchored patterns, and formats of other specifications."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest

from lab.oracles.json_schema.schema_engine import Engine, Refused


@pytest.mark.parametrize(
    ("schema", "least", "most"),
    [
        ({"maxLength": 131_072}, 0, 131_072),
        ({"minLength": 3001, "maxLength": 5000}, 3001, 5000),
        ({"pattern": r"^[\s\S]*$", "maxLength": 131_072}, 0, 131_072),
        ({"pattern": r"^[\s\S]+$", "minLength": 1000, "maxLength": 16_000}, 1000, 16_000),
        ({"pattern": r"^.{1,65535}$"}, 1, 65_535),
        ({"pattern": r"^\S{2,3000}$", "minLength": 2500}, 2500, 3000),
        ({"pattern": r"^[a-z]{3,4357}$", "minLength": 3, "maxLength": 4357}, 3, 4357),
        ({"pattern": r"^a[\s\S]*a$", "minLength": 2500, "maxLength": 14_000}, 2500, 14_000),
        ({"pattern": r"^a.*a$", "maxLength": 131_072}, 2, 131_072),
        ({"pattern": r"^$|^(\S+\s+){0,99}\S+$", "minLength": 1, "maxLength": 5000}, 1, 5000),
        ({"pattern": r"^a[a-z]{3,4357}a$", "minLength": 9, "maxLength": 4000}, 9, 4000),
    ],
    ids=json.dumps,
)
def test_long_counts(engine: Engine, schema: dict[str, Any], least: int, most: int) -> None:
    """Counts to the character. Longer texts exceed the memory limit of one mask."""
    engine.compile({"type": "string", **schema})
    for size in {0, 1, least - 1, least, least + 1, 499, 500, 501, 2500, most - 1, most, most + 1}:
        if 0 <= size <= 16_001:
            assert engine.accepts(json.dumps("a" * size)) == (least <= size <= most), size


def test_states_repeat_without_an_upper_bound(engine: Engine) -> None:
    """Longer than a parser has states: without maxLength, characters are counted up to minLength only."""
    engine.compile({"type": "string", "minLength": 2, "pattern": "b"})
    for begin in ("", "b"):
        text = json.dumps(begin + "xé\n" * 10_000, ensure_ascii=False)
        assert engine.accepts(text[:-1] + 'b"') and engine.accepts(text) == bool(begin)
    assert not engine.accepts('"b"') and engine.accepts('"bb"')


def test_text_after_a_counted_part(engine: Engine) -> None:
    engine.compile({"type": "string", "pattern": r"^<[\s\S]*>$", "minLength": 2000, "maxLength": 4000})
    for size in (1999, 2000, 3999, 4000, 4001):
        inside = (">\n<\u00e9\U0001f600" * 2000)[: size - 2]
        assert engine.accepts(json.dumps(f"<{inside}>", ensure_ascii=False)) == (2000 <= size <= 4000), size
    assert not engine.accepts(json.dumps("<" * 3000))


def test_contradictory_patterns_with_counted_lengths(engine: Engine) -> None:
    """No text matches both patterns, whose lengths can only be counted."""
    both = [{"pattern": "^a+$"}, {"pattern": "^b+$"}]
    lengths = ({"minLength": 2000, "maxLength": size} for size in (3000, 4000))
    ways = [{"type": "string", "allOf": both, **length} for length in lengths]
    engine.compile({"anyOf": [*ways, {"const": 1}]})
    assert engine.row(engine.initial()) == ([ord("1")], False)


@pytest.mark.parametrize(
    "pattern",
    ["a{2,5}", "^a{2,5}", "a{2,5}$", "a{0,3}b", "ba*", "b(?:ac|a){1,4}", "a{2,3}|c{1,9}$", "[ab]{3,31}"],
)
def test_partly_anchored_patterns(engine: Engine, pattern: str) -> None:
    """Any text may precede and follow, so the upper bound has no effect there."""
    engine.compile({"type": "string", "pattern": pattern})
    texts = [
        "",
        *(
            "".join(text)
            for text in ("a", "aa", "aaa", "aaaaaaa", "b", "ab", "ba", "bac", "aab", "caa", "cab")
        ),
    ]
    texts += [text + end for text in texts for end in ("c", "aaaaaa", "d", "aa")]
    for text in texts:
        assert engine.accepts(json.dumps(text)) == (re.search(pattern, text) is not None), text


def test_length_that_pattern_also_limits(engine: Engine) -> None:
    """The length need not be counted."""
    parts = ":".join(["^arn", "[a-z0-9.-]{1,63}", *["[a-z0-9.-]{0,63}"] * 3, "[^/].{0,1023}$"])
    engine.compile({"type": "string", "pattern": parts, "maxLength": 1284, "minLength": 5})
    assert engine.accepts('"arn:aws:::1:a"') and not engine.accepts('"arn::::1:a"')


@pytest.mark.parametrize(
    ("schema", "allowed", "others"),
    [
        (
            {"format": "int32"},
            ["2147483647", "-2147483648", "0", '"x"'],
            ["2147483648", "-2147483649", "1.5"],
        ),
        (
            {"type": "number", "format": "uint64", "exclusiveMinimum": 3},
            ["4", "18446744073709551615"],
            ["3", "18446744073709551616", "4.5"],
        ),
        ({"enum": [1, 300, -1, 1.5, "a"], "format": "uint8"}, ["1", '"a"'], ["300", "-1", "1.5"]),
        ({"format": "int8", "minimum": 100, "maximum": 200}, ["100", "127"], ["128", "99"]),
    ],
    ids=json.dumps,
)
def test_formats_of_integers(
    engine: Engine, schema: dict[str, Any], allowed: list[str], others: list[str]
) -> None:
    engine.compile(schema)
    assert [text for text in allowed if not engine.accepts(text)] == []
    assert [text for text in others if engine.accepts(text)] == []


@pytest.mark.parametrize(
    ("name", "before", "behind"),
    [("time", "", "Z"), ("time", "", "+01:30"), ("date-time", "2024-02-29T", "z")],
)
def test_fractions_of_seconds_have_no_length_limit(
    engine: Engine, name: str, before: str, behind: str
) -> None:
    engine.compile({"type": "string", "format": name})
    for digits in (1, 9, 10, 500):
        assert engine.accepts(f'"{before}23:59:59.{"0123456789" * 50:.{digits}}{behind}"'), digits
    assert not engine.accepts(f'"{before}23:59:59.{behind}"')
    engine.compile({"type": "string", "format": name, "maxLength": 40})
    room = 40 - len(f"{before}23:59:59.{behind}")
    for digits in (1, room, room + 1):
        assert engine.accepts(f'"{before}23:59:59.{"7" * digits}{behind}"') == (digits <= room), digits


@pytest.mark.parametrize("name", ["colour", "url", "datetime-local", "uint128", "slug"])
def test_unknown_formats(engine: Engine, name: str) -> None:
    warning = "#/format: this format is not known, so it is ignored"
    assert engine.compile({"type": "string", "format": name}) == [warning]
    assert engine.accepts('"a"') and not engine.accepts("1")
    engine.compile({"enum": ["a", "b"], "format": name})
    assert engine.accepts('"a"')
    # such a format is always met, so its negation never is
    engine.compile({"oneOf": [{"type": "string", "format": name}, {"const": "a"}]})
    assert engine.accepts('"b"') and not engine.accepts('"a"')
    with pytest.raises(Refused, match="#/format: this format is not known"):
        engine.compile({"type": "string", "format": name}, refuse_unknown_formats=True)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("date_time", "date-time"),
        ("datetime", "date-time"),
        ("Date-Time", "date-time"),
        ("dateTime", "date-time"),
        ("date-tme", "date-time"),
        ("host-name", "hostname"),
        ("hostanme", "hostname"),
        ("regexp", "regex"),
        ("URI", "uri"),
        ("Int32", "int32"),
    ],
)
def test_misspelled_formats(engine: Engine, name: str, known: str) -> None:
    with pytest.raises(Refused, match=f"this format is not known: do you mean {known}"):
        engine.compile({"type": "string", "format": name})


REGEXES = [
    "",
    "^[a-z]+$",
    r"(?:a|b)*?c{2,3}",
    r"((\d+)\.)?(?=x)y",
    r"((a)(b))|",
    "[^-a-f\\w-]{0,9}",
    r"\bé\B\x41\u0042",
    "a||b",
    r"[a-f0-9]{12,345}?",
    r"\/\\",
]
NO_REGEXES = [
    "(",
    ")",
    "a**",
    "^*",
    "[",
    "]",
    "{",
    "a{2,1}",
    "[z-a]",
    "(?=a)*",
    "\\",
    r"\a",
    "*",
    "(?a)",
    "a{1",
    r"\-",
]


@pytest.mark.parametrize("length", [{}, {"maxLength": 20}])
def test_regexes(engine: Engine, length: dict[str, int]) -> None:
    engine.compile({"type": "string", "format": "regex", **length})
    for text in REGEXES:
        assert engine.accepts(json.dumps(text, ensure_ascii=False)), text
        re.compile(text)
    for text in NO_REGEXES:
        assert not engine.accepts(json.dumps(text)), text


@pytest.mark.parametrize(("name", "before"), [("hostname", ""), ("email", "ada@")])
def test_host_names_have_few_long_labels(engine: Engine, name: str, before: str) -> None:
    engine.compile({"type": "string", "format": name})
    long, short = "n" * 31, "s" * 30
    for labels, allowed in {
        (short,) * 8: True,
        (short,) * 9: False,
        (long, *"abcdef"): True,
        (long, *"abcdefg"): False,
        (*"ab", long): True,
        (*"ab", long, "c"): False,
        ("n" * 63,) * 3: True,
        ("n" * 64,): False,
        (long,) * 4: False,
        ("internal-k8s-ingress-0123456789abcdef", "eu-central-1", "elb", "example", "com"): True,
    }.items():
        text = ".".join(labels)
        assert len(text) <= 253 or not allowed
        assert engine.accepts(f'"{before}{text}"') == allowed, text


def test_alternatives_that_differ_in_a_format(engine: Engine) -> None:
    """Texts that violate a format only are left out, since not every validator checks formats."""
    engine.compile({"oneOf": [{"type": "string", "format": "date"}, {"type": "string", "maxLength": 3}]})
    assert engine.accepts('"2024-02-29"') and not engine.accepts('"abcd"')
    # the second alternative still excludes what it shares with the first
    either = {"anyOf": [{"not": {"format": "date"}}, {"type": "null"}]}
    properties = {"properties": {"a": either}, "required": ["a"]}
    engine.compile({"type": "object", "oneOf": [properties, {"required": ["a"], "maxProperties": 1}]})
    assert not engine.accepts('{"a": "b"}') and not engine.accepts('{"a": null}')
    assert engine.accepts('{"a": null, "b": 1}') and engine.accepts('{"a": 1}')


def test_negated_formats(engine: Engine) -> None:
    with pytest.raises(Refused, match="the negation of a number's format cannot be enforced"):
        engine.compile({"type": "integer", "not": {"format": "int32"}})
    with pytest.raises(Refused, match="no value meets this schema"):
        engine.compile({"not": {"format": "double"}})
    engine.compile({"type": "string", "anyOf": [{"not": {"format": "int32"}}, {"const": "a"}]})
    assert engine.accepts('"a"') and not engine.accepts('"b"')


#: of each format some texts, and some that resemble it, about which validators do not agree
NEAR = {
    "date": ["2024-02-29", "2023-02-30", "0000-01-01"],
    "time": ["10:00:00Z", "23:59:60Z", "25:00:00+99:99"],
    "date-time": ["2024-02-29T10:00:00.5z", "2024-02-29 10:00:00Z"],
    "duration": ["P3W", "PT1.5S"],
    "email": ["a.b@c.de", '"a b"@c.de', "@"],
    "hostname": ["a.b", "xn--bcher-kva", "a_b", "-a"],
    "idn-hostname": ["a.b", "b\u00fccher.example"],
    "ipv4": ["127.0.0.1", "010.1.1.1", "256.1.1.1"],
    "ipv6": ["::1", "fe80::1%eth0", "1:2"],
    "uri": ["https://a.b/c", "x:\u00e9 b"],
    "uri-reference": ["../a", "", "a%zz", "\u00e9"],
    "uri-template": ["a/{b}", "a{"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000"],
    "json-pointer": ["/a~1b", ""],
    "byte": ["aGk=", "aGk"],
}
FAR = ["<", "|\n", "{ }", "\\", 'é"', "日 😀"]


@pytest.mark.parametrize("name", NEAR)
def test_texts_that_are_not_of_a_format(engine: Engine, name: str) -> None:
    """No text that any validator may take for one of the format is allowed, and others are."""
    engine.compile({"not": {"format": name}})
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    for text in (text for texts in NEAR.values() for text in texts):
        if text in NEAR[name] or (name in checker.checkers and checker.conforms(text, name)):
            assert not engine.accepts(json.dumps(text, ensure_ascii=False)), text
    for text in FAR:
        assert engine.accepts(json.dumps(text, ensure_ascii=False)), text
    assert not engine.accepts("1") and not engine.accepts("{}")


def test_excluded_formats_beside_others(engine: Engine) -> None:
    """Texts of one format and not of another, a length, a pattern, and values of an enumeration."""
    engine.compile({"format": "hostname", "type": "string", "not": {"format": "ipv4"}, "maxLength": 9})
    for text, allowed in {"a.example": True, "1.2.3.4": False, "1.2.3": True, "a.examples": False}.items():
        assert engine.accepts(f'"{text}"') == allowed, text
    engine.compile({"pattern": "^[0-9-]{10}$", "type": "string", "not": {"format": "date"}})
    assert engine.accepts('"2024022999"') and not engine.accepts('"2024-02-29"')
    engine.compile({"enum": ["2024-02-29", "2024", "2023-02-30"], "not": {"format": "date"}}, warn=True)
    assert engine.accepts('"2024"') and not engine.accepts('"2024-02-29"')
    conditional = {"if": {"format": "email"}, "then": {"maxLength": 5}, "else": {"pattern": "^tel:"}}
    engine.compile({"type": "string", **conditional})
    for text, allowed in {"a@b.c": True, "a@b.cd": False, "tel:1": True, "tel": False}.items():
        assert engine.accepts(f'"{text}"') == allowed, text


@pytest.mark.parametrize(
    ("pattern", "allowed", "others"),
    [
        ("(?i)^straße$", ["STRAẞE", "straße"], ["STRASSE"]),
        ("^a(?i)b|c$", ["aB", "aBx", "C", "xc"], ["Ab", "x"]),
        ("^(?i:a)b$", ["Ab", "ab"], ["aB"]),
        ("^(?i)a(?-i:b)[^c-d]\\w$", ["Abe\u017f", "abEK"], ["aBe1", "abD1", "abe\u00e9"]),
        ("^((?s).).$", ["\na", "ab"], ["a\n", "\n\n"]),
        ("^(?s-i:.)$", ["\n", "a"], ["ab"]),
        ("(?i)^\\W$", ["-"], ["k", "S", "\u212a", "\u017f"]),
        ("\\A[0-9]+\\z", ["12"], ["a1", "1a", ""]),
    ],
)
def test_flags_in_patterns(engine: Engine, pattern: str, allowed: list[str], others: list[str]) -> None:
    engine.compile({"type": "string", "pattern": pattern})
    for text in (*allowed, *others):
        assert engine.accepts(json.dumps(text, ensure_ascii=False)) == (text in allowed), text


@pytest.mark.parametrize(
    "pattern", ["(?m)^a", "(?x) a", "a(?i", "(?i-)a", "(?--i)a", "(?)a", "(?>a)", "a\\Z"]
)
def test_other_flags_and_groups_are_refused(engine: Engine, pattern: str) -> None:
    message = (
        "write \\$" if pattern.endswith("Z") else "an unknown kind of group, or a flag other than i and s"
    )
    with pytest.raises(Refused, match=message):
        engine.compile({"type": "string", "pattern": pattern})
