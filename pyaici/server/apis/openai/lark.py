"""Helpers that write Lark."""

from __future__ import annotations

import json
import re


def lark_text(text: str) -> str:
    """Returns a string literal of Lark."""
    return json.dumps(text, ensure_ascii=False)


def lark_regex(pattern: str) -> str:
    """Returns a regular expression of Lark, between slashes."""
    escaped = re.sub(r"(\\.)|/", lambda found: found[1] or r"\/", pattern, flags=re.DOTALL)
    return "/" + re.sub(r"\\?\n", r"\\n", escaped) + "/"


def literal_pattern(text: str) -> str:
    """Returns a regular expression that matches this text, for use between slashes."""
    return "".join(
        f"\\{char}" if char in r"\/.[]{}()*+?^$|" else "\\n" if char == "\n" else char for char in text
    )
