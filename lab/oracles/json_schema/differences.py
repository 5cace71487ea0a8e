"""Tokens that one of two engines allows and the other does not, and the known reasons for them."""

from __future__ import annotations

import json
import re
from calendar import isleap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Difference:
    """`token` (empty for the end) is allowed after `before` by only one mask: ours or theirs."""

    schema: Any
    before: bytes
    token: bytes
    ours: bool

    def lexeme(self) -> bytes:
        """Returns the string, number or word up to the end of the token; otherwise the token."""
        *_, last = [b"", *(match[2] or b"" for match in _LEXEME.finditer(self.before))]
        return last + self.token

    def mentions(self, pattern: str) -> bool:
        """Returns whether the pattern matches in the schema as JSON."""
        return re.search(pattern, json.dumps(self.schema, ensure_ascii=False)) is not None

    def in_pattern(self, what: str) -> bool:
        """Returns whether the pattern matches in an expression of the schema."""
        return any(re.search(what, pattern) for pattern in _patterns(self.schema))

    def has(self, *characters: str) -> bool:
        """Returns whether the token contains, begins or ends one of these texts."""
        wanted = [character.encode() for character in characters]
        text = self.before[-3:] + self.token
        whole = any(one in text[-len(self.token) - len(one) + 1 :] for one in wanted)
        return whole or any(text.endswith(one[:size]) for one in wanted for size in range(1, len(one)))


def _patterns(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        if isinstance(schema.get("patternProperties"), dict):
            yield from schema["patternProperties"]
    if isinstance(schema, (dict, list)):
        for one in schema.values() if isinstance(schema, dict) else schema:
            yield from _patterns(one)


def _properties(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, kind in (("properties", dict), ("required", list)):
            if isinstance(names := schema.get(key), kind):
                yield from filter(lambda name: isinstance(name, str), names)
    if isinstance(schema, (dict, list)):
        for one in schema.values() if isinstance(schema, dict) else schema:
            yield from _properties(one)


#: a string with its end, or a mark; a string without, a number or a word
_LEXEME = re.compile(rb'("(?:[^"\\]|\\.)*"|[{}\[\], :])|("(?:[^"\\]|\\.)*\\?|[-+.\w]+)', re.S)
_ESCAPE = re.compile(rb"\\(?:u[0-9a-fA-F]{0,4}|.|\Z)", re.S)
#: the spelling of docs/json_schema.md
_WRITTEN = [b"\\" + bytes([mark]) for mark in b'"\\bfnrt'] + [
    b"\\u%04x" % code for code in range(32) if code not in b"\b\f\n\r\t"
]


def _escape(difference: Difference) -> bool:
    """Returns whether the token belongs to a long escape."""
    text = difference.lexeme()
    return any(
        match.end() > len(text) - len(difference.token) and match[0][1:2] in (b"u", b"/")
        for match in _ESCAPE.finditer(text)
    )


def _in_common_year(difference: Difference) -> bool:
    """Returns whether the text has the 29th of February of a year without one."""
    date = re.search(rb"(\d{4})-02-29", difference.lexeme())
    return date is not None and not isleap(int(date[1]))


def _declared_name(difference: Difference) -> bool:
    """Returns whether the text is at a name that the schema knows, at its end, or at a comma before one."""
    if b"," in difference.token:
        return True
    text = difference.lexeme()
    names = (json.dumps(name, ensure_ascii=False).encode() for name in _properties(difference.schema))
    if not text.startswith(b'"') or text == b'"':
        return False
    return any(name.startswith(text) or text.startswith(name) for name in names)


def other_spelling(text: bytes) -> bool:
    """Returns whether the text has an escape that our engine does not write."""
    return any(one not in _WRITTEN for one in _ESCAPE.findall(text))


#: a label of a host may end here, but not with a hyphen; or there are many labels, or some and a long one
_LONG_NAME = re.compile(rb"[^\".@]{63}|(?:[^\".]*\.){8}|(?=[^\"]*[^\".@]{31})(?:[^\".]*\.){3}")


@dataclass(frozen=True)
class Known:
    """A class of differences: the engine that allows more, and the expected verdict on a witness."""

    name: str
    ours: bool
    verdict: str
    reason: str
    applies: Callable[[Difference], bool]
    #: what the witness must also show
    shown: Callable[[bytes], bool] = lambda _: True

    def explains(self, verdict: str, witness: bytes | None) -> bool:
        """Returns whether the verdict is the one expected for this class of differences."""
        return verdict == self.verdict and witness is not None and self.shown(witness)


#: the verdict of `jsonschema` on a text that the allowing engine completes after this beginning
OURS_WIDE, OURS_NARROW, THEIRS_WIDE, THEIRS_NARROW = (
    "ours is wide",
    "ours is narrow",
    "theirs is wide",
    "theirs is narrow",
)
#: or that it brings none to an end
DEAD_END = "dead ends"

KNOWN = [
    Known(
        "delete",
        True,
        THEIRS_NARROW,
        "JSON lets U+007F stand in a string as it is",
        lambda d: b"\x7f" in d.token,
    ),
    Known(
        "integers with .0",
        True,
        THEIRS_NARROW,
        "an integer of an enumeration is the same number with .0",
        lambda d: re.fullmatch(rb"-?\d+\.0?", d.lexeme()) is not None,
    ),
    Known(
        "spellings of zero",
        True,
        THEIRS_NARROW,
        "-0 and 0e1 equal 0, within bounds and as values, too",
        lambda d: re.fullmatch(rb" *(-|-?0(\.0*)?([eE]([+-]|[+-]?\d+)?)?)", d.lexeme()) is not None,
        lambda witness: re.search(rb"-0|\b0(\.0+)?[eE]", witness) is not None,
    ),
    Known(
        "zeros at the end",
        True,
        THEIRS_NARROW,
        "0.50 is a multiple of 0.5, too, and 0.10 is at most 0.1",
        lambda d: (
            re.fullmatch(rb"-?\d+\.\d*0", d.lexeme()) is not None
            and d.mentions("multipleOf|[mM]inimum|[mM]aximum")
        ),
    ),
    Known(
        "missing zeros",
        True,
        THEIRS_NARROW,
        "0.5 is a multiple of 0.25, without a zero at the end, too",
        lambda d: (
            re.fullmatch(rb"-?\d+\.\d+[^\d.eE]*", d.lexeme()) is not None
            and d.mentions(r'"multipleOf": \d*\.\d\d')
        ),
    ),
    Known(
        "late properties",
        True,
        THEIRS_NARROW,
        "optional properties may come late, and required ones in the order of `required`",
        _declared_name,
    ),
    Known(
        "blanks",
        True,
        THEIRS_NARROW,
        r"U+FEFF is of \s and U+0085 of \S for ECMAScript",
        lambda d: d.has("\x85", "\ufeff") and d.in_pattern(r"\\[sS]"),
    ),
    Known(
        "other blanks",
        False,
        THEIRS_WIDE,
        r"U+0085 is not of \s and U+FEFF not of \S for ECMAScript",
        lambda d: d.has("\x85", "\ufeff") and d.in_pattern(r"\\[sS]"),
    ),
    Known(
        "ends of lines",
        False,
        THEIRS_WIDE,
        "the dot of ECMAScript is no carriage return and no line or paragraph separator",
        lambda d: d.has("\r", "\u2028", "\u2029", r"\r") and d.token != b"\\" and d.in_pattern(r"\."),
    ),
    Known(
        "quotes",
        False,
        THEIRS_WIDE,
        'what a class in brackets leaves out, as [^"] does, is left out as an escape, too',
        lambda d: re.search(rb"\\[\"\\]", d.lexeme()[1:]) is not None and d.in_pattern(r"\[\^"),
    ),
    Known(
        "addresses",
        True,
        THEIRS_NARROW,
        "in an address of IPv6 the last four bytes may be one of IPv4, whatever is left out before",
        lambda d: b"." in d.token and d.mentions('"format": "ipv6"'),
    ),
    Known(
        "long names",
        False,
        OURS_NARROW,
        "names of hosts have at most eight labels, fewer if one of them is long, and labels have at most 63 "
        "characters; the first name before an @ has 64",
        lambda d: (
            _LONG_NAME.search(d.lexeme()) is not None and d.mentions('"format": "(hostname|email|uri)"')
        ),
        lambda text: _LONG_NAME.search(text) is not None,
    ),
    Known(
        "reserved names",
        False,
        OURS_NARROW,
        "no names of hosts have -- behind two characters",
        lambda d: b"--" in d.lexeme() and d.mentions('"format": "(hostname|email|uri)"'),
        lambda text: re.search(rb"[\".@/]\w[\w-]--", text) is not None,
    ),
    Known(
        "escapes",
        False,
        OURS_NARROW,
        r"each character has one spelling: \/ and \u for what needs no escape are not written",
        _escape,
        other_spelling,
    ),
    Known(
        "many digits",
        False,
        OURS_NARROW,
        "numbers have at most 15 digits after the point where a bound is exclusive",
        lambda d: re.search(rb"\.\d{16}", d.lexeme()) is not None and d.mentions("exclusiveM"),
    ),
    Known(
        "leap days",
        False,
        THEIRS_WIDE,
        "only leap years have a 29th of February",
        lambda d: _in_common_year(d) and d.mentions('"format": "date(-time)?"'),
    ),
    Known(
        "leap seconds",
        False,
        OURS_NARROW,
        "no format of ours has them",
        lambda d: (
            re.search(rb":\d\d:60?$", d.lexeme()) is not None and d.mentions('"format": "(date-)?time"')
        ),
    ),
]


def known(difference: Difference) -> Known | None:
    """Returns the class of a difference, or None."""
    return next((k for k in KNOWN if k.ours == difference.ours and k.applies(difference)), None)
