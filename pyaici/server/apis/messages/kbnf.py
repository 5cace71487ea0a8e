"""Grammars in KBNF: the one of ai00, and one of the user with thinking before it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyaici.server.answers.kbnf import BLANKS, one_of, quoted, until
from pyaici.server.answers.plan import END_OF_THINKING, THINK

#: a comment, a quoted text, or a name; the prefix of a pattern (#ex) is not a name
_TOKEN = re.compile(
    # unclosed text extends to the end: the controller refuses it, and nothing is scanned twice
    r"""\(\*.*?(?:\*\)|\Z) | '(?:[^'\\]|\\.)*(?:'|\\?\Z) | "(?:[^"\\]|\\.)*(?:"|\\?\Z)
    | \#\w* | (?P<name>[A-Za-z_]\w*)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)


def seed_grammar(stops: Sequence[str], *, inside: bool = False, thought: bool = False) -> str:
    """Returns the grammar of ai00 itself, for users who want exactly the texts that it allows.

    It allows nothing empty between two tags, and any text beside the calls. `inside`: the prompt ends with
    `THINK`, so the answer begins after it. `thought`: the grammar is for what follows thinking.
    """
    begin = "" if thought else "#ex'</think>' '</think>' ws " if inside else "thinking? "
    rules = f"""\
start ::= {begin}content;
thinking ::= '<think>' #ex'</think>' '</think>' ws;
content ::= function_calls | text_response;
function_calls ::= #ex'<ai00:function_calls>' '<ai00:function_calls>\\n' invokes '</ai00:function_calls>';
invokes ::= invoke*;
invoke ::= '  <invoke name="' tool_name '">\\n' params '  </invoke>\\n';
params ::= param*;
param ::= '    <parameter name="' param_name '">' param_value '</parameter>\\n';
tool_name ::= #'[a-zA-Z0-9_-]+';
param_name ::= #'[a-zA-Z0-9_]+';
param_value ::= #ex'</parameter>';
text_response ::= #ex'<ai00:function_calls>' #'[\\\\s\\\\S]*' terminator;
ws ::= #'[ \\t\\n\\r]*';
terminator ::= {one_of(map(quoted, stops))};"""
    return rules + "\n"


def thinking_first(grammar: str, inside: bool) -> tuple[str, str]:
    """Returns the user's grammar with thinking before it, and the name that its rule `start` has in there.

    `inside`: see `seed_grammar`. All of our names are unused in it, and its `start` is renamed to one of
    them. It comes first, so that places in error messages are right.
    """
    taken = names(grammar)
    start = free_name("start", taken)
    thinking = free_name("thinking", taken | {start})
    begin = "" if inside else quoted(THINK) + " "
    return (
        f"{renamed(grammar, 'start', start)}\n"
        f"start ::= {thinking}{'' if inside else '?'} {start};\n"
        f"{thinking} ::= {begin}{until(END_OF_THINKING)} {BLANKS};\n"
    ), start


def names(grammar: str) -> set[str]:
    """Returns all names of rules, defined or only used."""
    return {found["name"] for found in _TOKEN.finditer(grammar) if found["name"]}


def renamed(grammar: str, old: str, new: str) -> str:
    """Returns the grammar with a rule renamed; comments and quoted texts stay unchanged."""
    return _TOKEN.sub(lambda found: new if found["name"] == old else found[0], grammar)


def free_name(like: str, taken: set[str]) -> str:
    """Returns an unused name of the same length, so that columns in error messages stay right."""
    number = 0
    while (name := f"r{number:0{len(like) - 1}}") in taken:
        number += 1
    return name
