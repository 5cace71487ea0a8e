"""Reads docstrings for the API reference: comments before attributes, and code blocks after "::"."""

from __future__ import annotations

import re
from typing import Any

from griffe import Attribute, Docstring, Extension, Object

_COMMENT = re.compile(r" *#: ?(.*)")


class Docstrings(Extension):
    """Griffe's extension that mkdocs.yml names."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Makes the comment ``#: text`` an attribute's docstring, and turns docstrings into Markdown."""
        if obj.docstring is not None:
            # Markdown needs no mark before an indented block
            text = re.sub(r"^ *::$", "", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = re.sub(r"::$", ":", text, flags=re.MULTILINE)
        elif isinstance(obj, Attribute) and (comment := _comment(obj)):
            obj.docstring = Docstring(comment, lineno=obj.lineno, parent=obj)


def _comment(attribute: Attribute) -> str:
    if attribute.lineno is None:
        return ""
    lines = attribute.lines_collection[attribute.filepath]
    found: list[str] = []
    for line in reversed(lines[: attribute.lineno - 1]):
        if not (match := _COMMENT.fullmatch(line)):
            break
        found.insert(0, match[1])
    return "\n".join(found)
