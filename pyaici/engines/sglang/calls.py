"""Chooses the controller for a grammar of SGLang's API, or reads the controller that a request names.

SGLang hands each grammar to its backend as a kind and a text. Only the text of `ebnf` reaches the backend
unchanged from every API of SGLang, so a request names a controller there: as a JSON object with the keys of
`pyaici.engines.calls`, which is no EBNF.
"""

from __future__ import annotations

import json
from typing import Any

from pyaici.bundled import grammar_controller
from pyaici.engines.calls import PREFIX, Call, read_call

#: SGLang's text for any JSON value, as the schema that says so
_ANY_JSON = {"$$ANY$$": "{}"}


def grammar_call(kind: str, text: str, *, compact: bool) -> Call:
    """Returns the controller and its argument for a grammar.

    `kind`: json, regex, ebnf, full_assistant_ebnf or structural_tag. `compact`: JSON has no whitespace.
    Raises ValueError for other kinds, and for texts that cannot be read.
    """
    if kind == "json":
        options = {"whitespace": "compact"} if compact else {}
        return Call(
            "json_schema", json.dumps({"schema": _parse_json(_ANY_JSON.get(text, text), kind), **options})
        )
    if kind == "regex":
        return Call("regex", text)
    if kind in ("ebnf", "full_assistant_ebnf"):
        return _named(text) if text.lstrip().startswith("{") else Call(grammar_controller(text), text)
    if kind == "structural_tag":
        return Call("kbnf", _tag_grammar(_parse_json(text, kind)))
    raise ValueError(f"{kind} is not supported: use json_schema, regex, ebnf or structural_tag")


def _named(text: str) -> Call:
    args = _parse_json(text, "ebnf")
    ours = [key for key in args if key.startswith(PREFIX)]
    if not ours or len(ours) < len(args):
        other = next((key for key in args if key not in ours), "")
        raise ValueError(
            f"a JSON object as ebnf names a controller, with keys that begin with {PREFIX}, such as "
            f'{{"aici_controller": "regex", "aici_arg": "[0-9]+"}}: it has '
            + (f"the key {other[:40]!r}" if args else "no keys")
        )
    return read_call(args, ours)


def _tag_grammar(value: Any) -> str:
    """Returns the argument of `kbnf`. Raises ValueError."""
    from pydantic import ValidationError

    from pyaici.server.answers.plan import Start
    from pyaici.server.apis.openai.structural_tags import StructuralTag, structural_tag_grammar
    from pyaici.server.http.errors import ApiError

    try:
        return structural_tag_grammar(StructuralTag.model_validate(value), Start(), "structural_tag")
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, ("structural_tag", *problem["loc"])))[:200]
        raise ValueError(f"{place}: {problem['msg']}") from None
    except ApiError as error:
        raise ValueError(error.message) from None


def _parse_json(text: str, kind: str) -> Any:
    """Parses JSON. Raises ValueError."""
    from pyaici.server.answers.arguments import read_json

    try:
        return read_json(text)
    except ValueError as error:
        raise ValueError(f"{kind} is not JSON: {error}") from None
