"""Grammars in KBNF for the mask measurements, one with a text."""

from __future__ import annotations

JSON = r"""
start  ::= object;
value  ::= object | array | string | number | 'true' | 'false' | 'null';
object ::= '{' ws (member (',' ws member)*)? '}';
member ::= string ws ':' ws value ws;
array  ::= '[' ws (value ws (',' ws value ws)*)? ']';
string ::= #'"([^"\\\\\\x00-\\x1F]|\\\\["\\\\/bfnrt]|\\\\u[0-9a-fA-F]{4})*"';
number ::= #'-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?';
ws     ::= #'[ \\n\\r\\t]*';
"""

#: answers of a model that may think first and then calls functions or writes text
STRUCTURAL = r"""
start           ::= thinking? content;
thinking        ::= '<think>' #ex'</think>' '</think>' ws;
content         ::= function_calls | text_response;
function_calls  ::= #ex'<ai00:function_calls>' '<ai00:function_calls>\n' invokes '</ai00:function_calls>';
invokes         ::= invoke*;
invoke          ::= '  <invoke name="' tool_name '">\n' params '  </invoke>\n';
params          ::= param*;
param           ::= '    <parameter name="' param_name '">' param_value '</parameter>\n';
tool_name       ::= #'[a-zA-Z0-9_-]+';
param_name      ::= #'[a-zA-Z0-9_]+';
param_value     ::= #ex'</parameter>';
text_response   ::= #ex'<ai00:function_calls>' #'[\\s\\S]*' terminator;
terminator      ::= '</ai00:assistant>';
ws              ::= #'\\s*';
"""


def structural_text(calls: int) -> str:
    """Returns a text for `STRUCTURAL`: a thought, some words and `calls` function calls."""
    call = """  <invoke name="get_weather">
    <parameter name="location">Reykjav\u00edk & its harbour</parameter>
    <parameter name="days">3 < 4</parameter>
  </invoke>
"""
    return (
        "<think>The user asks for the weather; I should look it up first.</think>\n"
        "Let me see what the forecast says.\n"
        f"<ai00:function_calls>\n{call * calls}</ai00:function_calls>"
    )
