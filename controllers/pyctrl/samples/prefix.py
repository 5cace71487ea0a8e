"""Continues typed characters, which may end within a word or token.

Prompt: Write the first sentence of a story.
Argument: Once upon a time, there was a lit
"""

from aici import arg, gen, regex

# This script uses masks: at each place, only tokens that agree with the typed text are allowed. So "lit" may
# become the one token " little", which a model would hardly write after the token " lit".
# This is not an exact sample of the model's texts with this beginning. A mask looks one token ahead, so it
# may allow a likely token after which the model would not continue as typed. docs/cpc.md has an exact method.


def quoted(text):
    return "".join(["\\" + c if c in r"\.+*?()[]{}|^$/-" else c for c in text])


# the argument is known at the top level, so its pattern is compiled once for all requests with this argument
TYPED = regex(quoted(arg) + r"[^\n.]*\.")


async def main():
    await gen(TYPED, max_tokens=30)
