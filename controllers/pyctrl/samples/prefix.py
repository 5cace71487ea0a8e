"""Goes on from typed characters, which may end within a word, where tokens do not.

Prompt: Write the first sentence of a story.
Argument: Once upon a time, there was a lit
"""

from aici import argument, gen, regex

# What this is: masks. At each place, only tokens that agree with what was typed may come, so "lit" may become
# the one token " little", which a model that had to go on after the token " lit" would hardly write.
# What this is not: an exact sample of "texts of this model that begin so". A mask looks one token ahead, and
# takes a likely token with which the model would not have gone on as typed. docs/cpc.md has the exact one.


def quoted(text):
    return "".join(["\\" + c if c in r"\.+*?()[]{}|^$/-" else c for c in text])


# the argument is known at the top level, so its pattern is made once for all requests with this argument
TYPED = regex(quoted(argument) + r"[^\n.]*\.")


async def main():
    await gen(TYPED, max_tokens=30)
