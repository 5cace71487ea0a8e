"""Text of strangers on a terminal: control characters are shown, never sent."""

from __future__ import annotations

import re
from typing import TextIO

#: C0 and C1 controls, and DEL, without newline and tab: with them a text moves the cursor, hides what is
#: there, changes the title, or has the terminal type
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """Returns the text with escapes such as `\\x1b` in place of control characters."""
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def show(value: object = "", *, file: TextIO | None = None, flush: bool = False) -> None:
    """Prints a line, control characters as escapes: for every line that has words of others."""
    print(printable(str(value)), file=file, flush=flush)
