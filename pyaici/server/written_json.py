"""JSON as models write it, read so that it can be sent on."""

from __future__ import annotations

import json
import re
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")


def read_json(text: str) -> Any:
    """A value that can be written again as UTF-8.

    Half of a surrogate pair is no character: what is escaped so, as in ``"\\ud800"``, becomes U+FFFD. Raises
    ValueError for what is not JSON, or is too large for any reader.
    """
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        if "\\u" in text:
            written = json.dumps(value, ensure_ascii=False)
            whole = _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", written)
            value = value if whole == written else json.loads(whole)
        return value
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    if (value := float(text)) in (float("inf"), float("-inf")):
        raise ValueError(f"{text} is too large")
    return value
