"""The five constraints of the mask measurements, each with a matching text, and one for long texts."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Constraint:
    """A constraint and the parts of a matching text.

    `pattern` is a regular expression, or with `until` the text to stop at. `head`, any number of `body` and
    `tail` form a match.
    """

    name: str
    pattern: str
    head: str
    body: str
    tail: str
    until: bool = False

    @property
    def text(self) -> str:
        """A matching text."""
        return self.head + self.body + self.tail

    @property
    def long_text(self) -> str:
        """The beginning of a matching text, at least 50 tokens long in any vocabulary."""
        return self.head + self.body * 50

    @property
    def argument(self) -> str:
        """The argument for the controller `regex`."""
        return json.dumps({"until": self.pattern}) if self.until else self.pattern

    @property
    def argument_again(self) -> str:
        """The argument for lab/guests/regex_again.cpp."""
        return f"until:{self.pattern}" if self.until else self.pattern


CONSTRAINTS = (
    Constraint("letters", "[a-z]+", "", "counterrevolutionaries", ""),
    Constraint("number", r"-?[0-9]+(\.[0-9]+)?", "-90210.", "4815", ""),
    Constraint(
        "json_string",
        r'"([^"\\\x00-\x1f\x7f]|\\(["\\/bfnrt]|u[0-9a-fA-F]{4}))*"',
        '"',
        'She said \\"hi\\" twice at the caf\u00e9, \\u00e9 or not, to 12 people. ',
        '"',
    ),
    Constraint(
        "email",
        r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9-]+(\.[a-zA-Z0-9-]+)*\.[a-zA-Z]{2,10}",
        "mary.jones07@",
        "post.sample-firm.",
        "org.uk",
    ),
    Constraint(
        "until_tag",
        "</tag>",
        "",
        "Text with <b>bold</b> and 5 < 6, caf\u00e9\n\nand more lines.",
        "</tag>",
        until=True,
    ),
)
#: does not end within a round and forces no token, so that all contestants make the same steps
ENDLESS_WORDS = r"( [A-Za-z]+[,.]?){400,500}"
